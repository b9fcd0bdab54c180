// SPDX-License-Identifier: MIT
// The C++ bindings of MPI-2, with functions of the program that MPI calls.
#include "check.h"

static void add(const void* in, void* inout, int count, const MPI::Datatype& type) {
  CHECK(type == MPI::INT);
  for (int i = 0; i < count; ++i) static_cast<int*>(inout)[i] += static_cast<const int*>(in)[i];
}

static int copies;
static int deletes;
static int copy(const MPI::Comm& comm, int, void* state, void* value, void* copied, bool& flag) {
  CHECK(comm == MPI::COMM_WORLD && state == &copies);
  ++copies;
  *static_cast<void**>(copied) = value;
  flag = true;
  return MPI::SUCCESS;
}
static int remove_it(MPI::Comm& comm, int, void*, void* state) {
  CHECK(comm.Get_size() == size && state == &copies);
  ++deletes;
  return MPI::SUCCESS;
}

static int handled;
static void handle(MPI::Comm& comm, int* code, ...) {
  CHECK(comm == MPI::COMM_WORLD && *code == MPI::ERR_RANK);
  ++handled;
}
static void handle_file(MPI::File& file, int* code, ...) {
  CHECK(file == MPI::FILE_NULL && *code == MPI::ERR_NO_SUCH_FILE);
  ++handled;
}

static void errors_of_calls() {
  int value = 0;
  MPI::Errhandler handler = MPI::Comm::Create_errhandler(handle);
  MPI::COMM_WORLD.Set_errhandler(handler);
  MPI::COMM_WORLD.Send(&value, 1, MPI::INT, size + 3, 0);
  CHECK(handled > 0);
  handler.Free();
  MPI::COMM_WORLD.Set_errhandler(MPI::ERRORS_THROW_EXCEPTIONS);
  int error_class = MPI::SUCCESS;
  try {
    MPI::COMM_WORLD.Send(&value, 1, MPI::INT, size + 3, 0);
  } catch (MPI::Exception& thrown) {
    error_class = thrown.Get_error_class();
  }
  CHECK(error_class == MPI::ERR_RANK);
  CHECK(MPI::COMM_WORLD.Get_errhandler() == MPI::ERRORS_THROW_EXCEPTIONS);
  MPI::COMM_WORLD.Set_errhandler(MPI::ERRORS_ARE_FATAL);
  handled = 0;
  MPI::FILE_NULL.Set_errhandler(MPI::File::Create_errhandler(handle_file));
  MPI::File::Open(MPI::COMM_SELF, "/nowhere/at/all", MPI::MODE_RDONLY, MPI::INFO_NULL);
  CHECK(handled > 0);
}

int main(int argc, char** argv) {
  MPI::Init(argc, argv);
  rank = MPI::COMM_WORLD.Get_rank();
  size = MPI::COMM_WORLD.Get_size();
  int sum = -1;
  MPI::Op op;
  op.Init(add, true);
  MPI::COMM_WORLD.Allreduce(&rank, &sum, 1, MPI::INT, op);
  CHECK(sum == size * (size - 1) / 2);
  op.Free();
  const int key = MPI::Comm::Create_keyval(copy, remove_it, &copies);
  MPI::COMM_WORLD.Set_attr(key, &sum);
  MPI::Intracomm duplicate = MPI::COMM_WORLD.Dup();
  void* found = nullptr;
  CHECK(duplicate.Get_attr(key, &found) && found == &sum && copies == 1);
  duplicate.Free();
  CHECK(deletes == 1);
  MPI::COMM_WORLD.Delete_attr(key);
  CHECK(deletes == 2);
  errors_of_calls();
  return finish();
}
