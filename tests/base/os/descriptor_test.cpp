// SPDX-License-Identifier: MIT
#include "base/os/descriptor.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include "base/os/thread.hpp"

namespace aplib::os {
namespace {

bool is_open(int descriptor) { return ::fcntl(descriptor, F_GETFD) != -1; }

bool is_readable(int descriptor) {
  pollfd what{descriptor, POLLIN, 0};
  return ::poll(&what, 1, 0) == 1;
}

TEST(UniqueFd, ClosesWithItsOwner) {
  int number = -1;
  {
    const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    number = file.get();
    ASSERT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(UniqueFd, MovedFromOwnsNothing) {
  UniqueFd first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int number = first.get();
  UniqueFd second(std::move(first));
  EXPECT_FALSE(first);  // NOLINT: the test is about the moved-from state
  EXPECT_EQ(second.get(), number);
  const int released = second.release();
  second.reset();
  EXPECT_TRUE(is_open(released));
  ::close(released);
}

TEST(UniqueFd, ResetKeepsErrno) {
  UniqueFd wrong(1 << 20);  // close() fails with EBADF
  errno = ENOENT;
  wrong.reset();
  EXPECT_EQ(errno, ENOENT);
}

TEST(GuardedFd, StandsForTheFileThatIsOpenThere) {
  int number = -1;
  {
    GuardedFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    number = file.get();
    EXPECT_TRUE(is_guarded(number));
    const GuardedFd moved(std::move(file));
    EXPECT_TRUE(is_guarded(number));
  }
  EXPECT_FALSE(is_guarded(number));

  const UniqueFd first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  guard_descriptor(first.get());
  const UniqueFd second(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::dup2(second.get(), first.get()), first.get());
  EXPECT_FALSE(is_guarded(first.get())) << "another file has the number now";
  unguard_descriptor(first.get());
}

TEST(GuardedFd, WhatTheUserHandsOverIsNotGuarded) {
  const UniqueFd own(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd handed(::open("/dev/null", O_RDONLY));
  guard_open_descriptors();
  EXPECT_TRUE(is_guarded(own.get()));
  EXPECT_FALSE(is_guarded(handed.get()));
  for (const int descriptor : open_descriptors()) unguard_descriptor(descriptor);
}

TEST(Pipe, IsClosedByExecAndCarriesBytes) {
  const Pipe pipe = Pipe::make();
  EXPECT_EQ(::fcntl(pipe.reader.get(), F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(::fcntl(pipe.writer.get(), F_GETFD), FD_CLOEXEC);
  ASSERT_EQ(::write(pipe.writer.get(), "x", 1), 1);
  char got = 0;
  ASSERT_EQ(::read(pipe.reader.get(), &got, 1), 1);
  EXPECT_EQ(got, 'x');
}

TEST(Pipe, NamesTheLimitOfOpenFiles) {
  // UndefinedBehaviorSanitizer opens its own pipe to look at the exception, so the limit itself is not lowered.
  std::string text;
  try {
    errno = EMFILE;
    refuse_descriptor("a pipe");
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_NE(text.find("cannot make a pipe: Too many open files"), std::string::npos) << text;
  EXPECT_NE(text.find("ulimit -n"), std::string::npos) << text;
}

TEST(Files, MayHaveAsManyBytesAsTheLimitSays) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit little{.rlim_cur = 1000, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  EXPECT_TRUE(file_may_have(1000));
  EXPECT_FALSE(file_may_have(1001));
  const std::string why = text_of(errno);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_NE(why.find("(ulimit -f)"), std::string::npos) << why;
}

TEST(EventFd, IsReadableFromSignalToClear) {
  const EventFd event;
  EXPECT_FALSE(is_readable(event.get()));
  event.signal();
  event.signal();
  EXPECT_TRUE(is_readable(event.get()));
  EXPECT_TRUE(event.clear());
  EXPECT_FALSE(is_readable(event.get()));
  EXPECT_FALSE(event.clear());
}

TEST(QuietThread, BlocksAllSignalsButFaultsAndLeavesTheCallersAlone) {
  sigset_t before;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  sigset_t inside;
  std::thread thread = quiet_thread("quiet", [&] { ::pthread_sigmask(SIG_SETMASK, nullptr, &inside); });
  thread.join();
  EXPECT_EQ(::sigismember(&inside, SIGTERM), 1);
  EXPECT_EQ(::sigismember(&inside, SIGINT), 1);
  EXPECT_EQ(::sigismember(&inside, SIGSEGV), 0);
  sigset_t after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(::sigismember(&after, SIGTERM), ::sigismember(&before, SIGTERM));
  EXPECT_EQ(::sigismember(&after, SIGINT), ::sigismember(&before, SIGINT));
}

}  // namespace
}  // namespace aplib::os
