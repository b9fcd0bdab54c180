// SPDX-License-Identifier: MIT
// Messages from rank to rank: all modes, requests of all kinds, probes, cells on one, two and many threads.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

int rank_in(MPI_Comm comm) {
  int rank = -1;
  MPI_Comm_rank(comm, &rank);
  return rank;
}
int size_of(MPI_Comm comm) {
  int size = -1;
  MPI_Comm_size(comm, &size);
  return size;
}
int count_of(const MPI_Status& status, MPI_Datatype type) {
  int count = -1;
  MPI_Get_count(&status, type, &count);
  return count;
}
/// Nobody goes on before all are here.
void meet(MPI_Comm comm) {
  const int rank = rank_in(comm);
  const int size = size_of(comm);
  for (int step = 1; step < size; step *= 2)
    MPI_Sendrecv(nullptr, 0, MPI_INT, (rank + step) % size, 99, nullptr, 0, MPI_INT, (rank - step + size) % size, 99,
                 comm, MPI_STATUS_IGNORE);
}

class PointToPoint : public testing::TestWithParam<Shape> {
 protected:
  static void run_ranks(std::function<void(int rank, int size)> program) {
    run_well(GetParam(), [program = std::move(program)] {
      MPI_Init(nullptr, nullptr);
      program(rank_in(MPI_COMM_WORLD), size_of(MPI_COMM_WORLD));
      meet(MPI_COMM_WORLD);
      MPI_Finalize();
    });
  }
};
INSTANTIATE_TEST_SUITE_P(, PointToPoint,
                         testing::Values(Shape{{4, 1}, 1}, Shape{{4, 1}, 2}, Shape{{5, 1}, Options::threads_per_cell}),
                         shape_name);

using Send = int (*)(const void*, int, MPI_Datatype, int, int, MPI_Comm);

TEST_P(PointToPoint, EveryModeSendsInOrder) {
  run_ranks([](int rank, int size) {
    std::vector<char> attached(10000);
    MPI_Buffer_attach(attached.data(), static_cast<int>(attached.size()));
    const std::array<Send, 3> modes{MPI_Send, MPI_Bsend, MPI_Rsend};
    const int next = (rank + 1) % size;
    const int last = (rank + size - 1) % size;
    for (int round = 0; round < 40; ++round) {
      const Send mode = modes[static_cast<std::size_t>(round) % modes.size()];
      const int value = rank * 1000 + round;
      int got = -1;
      MPI_Status status{};
      if (rank % 2 == 0 && rank + 1 != size) mode(&value, 1, MPI_INT, next, round % 3, MPI_COMM_WORLD);
      if (rank + 1 == size && size % 2 == 1) MPI_Send(&value, 1, MPI_INT, next, round % 3, MPI_COMM_WORLD);
      EXPECT_EQ(MPI_Recv(&got, 1, MPI_INT, round % 2 == 0 ? last : MPI_ANY_SOURCE, round % 3, MPI_COMM_WORLD, &status),
                MPI_SUCCESS);
      if (rank % 2 == 1) mode(&value, 1, MPI_INT, next, round % 3, MPI_COMM_WORLD);
      EXPECT_EQ(got, last * 1000 + round);
      EXPECT_EQ(status.MPI_SOURCE, last);
      EXPECT_EQ(status.MPI_TAG, round % 3);
      EXPECT_EQ(count_of(status, MPI_INT), 1);
    }
    void* detached = nullptr;
    int bytes = 0;
    MPI_Buffer_detach(&detached, &bytes);
    EXPECT_EQ(detached, attached.data());
    EXPECT_EQ(bytes, 10000);
  });
}

