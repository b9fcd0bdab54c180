// SPDX-License-Identifier: MIT
#include "shm_net.hpp"

#include <utility>

namespace aplib::comm::test {

ShmNet::ShmNet(std::uint32_t processes, Secure secure) : secure_(secure), modules_(processes) {
  for (std::uint32_t process = 0; process < processes; ++process) {
    own_.push_back(presences_.emplace_back("host of the test").own);
    endpoints_.push_back(own_.back().print());
  }
}

shm::Settings ShmNet::settings(Peer process) {
  return {{.address = {}, .ports = {}, .host = {}, .key = key_, .secure = secure_, .provider = {}},
          {.machine = "machine-of-the-test", .self = process, .endpoints = endpoints_, .names = {}},
          std::move(presences_[process])};
}

std::unique_ptr<Module> ShmNet::module(Peer process) {
  auto made = std::make_unique<shm::ShmModule>(settings(process));
  modules_[process] = made.get();
  return made;
}

bool ShmNet::kill(Peer process) {
  modules_[process]->abandon();
  return true;
}

}  // namespace aplib::comm::test
