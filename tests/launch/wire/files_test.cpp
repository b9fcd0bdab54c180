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

std::span<const std::byte> view_of(const std::string& text) { return std::as_bytes(std::span(text)); }

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
  const Folder folder;
  const std::string text = "program";
  const wire::FileRef file{"/far/away/prog", wire::identify_file(folder.write("prog", text))};
  std::string path;
  std::string place;
  {
    wire::StagedFiles staged;
    EXPECT_TRUE(staged.folder().empty());
    staged.begin(file);
    staged.write(view_of(text.substr(0, 3)));
    staged.write(view_of(text.substr(3)));
    path = staged.finish();
    place = staged.folder();
    struct stat status {};
    ASSERT_EQ(::stat(place.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700U);
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700U);
    EXPECT_EQ(std::filesystem::path(path).filename(), "prog");
  }
  EXPECT_FALSE(std::filesystem::exists(place));
}

TEST(StagedFiles, RefuseWhatIsNotWhatWasAnnounced) {
  const Folder folder;
  const wire::FileRef file{"/far/prog", wire::identify_file(folder.write("prog", "program"))};
  wire::StagedFiles staged;
  staged.begin(file);
  staged.write(view_of("progrom"));
  try {
    static_cast<void>(staged.finish());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/far/prog was changed while it was sent"), std::string::npos);
  }
}

TEST(StagedFiles, NamesFromElsewhereLeadNowhere) {
  const Folder folder;
  wire::StagedFiles staged;
  for (const char* name : {"/a/..", "..", "", "/"}) {
    staged.begin({name, wire::identify_file(folder.write("empty", ""))});
    EXPECT_EQ(std::filesystem::path(staged.finish()).parent_path(), staged.folder()) << name;
  }
}

TEST(StagedFiles, OneOfTheSameNameLeavesTheOtherAsItIs) {
  const Folder folder;
  const auto stage = [&](wire::StagedFiles& staged, const std::string& text) {
    staged.begin({"/far/prog", wire::identify_file(folder.write("prog", text))});
    staged.write(view_of(text));
    return staged.finish();
  };
  wire::StagedFiles staged;
  const std::string first = stage(staged, "a program that cells run");
  const std::string second = stage(staged, "another");
  EXPECT_NE(first, second);
  EXPECT_EQ(folder.read(first), "a program that cells run");
  EXPECT_EQ(folder.read(second), "another");
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
    staged.begin({"/far/prog", {"", 0, 1}});
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
    staged.begin({"/far/prog", {"", 0, 1}});
    staged.write(view_of("half of i"));
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

TEST(FileServer, GivesWhatItOffersPieceByPieceAndNothingElse) {
  const Folder folder;
  std::string text(3 * wire::file_piece_bytes / 2, 'x');
  text.back() = 'y';
  const auto files = wire::describe_files({folder.write("prog", text)});
  wire::FileServer server;
  server.offer(files);
  std::string got;
  wire::Bytes buffer;
  for (bool last = false; !last;) {
    const wire::FilePiece piece = server.answer({files[0].path, got.size()}, buffer);
    ASSERT_EQ(piece.problem, "");
    got.append(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
    last = piece.last;
  }
  EXPECT_EQ(got, text);
  EXPECT_NE(server.answer({"/etc/passwd", 0}, buffer).problem, "");
  std::filesystem::remove(files[0].path);
  EXPECT_NE(server.answer({files[0].path, 0}, buffer).problem.find("No such file"), std::string::npos);
}

}  // namespace
}  // namespace aplib::launch
