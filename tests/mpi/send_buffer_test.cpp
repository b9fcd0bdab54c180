// SPDX-License-Identifier: MIT
// Buffers of buffered sends: of a rank, of a communicator, and automatic ones.
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>

#include "error_class.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

/// The class of the error of a buffered send of so many bytes to oneself; what was sent is received.
int class_of_send(int bytes, MPI_Comm comm) {
  std::array<char, 256> data{};
  const int code = MPI_Bsend(data.data(), bytes, MPI_CHAR, 0, 1, comm);
  if (code == MPI_SUCCESS) MPI_Recv(data.data(), bytes, MPI_CHAR, 0, 1, comm, MPI_STATUS_IGNORE);
  return class_of(code);
}

TEST(SendBuffers, OfACommunicatorComeFirst) {
  run_well({{1, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    EXPECT_EQ(class_of_send(1, MPI_COMM_SELF), MPI_ERR_BUFFER);
    std::array<char, MPI_BSEND_OVERHEAD + 100> mine{};
    std::array<char, MPI_BSEND_OVERHEAD + 10> its{};
    EXPECT_EQ(MPI_Buffer_attach(mine.data(), static_cast<int>(mine.size())), MPI_SUCCESS);
    EXPECT_EQ(class_of_send(100, MPI_COMM_SELF), MPI_SUCCESS);
    EXPECT_EQ(class_of_send(101, MPI_COMM_SELF), MPI_ERR_BUFFER);
    EXPECT_EQ(MPI_Comm_attach_buffer(MPI_COMM_SELF, its.data(), static_cast<int>(its.size())), MPI_SUCCESS);
    EXPECT_EQ(class_of_send(11, MPI_COMM_SELF), MPI_ERR_BUFFER);
    EXPECT_EQ(class_of_send(11, MPI_COMM_WORLD), MPI_SUCCESS);
    EXPECT_EQ(class_of(MPI_Comm_attach_buffer(MPI_COMM_SELF, its.data(), 1)), MPI_ERR_BUFFER);

    void* place = nullptr;
    MPI_Count size = 0;
    EXPECT_EQ(MPI_Comm_detach_buffer_c(MPI_COMM_SELF, &place, &size), MPI_SUCCESS);
    EXPECT_EQ(place, its.data());
    EXPECT_EQ(size, static_cast<MPI_Count>(its.size()));
    EXPECT_EQ(class_of_send(11, MPI_COMM_SELF), MPI_SUCCESS);
    MPI_Finalize();
  });
}

TEST(SendBuffers, MayBeAutomatic) {
  run_well({{1, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    EXPECT_EQ(MPI_Comm_attach_buffer(MPI_COMM_WORLD, MPI_BUFFER_AUTOMATIC, 0), MPI_SUCCESS);
    EXPECT_EQ(class_of_send(200, MPI_COMM_WORLD), MPI_SUCCESS);
    void* place = nullptr;
    int size = -1;
    EXPECT_EQ(MPI_Comm_detach_buffer(MPI_COMM_WORLD, &place, &size), MPI_SUCCESS);
    EXPECT_EQ(place, MPI_BUFFER_AUTOMATIC);
    EXPECT_EQ(size, 0);
    MPI_Finalize();
  });
}

TEST(SendBuffers, AreFlushedAtOnce) {
  run_well({{1, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    std::array<MPI_Request, 2> requests{};
    EXPECT_EQ(MPI_Buffer_flush(), MPI_SUCCESS);
    EXPECT_EQ(MPI_Comm_flush_buffer(MPI_COMM_WORLD), MPI_SUCCESS);
    EXPECT_EQ(MPI_Buffer_iflush(&requests[0]), MPI_SUCCESS);
    EXPECT_EQ(MPI_Comm_iflush_buffer(MPI_COMM_WORLD, &requests[1]), MPI_SUCCESS);
    EXPECT_EQ(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
    EXPECT_EQ(requests[0], MPI_REQUEST_NULL);
    EXPECT_EQ(requests[1], MPI_REQUEST_NULL);
    MPI_Finalize();
  });
}

TEST(HardwareResources, AreThoseThatSplitTypeKnows) {
  run_well({{2, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Info info = MPI_INFO_NULL;
    EXPECT_EQ(MPI_Get_hw_resource_info(&info), MPI_SUCCESS);
    std::array<char, 8> value{};
    int room = static_cast<int>(value.size());
    int flag = 0;
    MPI_Info_get_string(info, "mpi_shared_memory", &room, value.data(), &flag);
    EXPECT_EQ(flag, 1);
    EXPECT_STREQ(value.data(), "true");
    MPI_Info_free(&info);
    MPI_Finalize();
  });
}

}  // namespace
}  // namespace aplib
