// SPDX-License-Identifier: MIT
// Trees that travel from folder to folder: whatever is in them, arrives as it was, or is refused in words.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <chrono>

#include "checks.hpp"
#include "process.hpp"
#include "transfer.hpp"

namespace aplib::test {
namespace {

using testing_support::contains;
using testing_support::scaled;

class Transfer : public ::testing::Test {
 protected:
  [[nodiscard]] fs::path from() const { return folder_ / "from"; }
  [[nodiscard]] fs::path to() const { return folder_ / "to"; }
  [[nodiscard]] files::Manifest tree() const { return files::gather({{from(), "tree"}}, "a"); }
  [[nodiscard]] How how() const { return {.receiver = {.folder = to(), .host = "b"}}; }
  /// Sends the tree, which arrives.
  Transferred send(How how) {
    Transferred done = transfer(tree(), how);
    EXPECT_TRUE(done.receiver.good()) << fmt::format("{}", fmt::join(done.receiver.problems, "\n"));
    EXPECT_TRUE(done.sender.good());
    return done;
  }
  Transferred send() { return send(how()); }
  static std::string problems(const Transferred& done) {
    return fmt::format("{}", fmt::join(done.receiver.problems, "\n"));
  }

  Folder folder_;
};

/// A tree of some hundred entries, with everything that a tree may have.
void make_tree(const fs::path& root, std::mt19937_64& random) {
  std::vector<fs::path> folders{root};
  fs::create_directories(root);
  const std::vector<std::string> names{"a", "line\nbreak", "not \xff utf", "-rf", ".hidden", "blank name", "*", "ö"};
  for (int i = 0; i < 150; ++i) {
    const fs::path path = folders[random() % folders.size()] / (names[random() % names.size()] + std::to_string(i));
    switch (random() % 6) {
      case 0:
        fs::create_directory(path);
        folders.push_back(path);
        break;
      case 1:
        fs::create_symlink(random() % 2 == 0 ? "../elsewhere" : "/etc/passwd", path);
        break;
      case 2:
        write_file(path, "");
        break;
      case 3: {  // with a hole in it, and one at the end
        write_file(path, random_text(random, 1 + random() % 5000));
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(200'000);
        file << random_text(random, 1 + random() % 5000);
        file.close();
        fs::resize_file(path, 400'000 + random() % 1000);
        break;
      }
      default:
        write_file(path, random_text(random, random() % (random() % 10 == 0 ? 300'000 : 4000)));
    }
    if (fs::is_symlink(path)) continue;
    ::chmod(path.c_str(), fs::is_directory(path) ? 0700 + random() % 0100 : 0400 + random() % 0400);
    const timespec times[2]{{1'000'000, 0}, {static_cast<time_t>(random() % 2'000'000'000), 123'456'789}};
    if (!fs::is_directory(path)) ::utimensat(AT_FDCWD, path.c_str(), times, 0);
  }
}

class Trees : public Transfer, public ::testing::WithParamInterface<unsigned> {};

TEST_P(Trees, ArriveAsTheyWere) {
  std::mt19937_64 random(GetParam());
  make_tree(from(), random);
  How how = this->how();
  how.random = &random;
  how.sender.window = (4 + random() % 8) * files::chunk_bytes;
  how.sender.pushes = random() % 3 == 0;
  how.receiver.resume = random() % 2 == 0;
  const Transferred done = send(how);
  EXPECT_EQ(differences(from(), to() / "tree"), "");
  EXPECT_LE(done.under_way, how.sender.window);
  EXPECT_EQ(std::distance(fs::directory_iterator(to()), {}), 1) << "something else was left";
  how.sender.pushes = false;
  const Transferred again = send(how);
  EXPECT_EQ(again.receiver.placed, 0U);
  EXPECT_LT(again.bytes, 60'000U) << "what was there was sent again";
  EXPECT_EQ(differences(from(), to() / "tree"), "");
}

INSTANTIATE_TEST_SUITE_P(Seeds, Trees, ::testing::Range(1U, static_cast<unsigned>(scaled(6, 6)) + 1));

TEST_F(Transfer, HolesTakeNoRoomWhereTheyArrive) {
  write_file(from() / "sparse", "begin");
  fs::resize_file(from() / "sparse", std::uintmax_t{200} << 20);
  const Transferred done = send();
  struct stat status {};
  ASSERT_EQ(::stat((to() / "tree/sparse").c_str(), &status), 0);
  EXPECT_EQ(status.st_size, off_t{200} << 20);
  EXPECT_LT(status.st_blocks * 512, 1 << 20);
  EXPECT_LT(done.bytes, 100'000U);
}

TEST_F(Transfer, ManySmallFilesArePacked) {
  const std::uint64_t count = scaled(20'000, 50);
  for (std::uint64_t i = 0; i < count; ++i)
    write_file(from() / std::to_string(i % 100) / std::to_string(i), std::to_string(i));
  const Transferred done = send();
  EXPECT_EQ(done.receiver.placed, count + 101);
  EXPECT_LT(done.bytes, count * 250);
  for (const std::uint64_t i : {std::uint64_t{0}, count / 2, count - 1})
    EXPECT_EQ(read_file(to() / "tree" / std::to_string(i % 100) / std::to_string(i)), std::to_string(i));
}

TEST_F(Transfer, WhatIsThereAndDiffersStaysAndIsNamed) {
  write_file(from() / "same", "text");
  write_file(from() / "other", "new!");
  write_file(from() / "longer", "new and longer");
  write_file(to() / "tree/same", "text");
  write_file(to() / "tree/other", "old!");
  write_file(to() / "tree/longer", "old");
  const Transferred done = transfer(tree(), how());
  EXPECT_EQ(done.receiver.problems.size(), 2U) << problems(done);
  EXPECT_TRUE(contains(problems(done), "tree/other is there and differs; remove it"));
  EXPECT_TRUE(contains(problems(done), "tree/longer is there and differs; remove it"));
  EXPECT_EQ(done.sender.problems, done.receiver.problems);
  EXPECT_EQ(done.receiver.kept, 1U);
  EXPECT_EQ(read_file(to() / "tree/other"), "old!");
  How replaces = how();
  replaces.receiver.existing = files::Existing::replace;
  send(replaces);
  EXPECT_EQ(read_file(to() / "tree/other"), "new!");
  EXPECT_EQ(read_file(to() / "tree/longer"), "new and longer");
}

TEST_F(Transfer, FilesBeyondTheLimitOnTheirSizeAreNamedAndOthersCome) {
  write_file(from() / "large", std::string(100'000, 'x'));
  write_file(from() / "small", "text");
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit little{.rlim_cur = 50'000, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  const Transferred done = transfer(tree(), how());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_EQ(done.receiver.problems.size(), 1U) << problems(done);
  EXPECT_TRUE(contains(problems(done), "cannot write tree/large: File too large; raise")) << problems(done);
  EXPECT_EQ(read_file(to() / "tree/small"), "text");
}

TEST_F(Transfer, TheSameFileIsLeftAlone) {
  write_file(from() / "file", "text");
  How same = how();
  same.receiver.folder = from().parent_path();
  same.receiver.host = "a";
  same.receiver.existing = files::Existing::replace;
  const auto before = tree_of(from());
  const Transferred done = transfer(files::gather({{from(), "from"}}, "a"), same);
  EXPECT_TRUE(done.receiver.good());
  EXPECT_EQ(done.receiver.placed, 0U);
  EXPECT_EQ(tree_of(from()), before);
}

TEST_F(Transfer, LinksLeadNobodyOutside) {
  write_file(from() / "sub/file", "text");
  fs::create_directories(to() / "tree");
  fs::create_directories(folder_ / "outside");
  fs::create_directory_symlink(folder_ / "outside", to() / "tree/sub");
  const Transferred done = transfer(tree(), how());
  EXPECT_TRUE(contains(problems(done), "symbolic link, which is not followed")) << problems(done);
  EXPECT_TRUE(fs::is_empty(folder_ / "outside"));
}

TEST_F(Transfer, WhatIsNoFileIsRefusedByName) {
  write_file(from() / "file", "text");
  ASSERT_EQ(::mkfifo((from() / "pipe\nline").c_str(), 0600), 0);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string name = from() / "socket";
  ASSERT_LT(name.size(), sizeof address.sun_path);
  std::ranges::copy(name, address.sun_path);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::close(socket);
  const Transferred done = transfer(tree(), how());
  EXPECT_TRUE(contains(problems(done), "pipe\\nline' is a named pipe, which cannot be carried: leave it out"))
      << problems(done);
  EXPECT_TRUE(contains(problems(done), "socket is a socket, which cannot be carried"));
  EXPECT_EQ(read_file(to() / "tree/file"), "text");
}

TEST_F(Transfer, SourcesThatCannotBeSentAreNamed) {
  fs::create_directories(from());
  fs::create_symlink("loop", from() / "loop");
  write_file(from() / "one/x", "1");
  write_file(from() / "two/x", "2");
  const auto problem = [](const std::vector<files::Source>& sources) {
    return fmt::format("{}", fmt::join(files::gather(sources, "a").problems, "\n"));
  };
  EXPECT_TRUE(contains(problem({{from() / "loop", "loop"}}), "Too many levels of symbolic links"));
  EXPECT_TRUE(contains(problem({{from() / "nothing", "x"}}), "nothing: No such file"));
  EXPECT_TRUE(contains(problem({{from() / "one/x", "x"}, {from() / "two/x", "x"}}), "another file goes to x, too"));
  for (const char* target : {"", "/x", "../x", "a/../x", "a//x", ".", "a/."})
    EXPECT_TRUE(contains(problem({{from() / "one/x", target}}), "no place in the receiver's folder")) << target;
}

/// A file of some megabytes that changes when half of it is on its way.
class Changing : public Transfer {
 protected:
  void make() { write_file(from() / "big", std::string(4'000'000, 'a')); }
  How change_after(std::vector<std::uint64_t> when) {
    How how = this->how();
    how.sender.window = 4 * files::chunk_bytes;
    how.between = [this, when = std::move(when), next = std::size_t{0}](std::uint64_t bytes) mutable {
      if (next == when.size() || bytes < when[next]) return;
      ++next;
      std::fstream file(from() / "big", std::ios::in | std::ios::out | std::ios::binary);
      file << std::string(4'000'000, static_cast<char>('a' + next));
      file.close();
      const timespec times[2]{{0, UTIME_OMIT}, {static_cast<time_t>(1'000'000 + next), 0}};
      ::utimensat(AT_FDCWD, (from() / "big").c_str(), times, 0);
    };
    return how;
  }
};

TEST_F(Changing, OnceItIsSentAgain) {
  make();
  send(change_after({2'000'000}));
  EXPECT_EQ(read_file(to() / "tree/big"), std::string(4'000'000, 'b'));
}

TEST_F(Changing, TwiceItIsNamedAndNothingArrives) {
  make();
  const Transferred done = transfer(tree(), change_after({2'000'000, 4'500'000}));
  EXPECT_TRUE(contains(problems(done), "big changes while it is sent")) << problems(done);
  EXPECT_TRUE(fs::is_empty(to() / "tree"));
}

TEST_F(Changing, AFileThatIsGoneIsNamed) {
  make();
  How how = this->how();
  how.between = [this](std::uint64_t bytes) {
    if (bytes != 0) fs::remove(from() / "big");
  };
  const Transferred done = transfer(tree(), how);
  EXPECT_TRUE(contains(problems(done), "big: No such file or directory")) << problems(done);
}

TEST_F(Transfer, WhatWasCutOffGoesOnWhereItWas) {
  std::mt19937_64 random(7);
  write_file(from() / "big", random_text(random, 6'000'000));
  How how = this->how();
  how.receiver.resume = true;
  how.sender.window = 4 * files::chunk_bytes;
  how.cut_off = 4'000'000;
  EXPECT_FALSE(transfer(tree(), how).ended);
  EXPECT_FALSE(fs::exists(to() / "tree/big"));
  EXPECT_TRUE(fs::exists(to() / "tree/.big.aplib-part"));
  how.cut_off = ~std::uint64_t{0};
  const Transferred done = send(how);
  EXPECT_LT(done.bytes, 2'500'000U);
  EXPECT_EQ(differences(from(), to() / "tree"), "");
}

TEST_F(Transfer, AFolderSaysWhetherItHasAnythingOfIt) {
  const std::string name(250, 'n');
  for (const char* const file : {"one", "deep/two"}) write_file(from() / "tree" / file, "x");
  write_file(from() / name, "x");
  const auto is_new = [&](const char* source) {
    const files::Manifest manifest = files::gather({{(from() / source).string(), source}}, "");
    const auto names = files::names_in(to().string());
    return names && files::all_are_new(manifest, *names);
  };
  fs::remove_all(to());
  EXPECT_TRUE(is_new("tree"));
  write_file(to() / "other", "x");
  EXPECT_TRUE(is_new("tree"));
  fs::create_directory(to() / "tree");
  EXPECT_FALSE(is_new("tree"));
  EXPECT_TRUE(is_new(name.c_str()));
  // As much of it as was there.
  files::Target target(to().string());
  const files::Part left = target.begin(name, true, 0);
  EXPECT_FALSE(is_new(name.c_str()));
  for (int i = 0; i < 1000; ++i) write_file(to() / fmt::format("many{}", i), "x");
  EXPECT_FALSE(files::names_in(to().string()));
}

TEST_F(Transfer, WhatWasCutOffAndDiffersBeginsAnew) {
  std::mt19937_64 random(7);
  write_file(from() / "big", random_text(random, 6'000'000));
  How how = this->how();
  how.receiver.resume = true;
  write_file(to() / "tree/.big.aplib-part", random_text(random, 2'000'000));
  send(how);
  fs::last_write_time(to() / "tree", fs::last_write_time(from()));
  EXPECT_EQ(read_file(from() / "big"), read_file(to() / "tree/big"));
  EXPECT_FALSE(fs::exists(to() / "tree/.big.aplib-part"));
}

TEST_F(Transfer, FoldersOfWhatWasCutOffAreOpenToThoseToWhomTheyWillBe) {
  write_file(from() / "sub/big", std::string(6'000'000, 'x'));
  ::chmod((from() / "sub").c_str(), 0575);
  How how = this->how();
  how.sender.window = 4 * files::chunk_bytes;
  how.cut_off = 4'000'000;
  EXPECT_FALSE(transfer(tree(), how).ended);
  EXPECT_EQ(fs::status(to() / "tree/sub").permissions(), static_cast<fs::perms>(0775));
  EXPECT_EQ(fs::status(to() / "tree").permissions(), fs::status(from()).permissions());
  ::chmod((from() / "sub").c_str(), 0775);
  how.cut_off = ~std::uint64_t{0};
  send(how);
  EXPECT_EQ(fs::status(to() / "tree/sub").permissions(), static_cast<fs::perms>(0775));
}

TEST_F(Transfer, WhatWasCutOffLeavesNothingOtherwise) {
  write_file(from() / "big", std::string(6'000'000, 'x'));
  How how = this->how();
  how.sender.window = 4 * files::chunk_bytes;
  how.cut_off = 4'000'000;
  EXPECT_FALSE(transfer(tree(), how).ended);
  EXPECT_TRUE(fs::is_empty(to() / "tree"));
}

TEST_F(Transfer, AFullDiskIsToldBeforeAnythingIsWritten) {
  write_file(from() / "big", std::string(3'000'000, 'x'));
  fs::create_directories(to());
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", to().c_str(), "tmpfs", 0, "size=2m") != 0)
      ::_exit(77);
    const Transferred done = transfer(tree(), how());
    const bool told =
        contains(problems(done), "No space left on device: 3.0 MB are to come, and 2.1 MB are free there");
    const bool nothing = !fs::exists(to() / "tree") && done.bytes < 10'000;
    // A sender that does not say what it has meets the disk itself.
    files::Manifest manifest = tree();
    for (files::Entry& entry : manifest.entries) entry.stored = 0;
    const Transferred full = transfer(std::move(manifest), how());
    const bool ended = contains(problems(full), "No space left on device; make room there");
    std::fprintf(stderr, "%s\n%s\n", problems(done).c_str(), problems(full).c_str());
    ::_exit(told && nothing && ended && fs::is_empty(to() / "tree") ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "needs namespaces: a small disk is mounted";
  EXPECT_EQ(status, 0);
}

TEST_F(Transfer, AFolderThatMayNotBeWrittenIsNamed) {
  if (::geteuid() == 0) GTEST_SKIP() << "needs a user who is not root: root may write anywhere";
  write_file(from() / "file", "text");
  fs::create_directories(to());
  ::chmod(to().c_str(), 0500);
  const Transferred done = transfer(tree(), how());
  EXPECT_TRUE(contains(problems(done), "Permission denied; choose a folder that this user may write to"));
}

/// Two receivers that write the same file at the same time.
TEST_F(Transfer, TwoThatBringTheSameDoNoHarm) {
  write_file(from() / "file", std::string(1000, 'x'));
  const auto manifest = std::make_shared<files::Manifest>(tree());
  files::Sender senders[2]{{manifest, {}}, {manifest, {}}};
  files::Receiver receivers[2]{files::Receiver(how().receiver), files::Receiver(how().receiver)};
  for (int round = 0; round < 4; ++round) {
    for (int i : {0, 1}) {
      receivers[i].take(senders[i].next());
      senders[i].take(receivers[i].reply());
    }
  }
  for (int i : {0, 1}) {
    EXPECT_TRUE(senders[i].ended() && senders[i].outcome().good());
  }
  EXPECT_EQ(receivers[0].outcome().kept + receivers[1].outcome().kept, 1U);
  EXPECT_EQ(differences(from(), to() / "tree"), "");
}

}  // namespace
}  // namespace aplib::test
