// SPDX-License-Identifier: MIT
// Ports, and the choice of addresses.
#include "comm/tcp/address.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "aplib/error.hpp"
#include "tcp_net.hpp"

namespace aplib::comm::test {
namespace {

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string port_of(const std::string& endpoint) { return endpoint.substr(endpoint.rfind(':') + 1); }

TEST(Listener, TellsWhereItListens) {
  const tcp::Listener any("127.0.0.1", "");
  EXPECT_EQ(any.endpoint().rfind("127.0.0.1:", 0), 0u);
  EXPECT_NE(port_of(any.endpoint()), "0");
  if (!has_ipv6()) return;
  EXPECT_EQ(tcp::Listener("::1", "").endpoint().rfind("[::1]:", 0), 0u);
}

TEST(Listener, TakesAFreePortOfTheRange) {
  // Two adjacent ports of which one is in use. Someone else may use the other one too, so several pairs are tried.
  for (int attempt = 0; attempt < 50; ++attempt) {
    const tcp::Listener first("127.0.0.1", "");
    const unsigned long port = std::stoul(port_of(first.endpoint()));
    if (port == 65535) continue;
    const std::string range = std::to_string(port) + "-" + std::to_string(port + 1);
    try {
      const tcp::Listener second("127.0.0.1", range);
      EXPECT_EQ(port_of(second.endpoint()), std::to_string(port + 1));
      return;
    } catch (const Error&) {
    }
  }
  GTEST_SKIP() << "needs two free ports side by side";
}

TEST(Listener, SaysWhoHoldsTheRange) {
  const tcp::Listener first("127.0.0.1", "");
  const std::string port = port_of(first.endpoint());
  const std::string words = refusal([&] { tcp::Listener("127.0.0.1", port); });
  EXPECT_NE(words.find("127.0.0.1: every port of " + port + " is taken: " + port + " is held by "), std::string::npos)
      << words;
  EXPECT_NE(words.find("process " + std::to_string(::getpid())), std::string::npos) << words;
  EXPECT_NE(words.find("; give more ports (aprun takes one, and each process of a host)"), std::string::npos) << words;
}

TEST(Listener, RefusesWhatIsNoRange) {
  for (const char* text : {"x", "0", "5100-", "5100-5000", "70000", "5100-5120,", "-5"})
    EXPECT_NE(refusal([&] { tcp::Listener("127.0.0.1", text); }).find("not a range of ports"), std::string::npos)
        << text;
}

TEST(Listener, RefusesAddressesOfOthers) {
  EXPECT_NE(refusal([] { tcp::Listener("192.0.2.1", ""); }).find("not an address of this host"), std::string::npos);
  EXPECT_NE(refusal([] { tcp::Listener("ws1", ""); }).find("not an address to listen on"), std::string::npos);
}

TEST(Endpoint, GoesThroughItsText) {
  for (const char* text : {"10.0.0.1:5103", "[::1]:5103", "[fd00::2]:1"}) {
    const auto endpoint = tcp::parse_endpoint(text);
    ASSERT_TRUE(endpoint) << text;
    EXPECT_EQ(tcp::print_endpoint(*endpoint), text);
  }
  for (const char* text : {"", ":1", "10.0.0.1", "10.0.0.1:", "10.0.0.1:70000", "::1:5103", "[10.0.0.1]:1", "ws1:1"})
    EXPECT_FALSE(tcp::parse_endpoint(text)) << text;
}

TEST(Addresses, LoopbackIsListedAndNotUsable) {
  const auto addresses = tcp::host_addresses();
  const auto loopback =
      std::find_if(addresses.begin(), addresses.end(), [](const auto& a) { return a.address == "127.0.0.1"; });
  if (loopback == addresses.end()) GTEST_SKIP() << "needs the address 127.0.0.1";
  EXPECT_FALSE(loopback->usable);
  EXPECT_NE(loopback->reason.find("loopback"), std::string::npos);
  for (const tcp::HostAddress& address : addresses)
    EXPECT_EQ(address.usable, address.reason.empty()) << address.address;
}

TEST(Addresses, BridgesAreNeverChosen) {
  const std::string none = "/nonexistent";
  for (const char* name : {"docker0", "br-12ab", "virbr0", "cni0"}) EXPECT_NE(tcp::interface_objection(name, none), "");
  for (const char* name : {"eth0", "enp3s0", "wlan0", "br0", "ib0"})
    EXPECT_EQ(tcp::interface_objection(name, none), "");
}

TEST(Addresses, PartsOfABridgeAreNeverChosen) {
  const auto place = std::filesystem::temp_directory_path() / ("aplib-class-net-" + std::to_string(::getpid()));
  std::filesystem::create_directories(place / "veth12" / "master");
  std::filesystem::create_directories(place / "veth13");
  EXPECT_EQ(tcp::interface_objection("veth12", place), "part of a bridge or bond");
  EXPECT_EQ(tcp::interface_objection("veth13", place), "");
  std::filesystem::remove_all(place);
}

TEST(Addresses, TowardsAnEndpoint) {
  EXPECT_EQ(tcp::local_address_towards("127.0.0.1:9"), "127.0.0.1");
  EXPECT_NE(refusal([] { (void)tcp::local_address_towards("nonsense"); }), "");
  if (!has_ipv6()) return;
  EXPECT_EQ(tcp::local_address_towards("[::1]:9"), "::1");
}

}  // namespace
}  // namespace aplib::comm::test