// Bytes of any type reach those of another one.
TEST_P(PointToPoint, DatatypesArePackedOnTheWay) {
  run_ranks([](int rank, int size) {
    MPI_Datatype column = MPI_DATATYPE_NULL;
    MPI_Type_vector(50, 1, 50, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    std::vector<double> matrix(2500);
    std::iota(matrix.begin(), matrix.end(), rank * 10000.0);
    std::vector<double> got(50);
    const int next = (rank + 1) % size;
    const int last = (rank + size - 1) % size;
    MPI_Status status{};
    MPI_Sendrecv(&matrix[3], 1, column, next, 1, got.data(), 50, MPI_DOUBLE, last, 1, MPI_COMM_WORLD, &status);
    for (int i = 0; i < 50; ++i) EXPECT_EQ(got[static_cast<std::size_t>(i)], last * 10000.0 + 3 + 50 * i);
    EXPECT_EQ(count_of(status, column), 1);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(&matrix[7], 1, column, last, 2, MPI_COMM_WORLD, &request);
    MPI_Send(got.data(), 20, MPI_DOUBLE, next, 2, MPI_COMM_WORLD);
    MPI_Wait(&request, &status);
    EXPECT_EQ(count_of(status, MPI_DOUBLE), 20);
    EXPECT_EQ(count_of(status, column), MPI_UNDEFINED);
    int elements = 0;
    MPI_Get_elements(&status, column, &elements);
    EXPECT_EQ(elements, 20);
    const int before = (last + size - 1) % size;
    for (int i = 0; i < 50; ++i)
      EXPECT_EQ(matrix[static_cast<std::size_t>(7 + 50 * i)],
                i < 20 ? before * 10000.0 + 3 + 50 * i : rank * 10000.0 + 7 + 50 * i);
    MPI_Type_free(&column);
  });
}

TEST_P(PointToPoint, RequestsEndInAllWays) {
  run_ranks([](int rank, int size) {
    if (rank == 0) {
      const int count = 3 * (size - 1);
      std::vector<int> got(static_cast<std::size_t>(count), -1);
      std::vector<MPI_Request> requests(static_cast<std::size_t>(count));
      std::vector<MPI_Status> statuses(static_cast<std::size_t>(count));
      std::vector<int> indices(static_cast<std::size_t>(count));
      for (int how = 0; how < 6; ++how) {
        for (int i = 0; i < count; ++i)
          MPI_Irecv(&got[static_cast<std::size_t>(i)], 1, MPI_INT, 1 + i / 3, i % 3, MPI_COMM_WORLD,
                    &requests[static_cast<std::size_t>(i)]);
        for (int i = 1; i < size; ++i) MPI_Send(nullptr, 0, MPI_INT, i, how, MPI_COMM_WORLD);
        int done = 0;
        int index = 0;
        int flag = 0;
        while (done < count) {
          switch (how) {
            case 0:
              MPI_Waitall(count, requests.data(), statuses.data());
              done = count;
              break;
            case 1:
              MPI_Testall(count, requests.data(), &flag, statuses.data());
              if (flag != 0) done = count;
              break;
            case 2:
              MPI_Waitany(count, requests.data(), &index, &statuses[0]);
              EXPECT_EQ(statuses[0].MPI_SOURCE, 1 + index / 3);
              EXPECT_EQ(statuses[0].MPI_TAG, index % 3);
              ++done;
              break;
            case 3:
              MPI_Testany(count, requests.data(), &index, &flag, &statuses[0]);
              if (flag != 0) ++done;
              break;
            default:
              (how == 4 ? MPI_Waitsome : MPI_Testsome)(count, requests.data(), &index, indices.data(), statuses.data());
              done += index;
              break;
          }
        }
        for (int i = 0; i < count; ++i) {
          EXPECT_EQ(got[static_cast<std::size_t>(i)], how * 100 + 1 + i / 3);
          EXPECT_EQ(requests[static_cast<std::size_t>(i)], MPI_REQUEST_NULL);
        }
        MPI_Waitany(count, requests.data(), &index, &statuses[0]);
        EXPECT_EQ(index, MPI_UNDEFINED);
      }
    } else {
      for (int how = 0; how < 6; ++how) {
        MPI_Recv(nullptr, 0, MPI_INT, 0, how, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        const int value = how * 100 + rank;
        MPI_Send(&value, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
        MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
        MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
      }
    }
  });
}

// Asking for a status leaves the requests as they are.
TEST_P(PointToPoint, StatusesAreToldBeforeTheEnd) {
  run_ranks([](int rank, int size) {
    const int next = (rank + 1) % size;
    const int last = (rank + size - 1) % size;
    std::array<int, 3> got{-1, -1, -1};
    std::array<MPI_Request, 4> requests{};
    requests[3] = MPI_REQUEST_NULL;
    std::array<MPI_Status, 4> statuses{};
    std::array<int, 4> indices{};
    int flag = -1;
    int index = -1;
    int count = -1;
    for (int i = 0; i < 3; ++i)
      MPI_Irecv(&got[static_cast<std::size_t>(i)], 1, MPI_INT, last, i, MPI_COMM_WORLD,
                &requests[static_cast<std::size_t>(i)]);
    MPI_Request_get_status_any(4, requests.data(), &index, &flag, statuses.data());
    EXPECT_EQ(flag, 0);
    EXPECT_EQ(index, MPI_UNDEFINED);
    meet(MPI_COMM_WORLD);
    MPI_Send(&rank, 1, MPI_INT, next, 1, MPI_COMM_WORLD);
    for (flag = 0; flag == 0;) MPI_Request_get_status_any(4, requests.data(), &index, &flag, statuses.data());
    EXPECT_EQ(index, 1);
    EXPECT_EQ(statuses[0].MPI_SOURCE, last);
    EXPECT_EQ(statuses[0].MPI_TAG, 1);
    EXPECT_EQ(count_of(statuses[0], MPI_INT), 1);
    MPI_Request_get_status_all(4, requests.data(), &flag, statuses.data());
    EXPECT_EQ(flag, 0);
    MPI_Request_get_status_some(4, requests.data(), &count, indices.data(), statuses.data());
    EXPECT_EQ(count, 1);
    EXPECT_EQ(indices[0], 1);
    EXPECT_EQ(statuses[0].MPI_TAG, 1);
    meet(MPI_COMM_WORLD);
    MPI_Send(&rank, 1, MPI_INT, next, 2, MPI_COMM_WORLD);
    MPI_Send(&rank, 1, MPI_INT, next, 0, MPI_COMM_WORLD);
    for (flag = 0; flag == 0;) MPI_Request_get_status_all(4, requests.data(), &flag, statuses.data());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(statuses[static_cast<std::size_t>(i)].MPI_TAG, i);
    EXPECT_EQ(statuses[3].MPI_SOURCE, MPI_ANY_SOURCE);
    MPI_Request_get_status_all(4, requests.data(), &flag, MPI_STATUSES_IGNORE);
    EXPECT_EQ(flag, 1);
    MPI_Request_get_status(requests[2], &flag, statuses.data());
    EXPECT_EQ(flag, 1);
    EXPECT_EQ(statuses[0].MPI_TAG, 2);
    MPI_Waitall(4, requests.data(), statuses.data());
    EXPECT_EQ(got, (std::array<int, 3>{last, last, last}));
    statuses[0].MPI_ERROR = MPI_ERR_OTHER;
    MPI_Request_get_status(MPI_REQUEST_NULL, &flag, statuses.data());
    EXPECT_EQ(flag, 1);
    EXPECT_EQ(statuses[0].MPI_ERROR, MPI_SUCCESS);
    MPI_Request_get_status_any(4, requests.data(), &index, &flag, statuses.data());
    EXPECT_EQ(flag, 1);
    EXPECT_EQ(index, MPI_UNDEFINED);
    MPI_Request_get_status_some(4, requests.data(), &count, indices.data(), statuses.data());
    EXPECT_EQ(count, MPI_UNDEFINED);
  });
}

TEST_P(PointToPoint, PersistentRequestsStartAgain) {
  run_ranks([](int rank, int size) {
    int out = 0;
    int in = 0;
    const int next = (rank + 1) % size;
    const int last = (rank + size - 1) % size;
    std::array<MPI_Request, 2> requests{};
    for (const auto init : {MPI_Send_init, MPI_Rsend_init}) {
      init(&out, 1, MPI_INT, next, 4, MPI_COMM_WORLD, &requests[0]);
      MPI_Recv_init(&in, 1, MPI_INT, last, 4, MPI_COMM_WORLD, &requests[1]);
      MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);  // not active: over at once
      for (int i = 0; i < 10; ++i) {
        out = rank + 10 * i;
        in = -1;
        MPI_Startall(2, requests.data());
        MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
        EXPECT_EQ(in, last + 10 * i);
      }
      MPI_Request_free(&requests[0]);
      MPI_Request_free(&requests[1]);
      EXPECT_EQ(requests[1], MPI_REQUEST_NULL);
    }
  });
}

TEST_P(PointToPoint, ProbesTellWhatAReceiveWouldGet) {
  run_ranks([](int rank, int size) {
    const int next = (rank + 1) % size;
    const int last = (rank + size - 1) % size;
    std::vector<int> out(static_cast<std::size_t>(100 + rank), rank);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(out.data(), static_cast<int>(out.size()), MPI_INT, next, 8, MPI_COMM_WORLD, &request);
    MPI_Send(&rank, 1, MPI_INT, next, 9, MPI_COMM_WORLD);
    MPI_Status status{};
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Probe(MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &status);
    EXPECT_EQ(count_of(status, MPI_INT), 100 + last);
    MPI_Mprobe(last, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
    EXPECT_EQ(status.MPI_TAG, 8);
    int flag = 0;
    while (flag == 0) MPI_Iprobe(last, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
    EXPECT_EQ(status.MPI_TAG, 9);
    std::vector<int> in(static_cast<std::size_t>(100 + last));
    MPI_Mrecv(in.data(), static_cast<int>(in.size()), MPI_INT, &message, &status);
    EXPECT_EQ(message, MPI_MESSAGE_NULL);
    EXPECT_EQ(in, std::vector<int>(in.size(), last));
    flag = 0;
    while (flag == 0) MPI_Improbe(last, 9, MPI_COMM_WORLD, &flag, &message, &status);
    int got = -1;
    MPI_Request received = MPI_REQUEST_NULL;
    MPI_Imrecv(&got, 1, MPI_INT, &message, &received);
    MPI_Wait(&received, &status);
    EXPECT_EQ(got, last);
    EXPECT_EQ(status.MPI_SOURCE, last);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  });
}

TEST_P(PointToPoint, NobodyIsAnEnd) {
  run_ranks([](int, int) {
    MPI_Status status{};
    int value = 5;
    MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
    MPI_Recv(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status);
    EXPECT_EQ(status.MPI_SOURCE, MPI_PROC_NULL);
    EXPECT_EQ(status.MPI_TAG, MPI_ANY_TAG);
    EXPECT_EQ(count_of(status, MPI_INT), 0);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, &status);
    EXPECT_EQ(status.MPI_SOURCE, MPI_PROC_NULL);
    EXPECT_EQ(value, 5);
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Mprobe(MPI_PROC_NULL, 1, MPI_COMM_WORLD, &message, &status);
    EXPECT_EQ(message, MPI_MESSAGE_NO_PROC);
    MPI_Mrecv(&value, 1, MPI_INT, &message, &status);
    EXPECT_EQ(message, MPI_MESSAGE_NULL);
  });
}

TEST_P(PointToPoint, ACancelledReceiveGetsNothing) {
  run_ranks([](int rank, int size) {
    int value = 5;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Status status{};
    MPI_Wait(&request, &status);
    int flag = 0;
    MPI_Test_cancelled(&status, &flag);
    EXPECT_EQ(flag, 1);
    meet(MPI_COMM_WORLD);
    int got = -1;
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 3, &got, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    EXPECT_EQ(got, (rank + size - 1) % size);
    EXPECT_EQ(value, 5);
  });
}

// The library gives programs one request for all sends that are over, and uses requests again.
TEST_P(PointToPoint, RequestsThatAreOverGetAlongInAnyOrder) {
  run_ranks([](int rank, int size) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    const int next = (rank + 1) % size;
    const int last = (rank + size - 1) % size;
    std::mt19937 random(7);
    for (int round = 0; round < 20; ++round) {
      std::array<int, 12> values{};
      std::array<int, 12> got{};
      std::array<MPI_Request, 24> requests{};
      std::iota(values.begin(), values.end(), rank * 100);
      for (std::size_t i = 0; i < values.size(); ++i) {
        MPI_Irecv(&got[i], 1, MPI_INT, last, static_cast<int>(i), MPI_COMM_WORLD, &requests[i]);
        MPI_Isend(&values[i], 1, MPI_INT, next, static_cast<int>(i), MPI_COMM_WORLD, &requests[12 + i]);
      }
      int flag = 0;
      MPI_Status status{};
      EXPECT_EQ(MPI_Request_get_status(requests[20], &flag, &status), MPI_SUCCESS);
      EXPECT_EQ(flag, 1);
      EXPECT_EQ(MPI_Cancel(&requests[21]), MPI_SUCCESS);
      EXPECT_EQ(MPI_Wait(&requests[21], &status), MPI_SUCCESS);
      EXPECT_EQ(requests[21], MPI_REQUEST_NULL);
      EXPECT_EQ(status.MPI_SOURCE, MPI_ANY_SOURCE);
      MPI_Test_cancelled(&status, &flag);
      EXPECT_EQ(flag, 0);
      EXPECT_EQ(MPI_Request_free(&requests[22]), MPI_SUCCESS);
      EXPECT_EQ(MPI_Start(&requests[23]), MPI_ERR_REQUEST);
      const MPI_Request copied = requests[0];
      std::shuffle(requests.begin(), requests.end(), random);
      std::array<MPI_Status, 24> statuses{};
      EXPECT_EQ(MPI_Waitall(24, requests.data(), statuses.data()), MPI_SUCCESS);
      for (const MPI_Request request : requests) EXPECT_EQ(request, MPI_REQUEST_NULL);
      EXPECT_EQ(got[0], last * 100);
      EXPECT_EQ(got[11], last * 100 + 11);
      int received = 0;
      for (const MPI_Status& each : statuses) {
        if (each.MPI_SOURCE != MPI_ANY_SOURCE) received += count_of(each, MPI_INT);
      }
      EXPECT_EQ(received, 12);
      MPI_Request ended = copied;
      EXPECT_EQ(MPI_Wait(&ended, MPI_STATUS_IGNORE), MPI_ERR_REQUEST);  // nothing has used it again
    }
  });
}

// Those that are a little less than plain take the long way, and mean the same.
TEST_P(PointToPoint, EveryWayOfAMessageGivesTheSame) {
  run_ranks([](int rank, int size) {
    MPI_Comm copy = MPI_COMM_NULL;
    MPI_Datatype contiguous = MPI_DATATYPE_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Type_contiguous(2, MPI_INT, &contiguous);
    MPI_Type_commit(&contiguous);
    struct Way {
      int count;
      MPI_Datatype type;
    };
    const std::array<Way, 5> ways{{{2, MPI_INT}, {1, contiguous}, {8, MPI_BYTE}, {1, MPI_2INT}, {8, MPI_PACKED}}};
    const int next = (rank + 1) % size;
    const int last = (rank + size - 1) % size;
    for (const MPI_Comm comm : {MPI_COMM_WORLD, copy}) {
      for (const Way& sent : ways) {
        for (const Way& wanted : ways) {
          for (const int source : {last, MPI_ANY_SOURCE}) {
            const std::array<int, 2> out{rank, 7};
            std::array<int, 3> in{-1, -1, -1};
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_Status status{};
            MPI_Isend(out.data(), sent.count, sent.type, next, 5, comm, &request);
            MPI_Recv(in.data(), wanted.count, wanted.type, source, source == last ? MPI_ANY_TAG : 5, comm, &status);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            EXPECT_EQ(in, (std::array<int, 3>{last, 7, -1}));
            EXPECT_EQ(status.MPI_SOURCE, last);
            EXPECT_EQ(status.MPI_TAG, 5);
            EXPECT_EQ(count_of(status, MPI_BYTE), 8);
            meet(comm);
          }
        }
      }
    }
    MPI_Send(nullptr, 0, MPI_INT, next, 6, copy);
    MPI_Status status{};
    MPI_Recv(nullptr, 0, MPI_INT, last, 6, copy, &status);
    EXPECT_EQ(count_of(status, MPI_INT), 0);
    MPI_Type_free(&contiguous);
    MPI_Comm_free(&copy);
  });
}

TEST_P(PointToPoint, WrongArgumentsHaveTheirClasses) {
  run_ranks([](int rank, int size) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int value = 0;
    EXPECT_EQ(MPI_Send(&value, 1, MPI_INT, size, 0, MPI_COMM_WORLD), MPI_ERR_RANK);
    EXPECT_EQ(MPI_Send(&value, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD), MPI_ERR_RANK);
    EXPECT_EQ(MPI_Send(&value, 1, MPI_INT, 0, -1, MPI_COMM_WORLD), MPI_ERR_TAG);
    EXPECT_EQ(MPI_Send(&value, -1, MPI_INT, 0, 0, MPI_COMM_WORLD), MPI_ERR_COUNT);
    EXPECT_EQ(MPI_Send(&value, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD), MPI_ERR_TYPE);
    EXPECT_EQ(MPI_Bsend(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD), MPI_ERR_BUFFER);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    EXPECT_EQ(MPI_Cancel(&request), MPI_ERR_REQUEST);
    EXPECT_EQ(MPI_Start(&request), MPI_ERR_REQUEST);
    // A message that is too long: the beginning is there.
    const std::array<int, 2> two{rank, 7};
    std::array<int, 2> got{-1, -1};
    MPI_Status status{};
    MPI_Send(two.data(), 2, MPI_INT, rank, 1, MPI_COMM_WORLD);
    EXPECT_EQ(MPI_Recv(got.data(), 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &status), MPI_ERR_TRUNCATE);
    EXPECT_EQ(got, (std::array<int, 2>{rank, -1}));
    MPI_Send(two.data(), 2, MPI_INT, rank, 1, MPI_COMM_WORLD);
    MPI_Irecv(got.data(), 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &request);
    EXPECT_EQ(MPI_Waitall(1, &request, &status), MPI_ERR_IN_STATUS);
    EXPECT_EQ(MPI_Waitall(1, nullptr, &status), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Waitall(0, nullptr, nullptr), MPI_SUCCESS);
    EXPECT_EQ(status.MPI_ERROR, MPI_ERR_TRUNCATE);
    EXPECT_EQ(request, MPI_REQUEST_NULL);
  });
}

TEST_P(PointToPoint, AMessageThatEndsWithinAnElementDoesNotFit) {
  run_ranks([](int rank, int) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const std::array<char, 12> bytes{};
    std::array<int, 4> got{};
    MPI_Datatype mixed = MPI_DATATYPE_NULL;  // an int and a short
    const std::array<int, 2> lengths{1, 1};
    const std::array<MPI_Aint, 2> places{0, 4};
    const std::array<MPI_Datatype, 2> parts{MPI_INT, MPI_SHORT};
    MPI_Type_create_struct(2, lengths.data(), places.data(), parts.data(), &mixed);
    MPI_Type_commit(&mixed);
    const auto receive_all_ways = [&](int count, MPI_Datatype type, int expected) {
      MPI_Status status{};
      int arrived = 0;
      MPI_Send(bytes.data(), count, MPI_CHAR, rank, 1, MPI_COMM_WORLD);
      EXPECT_EQ(MPI_Recv(got.data(), 2, type, rank, 1, MPI_COMM_WORLD, &status), expected) << count;
      MPI_Get_count(&status, MPI_CHAR, &arrived);
      EXPECT_EQ(arrived, count);
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Irecv(got.data(), 2, type, rank, 1, MPI_COMM_WORLD, &request);
      MPI_Send(bytes.data(), count, MPI_CHAR, rank, 1, MPI_COMM_WORLD);
      EXPECT_EQ(MPI_Wait(&request, MPI_STATUS_IGNORE), expected) << count;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Send(bytes.data(), count, MPI_CHAR, rank, 1, MPI_COMM_WORLD);
      MPI_Mprobe(rank, 1, MPI_COMM_WORLD, &message, &status);
      EXPECT_EQ(MPI_Mrecv(got.data(), 2, type, &message, &status), expected) << count;
    };
    receive_all_ways(3, MPI_INT, MPI_ERR_TYPE);
    receive_all_ways(4, MPI_INT, MPI_SUCCESS);
    receive_all_ways(0, MPI_INT, MPI_SUCCESS);
    receive_all_ways(5, mixed, MPI_ERR_TYPE);
    receive_all_ways(4, mixed, MPI_SUCCESS);
    receive_all_ways(10, mixed, MPI_SUCCESS);
    MPI_Type_free(&mixed);
  });
}

