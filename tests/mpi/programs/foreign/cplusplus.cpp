// SPDX-License-Identifier: MIT
// MPI's classes of C++ (MPI-2), of which programs have the library of their own MPI.
#include <mpi.h>

#include <cstdio>

static void add(const void* in, void* inout, int count, const MPI::Datatype& type) {
  if (type.Get_size() != sizeof(int)) std::puts("an operation gets another datatype");
  for (int i = 0; i < count; ++i) static_cast<int*>(inout)[i] += static_cast<const int*>(in)[i];
}

int main(int argc, char** argv) {
  MPI::Init(argc, argv);
  const int rank = MPI::COMM_WORLD.Get_rank();
  const int size = MPI::COMM_WORLD.Get_size();
  const int one = 1;
  int sum = 0;
  MPI::Op op;
  op.Init(add, true);
  MPI::COMM_WORLD.Allreduce(&one, &sum, 1, MPI::INT, op);
  if (sum != size) std::printf("the sum is %d\n", sum);
  op.Free();
  MPI::Datatype three = MPI::INT.Create_contiguous(3);
  three.Commit();
  if (three.Get_size() != 12) std::puts("the datatype has another size");
  three.Free();
  MPI::Intracomm copy = MPI::COMM_WORLD.Dup();
  copy.Free();
  const int left = (rank + size - 1) % size;
  int got = -1;
  MPI::Status status;
  MPI::COMM_WORLD.Sendrecv(&rank, 1, MPI::INT, (rank + 1) % size, 1, &got, 1, MPI::INT, left, 1, status);
  if (got != left || status.Get_source() != left) std::printf("got %d of %d\n", got, status.Get_source());
  if (rank == 0) std::puts("No Errors");
  MPI::Finalize();
}
