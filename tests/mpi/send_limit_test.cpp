// SPDX-License-Identifier: MIT
// Sends where more messages wait than the limits allow: they wait for no receive, and no run fails by them.
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "cell/processor.hpp"
#include "checks.hpp"
#include "machines.hpp"
#include "placements.hpp"

namespace aplib {
namespace {

void set_limits(Options& options) {
  options.set("unread-limit", "1m");
  options.set("send-limit", "1m");
  options.set("send-wait", "100ms");
}

/// All have begun all their sends before anyone receives.
void send_before_receiving() {
  struct Kind {
    std::size_t bytes;
    int count;
  };
  constexpr std::array<Kind, 5> kinds = {{{8, 3000}, {900, 300}, {2000, 300}, {31 * 1024, 40}, {100'000, 20}}};
  MPI_Init(nullptr, nullptr);
  int rank = -1;
  int size = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_attach_buffer(MPI_COMM_WORLD, MPI_BUFFER_AUTOMATIC, 0);
  const std::vector<char> out(100'000, static_cast<char>(rank));
  std::vector<char> in(out.size());
  std::vector<MPI_Request> requests;
  const auto for_each_message = [&](const auto& act) {
    for (int i = 0; i < size; ++i) {
      int tag = 0;
      for (const Kind& kind : kinds) {
        for (int n = 0; n < kind.count; ++n) act(i, static_cast<int>(kind.bytes), tag);
        ++tag;
      }
    }
  };
  for_each_message([&](int to, int bytes, int tag) {
    if (tag % 2 == 0) {
      requests.emplace_back();
      EXPECT_EQ(MPI_Isend(out.data(), bytes, MPI_CHAR, to, tag, MPI_COMM_WORLD, &requests.back()), MPI_SUCCESS);
    } else {
      EXPECT_EQ(MPI_Bsend(out.data(), bytes, MPI_CHAR, to, tag, MPI_COMM_WORLD), MPI_SUCCESS);
    }
  });
  EXPECT_EQ(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS);
  for_each_message([&](int from, int bytes, int tag) {
    in[static_cast<std::size_t>(bytes) - 1] = -1;
    EXPECT_EQ(MPI_Recv(in.data(), bytes, MPI_CHAR, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS);
    EXPECT_EQ(in[static_cast<std::size_t>(bytes) - 1], static_cast<char>(from));
  });
  EXPECT_EQ(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
  MPI_Finalize();
}

TEST(SendLimits, LetNoSendWaitForAReceive) {
  for (const std::uint32_t threads : {1U, 2U}) {
    Options options = testing_support::options_of({{4, 1}, threads});
    set_limits(options);
    Machine machine(options);
    const Report report = machine.run(send_before_receiving);
    EXPECT_EQ(report.exit_status, 0) << report.reason;
  }
}

TEST(SendLimits, LetNoSendToAnotherProcessWaitForAReceive) {
  testing_support::Processes processes({4, 1}, {2, 2}, 1, {.capacity_bytes = 4096});
  set_limits(processes.options);
  const auto outcome = processes.run(send_before_receiving);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.failure(), "");
}

// A sender that is faster than its receiver goes at its pace, and does not fill the memory.
TEST(SendLimits, MakeASenderWaitAsLongAsMessagesAreReceived) {
  Options options = testing_support::options_of({{2, 1}, 1});
  set_limits(options);
  Machine machine(options);
  const Report report = machine.run([] {
    constexpr int count = 40'000;
    MPI_Init(nullptr, nullptr);
    int rank = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::array<char, 500> data{};
    for (int i = 0; i < count; ++i) {
      if (rank == 0) {
        MPI_Send(data.data(), static_cast<int>(data.size()), MPI_CHAR, 1, 0, MPI_COMM_WORLD);
      } else {
        MPI_Recv(data.data(), static_cast<int>(data.size()), MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EXPECT_LT(Processor::current()->domain().unread_bytes(), 4 << 20);
      }
    }
    MPI_Finalize();
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
}

// ---------------------------------------------------------------- limits at their defaults

/// What ranks of many programs do, each with messages of `bytes` bytes. All sends of a rank are begun before it
/// receives: MPI_Isend waits for nobody.
class Patterns {
 public:
  explicit Patterns(std::size_t bytes) : bytes_(static_cast<int>(bytes)), out_(bytes, 1), in_(bytes) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }

  void all_to_all() {
    for (int i = 1; i < size_; ++i) send((rank_ + i) % size_);
    for (int i = 1; i < size_; ++i) receive((rank_ + size_ - i) % size_);
    finish();
  }
  void master_and_workers() {
    for (int i = 1; rank_ == 0 && i < size_; ++i) send(i);
    MPI_Barrier(MPI_COMM_WORLD);  // the workers are busy meanwhile
    if (rank_ != 0) receive(0);
    finish();
  }
  void gather_to_one() {
    if (rank_ != 0) send(0);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 1; rank_ == 0 && i < size_; ++i) receive(i);
    finish();
  }
  void halo() {
    for (const int to : {rank_ + 1, rank_ + size_ - 1}) send(to % size_);
    for (const int from : {rank_ + 1, rank_ + size_ - 1}) receive(from % size_);
    finish();
  }
  void pipeline(int ranks) {
    if (rank_ >= ranks) return;
    if (rank_ > 0) receive(rank_ - 1);
    if (rank_ + 1 < ranks) send(rank_ + 1);
    finish();
  }

 private:
  void send(int to) {
    requests_.emplace_back();
    MPI_Isend(out_.data(), bytes_, MPI_CHAR, to, 0, MPI_COMM_WORLD, &requests_.back());
  }
  void receive(int from) {
    in_.back() = 0;
    MPI_Recv(in_.data(), bytes_, MPI_CHAR, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT_EQ(in_.back(), 1);
  }
  void finish() {
    MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
    requests_.clear();
  }

  int bytes_;
  int rank_ = 0;
  int size_ = 0;
  std::vector<char> out_;
  std::vector<char> in_;
  std::vector<MPI_Request> requests_;
};

TEST(SendLimits, AtTheirDefaultsHoldUpNothingThatSixtyFourRanksDo) {
  testing_support::run_well({{64, 1}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    for (const std::size_t bytes :
         {std::size_t{1}, std::size_t{5000}, std::size_t{31 * 1024}, std::size_t{1000 * 1000}}) {
      if (testing_support::sanitized && bytes > 100'000) continue;
      Patterns patterns(bytes);
      patterns.all_to_all();
      patterns.master_and_workers();
      patterns.gather_to_one();
      patterns.halo();
      patterns.pipeline(64);
    }
    if (!testing_support::sanitized) {
      int rank = 0;
      MPI_Comm_rank(MPI_COMM_WORLD, &rank);
      if (rank < 4) Patterns(100'000'000).pipeline(4);
    }
    MPI_Finalize();
  });
}

}  // namespace
}  // namespace aplib