TEST_P(PointToPoint, ACallThatFailsByItsReceiveSendsNothing) {
  run_ranks([](int rank, int) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Request request = MPI_REQUEST_NULL;
    EXPECT_EQ(MPI_Isendrecv(&rank, 1, MPI_INT, rank, 1, nullptr, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &request),
              MPI_ERR_BUFFER);
    int got = -1;
    EXPECT_EQ(MPI_Sendrecv(&rank, 1, MPI_INT, rank, 1, &got, -1, MPI_INT, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
              MPI_ERR_COUNT);
    int flag = 1;
    MPI_Iprobe(rank, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    EXPECT_EQ(flag, 0);
  });
}

TEST(MpiTruncation, SaysWhatCameAndWhatFits) {
  const Report report = run({{2, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    const std::array<int, 4> four{};
    int one = 0;
    if (me() == 0) MPI_Send(four.data(), 4, MPI_INT, 1, 17, MPI_COMM_WORLD);
    if (me() == 1) MPI_Recv(&one, 1, MPI_INT, 0, 17, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  });
  EXPECT_EQ(report.exit_status, 1);
  EXPECT_EQ(report.reason,
            "cell 1 task 0: MPI_Recv: the message from rank 0 with tag 17 has 16 bytes, but count and datatype make "
            "room for 4; its beginning is there. Receive with room for all, or ask MPI_Probe before "
            "(MPI_ERR_TRUNCATE on MPI_COMM_WORLD)");
}

// What is open or unread at the end harms nobody.
TEST_P(PointToPoint, FinalizeEndsWhatIsOpen) {
  run_well(GetParam(), [] {
    MPI_Init(nullptr, nullptr);
    const int rank = rank_in(MPI_COMM_WORLD);
    const int size = size_of(MPI_COMM_WORLD);
    std::vector<int> large(100000, rank);
    std::array<int, 3> never{};
    std::array<MPI_Request, 4> requests{};
    MPI_Irecv(never.data(), 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(&rank, 1, MPI_INT, (rank + 1) % size, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Recv_init(never.data(), 1, MPI_INT, 0, 3, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(large.data(), 100000, MPI_INT, (rank + 1) % size, 4, MPI_COMM_WORLD, &requests[3]);
    MPI_Request_free(&requests[0]);
    meet(MPI_COMM_WORLD);
    MPI_Finalize();
  });
}

}  // namespace
}  // namespace aplib
