// SPDX-License-Identifier: MIT
// Options and other texts of people and peers. An input has lines: "name=value" is an option; what follows "@" goes to
// the readers of addresses, ports, endpoints and signatures. An option that is taken prints as a text that is taken
// again, for the same; one that is not has one message that names it.
#include <algorithm>

#include "aplib/error.hpp"
#include "aplib/options.hpp"
#include "calls/idl.hpp"
#include "comm/mixed/mixed_port.hpp"
#include "comm/tcp/address.hpp"
#include "fuzzer.hpp"
#include "launch/wire/endpoint.hpp"

namespace aplib::fuzz {
namespace {

void set_option(Options& options, std::string_view name, std::string_view value) {
  try {
    options.set(name, value);
  } catch (const Error& error) {
    promise(error.code() == Errc::bad_option, "what is wrong with an option is an error of the option");
    const bool plain = std::ranges::all_of(name, [](char c) { return c > ' ' && c <= '~' && c != '\\' && c != '"'; });
    promise(!plain || std::string_view(error.what()).find(name) != std::string_view::npos,
            "the message names the option");
    return;
  }
  const std::string text = options.get(name);
  Options again;
  try {
    again.set(name, text);
  } catch (const Error& error) {
    broken(std::string("an option does not take what it prints: ") + error.what());
  }
  if (again.get(name) != text)
    broken("option " + std::string(name) + " set to \"" + text + "\" prints \"" + again.get(name) + "\"");
  options.check();
}

void read_text(const std::string& text) {
  if (const auto endpoint = launch::wire::parse_endpoint(text)) {
    const auto again = launch::wire::parse_endpoint(launch::wire::endpoint_text(endpoint->host, endpoint->port));
    promise(again && again->host == endpoint->host && again->port == endpoint->port,
            "endpoints print as they are read");
  }
  (void)launch::wire::is_numeric_address(text);
  for (const std::string& part : launch::wire::split_list(text)) promise(!part.empty(), "parts are not empty");
  (void)launch::wire::address_of(text);
  const auto endpoints = comm::mixed::split_endpoints(text);
  promise(comm::mixed::split_endpoints(comm::mixed::join_endpoints(endpoints)).size() == endpoints.size(),
          "endpoints of modules join as they were split");
  try {
    const auto ports = comm::tcp::PortRange::parse(text);
    promise(ports.first <= ports.last && ports.last <= 65535, "a range of ports is one");
  } catch (const Error& error) {
    promise(error.code() == Errc::bad_option, "what is wrong with ports is an error of the option");
  }
  try {
    const std::string printed = calls::print_signature(calls::read_signature(text));
    promise(calls::print_signature(calls::read_signature(printed)) == printed, "signatures print as they are read");
  } catch (const Error& error) {
    promise(error.code() == Errc::bad_option, "what is wrong with a signature is an error of the option");
  }
}

}  // namespace

std::vector<Input> seeds() {
  std::vector<Input> all;
  std::string lines;
  for (const OptionInfo& info : option_table()) {
    const std::string line = std::string(info.name) + "=" + Options().get(info.name) + "\n";
    all.push_back(input_of(line));
    lines += line;
  }
  all.push_back(input_of(lines));
  for (const char* text :
       {"cells=4x2\nthreads=per-cell\nstack-size=64k\npoll-time=5us\nbind=off\n",
        "ports=5100-5120\npeer-timeout=1.5s\n", "private-libraries=liba.so,libb.so*\nsend-limit=1g\nlog-level=debug\n",
        "@10.0.0.1:5100\n@[fe80::1%eth0]:80\n", "@shm=4f1c;tcp=10.0.0.1:5100;rdma=x\n@5100-5120\n@0-0\n",
        "@solve(int, unsigned long long)->double\n@f\n",
        "@f(char const*,const char*,uint8_t,long int,bool,size_t)->void\n", "cells=16384x1\ncells=9999999999x2\n"})
    all.push_back(input_of(text));
  return all;
}

}  // namespace aplib::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  aplib::Options options;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::size_t equals = line.find('=');
    if (line.starts_with('@')) {
      aplib::fuzz::read_text(std::string(line.substr(1)));
    } else if (equals != line.npos) {
      aplib::fuzz::set_option(options, line.substr(0, equals), line.substr(equals + 1));
    }
  }
  return 0;
}
