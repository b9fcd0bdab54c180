// SPDX-License-Identifier: MIT
// Boost.Thread and Boost.Filesystem: interruption, futures, thread-specific pointers; folders of each rank's own.
#define BOOST_THREAD_VERSION 4
#include <atomic>
#include <boost/filesystem.hpp>
#include <boost/filesystem/fstream.hpp>
#include <boost/thread.hpp>
#include <boost/thread/future.hpp>
#include <boost/thread/tss.hpp>

#include "stress.h"

namespace files = boost::filesystem;

static void threads(int round) {
  static boost::thread_specific_ptr<int> own;
  own.reset(new int(rank));
  boost::barrier together(3);
  std::atomic<int> sum = 0;
  boost::thread_group group;
  for (int i = 0; i < 3; ++i) {
    group.create_thread([&, i] {
      check(own.get() == nullptr, "a pointer of a new thread");
      own.reset(new int(i));
      together.wait();
      sum += *own;
    });
  }
  meet(round);
  group.join_all();
  check(sum == 3 && *own == rank, "threads");

  boost::mutex mutex;
  boost::condition_variable never;
  bool interrupted = false;
  boost::thread sleeper([&] {
    boost::unique_lock<boost::mutex> lock(mutex);
    try {
      for (;;) never.wait(lock);
    } catch (const boost::thread_interrupted&) {
      interrupted = true;
    }
  });
  meet(round + 1);
  sleeper.interrupt();
  sleeper.join();
  check(interrupted, "an interruption");
  auto answer = boost::async(boost::launch::async, [] { return 6 * rank; });
  check(answer.get() == 6 * rank, "a future");
  boost::call_once([] { meet(2); }, *new boost::once_flag BOOST_ONCE_INIT);
}

static void folders(int round) {
  const files::path folder = files::current_path() / files::unique_path("rank-%%%%-%%%%-%%%%");
  files::create_directories(folder / "a" / "b");
  for (int i = 0; i < 5; ++i) files::ofstream(folder / "a" / std::to_string(i)) << rank << ' ' << round;
  meet(round);
  int number = -1, count = 0;
  for (const auto& entry : files::recursive_directory_iterator(folder)) {
    if (files::is_regular_file(entry) && (files::ifstream(entry.path()) >> number) && number == rank) ++count;
  }
  check(count == 5, "files");
  check(files::remove_all(folder) == 8, "removed files");
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  for (int round = 0; round < 10; ++round) {
    threads(round);
    folders(round);
  }
  return end();
}
