// SPDX-License-Identifier: MIT
// Sending program files to hosts that lack them.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "aplib/error.hpp"
#include "launch/wire/files.hpp"
#include "process.hpp"

namespace aplib::launch {
namespace {

using test::Folder;

TEST(FileIdentity, BuildIdsCountWhereThereAreSome) {
  const Folder folder;
  const std::string one = folder.compile("one", "int cell_main(void) { return 0; }", "-Wl,--build-id=0x1234abcd");
  const std::string same = folder.compile("same", "int cell_main(void) { return 1; }", "-Wl,--build-id=0x1234abcd");
  const std::string other = folder.compile("other", "int cell_main(void) { return 0; }", "-Wl,--build-id=0x1234abce");
  EXPECT_EQ(wire::identify_file(one).build_id, "1234abcd");
  EXPECT_TRUE(wire::identify_file(one).same(wire::identify_file(same)));
  EXPECT_FALSE(wire::identify_file(one).same(wire::identify_file(other)));
  EXPECT_EQ(wire::identity_text(wire::identify_file(one)), "build-id 1234abcd");
}

TEST(FileIdentity, ElseEveryByteCounts) {
  const Folder folder;
  const std::string text(100'000, 'a');
  std::string changed = text;
  changed[77'777] = 'b';
  const wire::FileIdentity a = wire::identify_file(folder.write("a", text));
  EXPECT_TRUE(a.same(wire::identify_file(folder.write("b", text))));
  EXPECT_FALSE(a.same(wire::identify_file(folder.write("c", changed))));
  EXPECT_FALSE(a.same(wire::identify_file(folder.write("d", text + "a"))));
  EXPECT_EQ(wire::identify_file(folder.write("empty", "")).bytes, 0U);
}

TEST(FileIdentity, WhatCannotBeReadIsAnError) {
  const Folder folder;
  EXPECT_THROW(static_cast<void>(wire::identify_file(folder / "nothing")), Error);
  EXPECT_THROW(static_cast<void>(wire::identify_file(folder.path())), Error);
}

/// Files that look like ELF but are not, at every length. None may do harm.
TEST(FileIdentity, DamagedFilesDoNoHarm) {
  const Folder folder;
  std::string bytes = folder.read(std::filesystem::path(folder.compile("one", "int x;")).filename().string());
  bytes.resize(1000);
  for (std::size_t size = 0; size < bytes.size(); size += 13)
    EXPECT_NO_THROW(static_cast<void>(wire::identify_file(folder.write("cut", bytes.substr(0, size)))));
  for (std::size_t at = 16; at < 200; ++at) {
    std::string damaged = bytes;
    damaged[at] = '\xff';
    EXPECT_NO_THROW(static_cast<void>(wire::identify_file(folder.write("damaged", damaged))));
  }
}

TEST(StagedFiles, AreThereForTheOwnerAloneAndGoInTheEnd) {
  std::string place;
  {
    wire::StagedFiles staged;
    EXPECT_TRUE(staged.folder().empty());
    const std::string first = staged.next_folder();
    const std::string second = staged.next_folder();
    EXPECT_NE(first, second);
    place = staged.folder();
    for (const std::string& folder : {place, first, second}) {
      struct stat status {};
      ASSERT_EQ(::stat(folder.c_str(), &status), 0);
      EXPECT_EQ(status.st_mode & 0777, 0700U);
    }
    std::ofstream(second + "/prog") << "program";
  }
  EXPECT_FALSE(std::filesystem::exists(place));
}

TEST(StagedFiles, RefuseWhatIsNotWhatWasAnnounced) {
  const Folder folder;
  const wire::FileRef file{"/far/prog", wire::identify_file(folder.write("prog", "program"))};
  EXPECT_NO_THROW(wire::check_file(folder / "prog", file));
  folder.write("prog", "progrom");
  try {
    wire::check_file(folder / "prog", file);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/far/prog was changed while it was sent"), std::string::npos);
  }
}

TEST(StagedFiles, NamesFromElsewhereLeadNowhere) {
  EXPECT_EQ(wire::names_of({"/a/..", "..", "", "/", "/a/prog", "/b/prog", "prog.2"}),
            (std::vector<std::string>{"program", "program.2", "program.3", "program.4", "prog", "prog.2", "prog.2.2"}));
}

TEST(StagedFiles, AreNotPutWhereNothingMayBeExecuted) {
  const Folder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", folder.path().c_str(), "tmpfs", MS_NOEXEC, nullptr) != 0)
      ::_exit(77);
    ::setenv("TMPDIR", folder.path().c_str(), 1);
    wire::StagedFiles staged;
    static_cast<void>(staged.next_folder());
    const bool elsewhere = !staged.folder().starts_with(folder.path());
    staged.remove();
    ::_exit(elsewhere ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "needs namespaces: a folder is mounted noexec";
  EXPECT_EQ(status, 0) << "it chose a folder that is mounted noexec";
}

TEST(StagedFiles, GoWhenTheProcessIsKilled) {
  const Folder folder;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("TMPDIR", folder.path().c_str(), 1);
    wire::StagedFiles staged;
    std::ofstream(staged.next_folder() + "/prog") << "half of i";
    [[maybe_unused]] const ssize_t written = ::write(ends[1], "x", 1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  EXPECT_FALSE(std::filesystem::is_empty(folder.path()));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  while (!std::filesystem::is_empty(folder.path())) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace aplib::launch
