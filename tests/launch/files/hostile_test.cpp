// SPDX-License-Identifier: MIT
// Ends of transfers that say what no sound end says. The other one says so, and nothing outside its folder changes.
#include <gtest/gtest.h>

#include <algorithm>

#include "checks.hpp"
#include "process.hpp"
#include "transfer.hpp"

namespace aplib::test {
namespace {

using files::Answer;
using files::Entry;
using files::EntryKind;
using files::FileEnd;
using launch::wire::Bytes;
using testing_support::contains;

constexpr const char* no_sense = "makes no sense";

Entry file_entry(std::string path, std::uint64_t bytes = 4) {
  return {.path = std::move(path), .kind = EntryKind::file, .mode = 04777, .bytes = bytes};
}

template <class... Body>
Bytes stream(const Body&... bodies) {
  Bytes bytes;
  (files::append_frame(bytes, bodies), ...);
  return bytes;
}
Bytes& operator+=(Bytes& to, const Bytes& more) {
  to.insert(to.end(), more.begin(), more.end());
  return to;
}
Bytes data(std::string_view text) {
  Bytes bytes;
  files::append_head(bytes, files::FrameType::data, text.size());
  const auto view = std::as_bytes(std::span(text));
  bytes.insert(bytes.end(), view.begin(), view.end());
  return bytes;
}
Bytes offer(const std::vector<Entry>& entries) {
  return stream(files::Begin{"x", false, 1 << 20}, files::Entries{entries, true});
}
Bytes sum_of(std::string_view text) {
  comm::Sha256 sum;
  sum.add(std::as_bytes(std::span(text)));
  const comm::Digest digest = sum.digest();
  return {digest.begin(), digest.end()};
}

class HostileSender : public ::testing::Test {
 protected:
  std::string problem_of(const Bytes& bytes) {
    files::Receiver receiver({.folder = folder_ / "in"});
    receiver.take(bytes);
    EXPECT_TRUE(receiver.ended());
    return receiver.outcome().good() ? std::string() : receiver.outcome().problems.front();
  }
  void expect_nothing_outside() {
    for (const auto& each : fs::directory_iterator(folder_.path())) EXPECT_EQ(each.path().filename(), "in");
  }
  Folder folder_;
};

TEST_F(HostileSender, PathsThatLeaveTheFolderEndIt) {
  for (const std::string path : {"../x", "/x", "a/../../x", "", ".", "a//b", "a/"})
    EXPECT_TRUE(contains(problem_of(offer({file_entry(path)})), no_sense)) << path;
  EXPECT_TRUE(contains(problem_of(offer({file_entry(std::string("a\0b", 3))})), no_sense));
  EXPECT_TRUE(contains(problem_of(offer({file_entry(std::string(256, 'x'))})), no_sense));
  expect_nothing_outside();
}

TEST_F(HostileSender, ALinkIsNoWayOut) {
  const Bytes bytes = offer({{.path = "link", .kind = EntryKind::link, .link = ".."}, file_entry("link/x")});
  files::Receiver receiver({.folder = folder_ / "in"});
  receiver.take(bytes);
  receiver.take(stream(files::FileBegin{1, 0, 4, 0}));
  receiver.take(data("evil"));
  receiver.take(stream(FileEnd{1, FileEnd::Verdict::good, sum_of("evil")}, files::Done{}));
  EXPECT_TRUE(receiver.ended());
  EXPECT_FALSE(receiver.outcome().good());
  expect_nothing_outside();
}

TEST_F(HostileSender, WhatWasNotOfferedOrAskedForEndsIt) {
  const Bytes offered = offer({file_entry("a"), {.path = "folder", .kind = EntryKind::folder}});
  const auto after = [&](const Bytes& more) {
    Bytes bytes = offered;
    return problem_of(bytes += more);
  };
  EXPECT_TRUE(contains(problem_of(data("x")), no_sense));
  EXPECT_TRUE(contains(problem_of(stream(files::Entries{{}, true})), no_sense));
  EXPECT_TRUE(contains(after(offered), no_sense));
  EXPECT_TRUE(contains(after(data("x")), no_sense));
  EXPECT_TRUE(contains(after(stream(files::FileBegin{2, 0, 4, 0})), no_sense));
  EXPECT_TRUE(contains(after(stream(files::FileBegin{1, 0, 4, 0})), no_sense));
  EXPECT_TRUE(contains(after(stream(files::FileBegin{0, 1, 4, 0})), no_sense));
  EXPECT_TRUE(contains(after(stream(files::FileBegin{0, 0, ~std::uint64_t{0}, 0})), no_sense));
  EXPECT_TRUE(contains(after(stream(files::FileBegin{0, 0, 4, 0}, files::FileBegin{0, 0, 4, 0})), no_sense));
  EXPECT_TRUE(contains(after(stream(files::FileBegin{0, 0, 4, 0}, files::Hole{5})), no_sense));
  EXPECT_TRUE(contains(after(stream(files::FileBegin{0, 0, 1 << 30, 0}, files::Hole{1 << 30})), no_sense));
  EXPECT_TRUE(contains(after(stream(files::FileBegin{0, 0, 4, 0}, files::Done{})), no_sense));
  EXPECT_TRUE(contains(after(stream(FileEnd{0, FileEnd::Verdict::same, {}})), no_sense));
  EXPECT_TRUE(contains(after(stream(FileEnd{0, FileEnd::Verdict::differs, {}})), no_sense));
  EXPECT_TRUE(contains(after(stream(FileEnd{0, FileEnd::Verdict::good, {}})), no_sense));
  EXPECT_TRUE(contains(after(stream(files::Taken{7})), no_sense));
  EXPECT_TRUE(contains(after(stream(files::Done{})), "a did not come"));
  Bytes longer = stream(files::FileBegin{0, 0, 4, 0});
  EXPECT_TRUE(contains(after(longer += data("longer")), no_sense));
  EXPECT_FALSE(fs::exists(folder_ / "in/a"));
}

TEST_F(HostileSender, WhatHasAnotherSumGetsNoName) {
  for (const bool cut : {false, true}) {
    Bytes bytes = offer({file_entry("a")});
    bytes += stream(files::FileBegin{0, 0, 4, 0});
    bytes += data(cut ? "tex" : "tent");
    bytes += stream(FileEnd{0, FileEnd::Verdict::good, sum_of(cut ? "tex" : "text")}, files::Done{});
    EXPECT_TRUE(contains(problem_of(bytes), "a came damaged"));
    EXPECT_TRUE(fs::is_empty(folder_ / "in"));
  }
}

TEST_F(HostileSender, GivesNoRightsButPermissions) {
  Bytes bytes = offer({file_entry("a")});
  bytes += stream(files::FileBegin{0, 0, 4, -1});
  bytes += data("text");
  bytes += stream(FileEnd{0, FileEnd::Verdict::good, sum_of("text")}, files::Done{});
  EXPECT_EQ(problem_of(bytes), "");
  struct stat status {};
  ASSERT_EQ(::stat((folder_ / "in/a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0777U);
  EXPECT_EQ(files::time_of(status), -1);
}

class HostileReceiver : public ::testing::Test {
 protected:
  std::string problem_of(const Bytes& bytes) {
    write_file(folder_ / "a", "text");
    files::Sender sender(
        std::make_shared<files::Manifest>(files::gather({{folder_ / "a", "a"}, {folder_.path(), "all"}}, "x")), {});
    static_cast<void>(sender.next());
    sender.take(bytes);
    for (int i = 0; i < 3; ++i) static_cast<void>(sender.next());
    return sender.ended() && !sender.outcome().good() ? sender.outcome().problems.front() : std::string();
  }
  Folder folder_;
};

TEST_F(HostileReceiver, IsGivenUp) {
  const Answer whole{.kind = Answer::Kind::whole};
  EXPECT_TRUE(contains(problem_of(stream(files::Answers{{whole, whole, whole, whole}})), "answers what nobody asked"));
  EXPECT_TRUE(contains(problem_of(stream(files::Taken{1 << 20})), no_sense));
  EXPECT_TRUE(contains(problem_of(stream(files::Done{})), no_sense));
  EXPECT_TRUE(contains(problem_of(data("x")), no_sense));
  EXPECT_TRUE(contains(problem_of(Bytes(20, std::byte{0xff})), no_sense));
  EXPECT_TRUE(contains(problem_of(stream(files::Finished{})), "does not say why"));
  EXPECT_EQ(problem_of(stream(files::Finished{{.problems = {"no\nb: all is well"}}})), "no\\nb: all is well");
}

TEST_F(HostileReceiver, GetsNoMoreThanWhatWasOffered) {
  const Answer folder{.kind = Answer::Kind::rest, .bytes = ~std::uint64_t{0}, .digest = Bytes(3)};
  EXPECT_EQ(problem_of(stream(files::Answers{{folder, folder, folder}})), "");  // it gets the files from the beginning
}

}  // namespace
}  // namespace aplib::test
