// SPDX-License-Identifier: MIT
// Any cluster file is read, or refused with one message. Other mutations: APLIB_TEST_SEED=n.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "aplib/error.hpp"
#include "checks.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/cluster/keys.hpp"
#include "launch/cluster/shares.hpp"
#include "whole_cluster.hpp"

namespace aplib::launch {
namespace {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {
    for (const cluster::KeyInfo& key : cluster::cluster_keys()) words_.emplace_back(key.name);
    for (const char* word : {"[machine]\n",
                             "[[host]]\n",
                             "[comm]\n",
                             "[",
                             "]",
                             "{",
                             "}",
                             "=",
                             "\"",
                             "'",
                             "\"\"\"",
                             "'''",
                             "\n",
                             ",",
                             ".",
                             "#",
                             "-",
                             "\\",
                             "\\u0000",
                             "\\uD800",
                             "\xff",
                             "\xf0\x9f\x98\x80",
                             "9223372036854775807",
                             "-1",
                             "1e999",
                             "nan",
                             "inf",
                             "true",
                             "1979-05-27T07:32:00Z",
                             "0x10",
                             "[[[[",
                             "a.b.c",
                             "\"auto\"",
                             "\"command\"",
                             "\"slurm\"",
                             "\"pmix\"",
                             "ws[1-99999]",
                             "\r\n",
                             "\t"}) {
      words_.emplace_back(word);
    }
    words_.emplace_back(std::string(1, '\0'));
  }

  std::string next() {
    std::string text(whole_cluster);
    for (std::size_t changes = 1 + random_() % 6; changes > 0; --changes) change(text);
    return text;
  }

 private:
  std::size_t place(const std::string& text) { return text.empty() ? 0 : random_() % text.size(); }

  void change(std::string& text) {
    const std::size_t at = place(text);
    const std::size_t length = random_() % 20;
    switch (random_() % 6) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, words_[random_() % words_.size()]);
        break;
      case 2:
        text.replace(at, length, words_[random_() % words_.size()]);
        break;
      case 3:
        if (!text.empty()) text[at] = static_cast<char>(random_());
        break;
      case 4:
        text.insert(place(text), text.substr(at, length * 3));
        break;
      default:
        text.resize(at);
    }
  }

  std::mt19937_64 random_;
  std::vector<std::string> words_;
};

void read_any(const std::string& text, int& accepted) {
  try {
    const cluster::Cluster cluster = cluster::parse_cluster(text, "c.toml");
    ++accepted;
    ASSERT_LE(cluster.hosts.size(), cluster::ClusterHost::processes_max);
    for (const cluster::ClusterHost& host : cluster.hosts) {
      ASSERT_FALSE(host.name.empty());
      ASSERT_FALSE(host.name.starts_with('-'));
      ASSERT_FALSE(host.ssh_destination().starts_with('-'));
      ASSERT_EQ(host.name.find_first_of(" \t\n'\"\\$`;|&<>()"), std::string::npos);
    }
    const std::vector<cluster::HostSpeed> speeds(cluster.hosts.size(), {.speed = 1, .threads = 2});
    (void)cluster::share_cells(cluster, speeds);
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), Errc::bad_option);
    ASSERT_TRUE(std::string_view(error.what()).starts_with("c.toml:")) << error.what();
  }
}

TEST(ClusterFile, MutationsAreReadOrRefusedInWords) {
  const std::uint64_t seed = testing_support::test_seed(20240315);
  SCOPED_TRACE("seed " + std::to_string(seed));
  Mutator mutator(seed);
  int accepted = 0;
  constexpr int mutations = 4000;
  read_any(std::string(whole_cluster), accepted);
  ASSERT_EQ(accepted, 1);
  for (int i = 0; i < mutations; ++i) {
    const std::string mutation = mutator.next();
    read_any(mutation, accepted);
    ASSERT_FALSE(HasFatalFailure()) << "mutation " << i << ":\n" << mutation;
  }
  // Many mutations must keep the file valid. Otherwise they hardly test what comes after the syntax.
  EXPECT_GT(accepted, mutations / 50);
}

TEST(ClusterFile, DeepNestingIsRefused) {
  int accepted = 0;
  const auto many = [](std::string_view piece, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += piece;
    return text;
  };
  for (const std::string& text :
       {"x = " + many("[", 4000), "x = " + many("{a=", 1300), many("a.", 2000) + "a = 1",
        "[" + many("a.", 2000) + "a]\n" + many("b.", 2000) + "b = 1", many("[[host]]\n", 5000), many("#", 2000000),
        many("x", 5000), many("a.", 100000) + "a = 1"}) {
    read_any(text, accepted);
    EXPECT_EQ(accepted, 0) << text.substr(0, 20);
  }
  // What is only long is taken.
  read_any(many("\n", 1000000), accepted);
  read_any("[machine]\nargs = [" + many("1,", 2000) + "]", accepted);
  EXPECT_EQ(accepted, 2);
}

}  // namespace
}  // namespace aplib::launch
