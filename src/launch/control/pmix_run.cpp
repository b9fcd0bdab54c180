// SPDX-License-Identifier: MIT
#include "launch/control/pmix_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "aplib/error.hpp"
#include "launch/control/endpoint.hpp"
#include "launch/control/node.hpp"

namespace aplib::launch {
namespace {

// What the launcher puts on the board.
constexpr const char* endpoints_name = "aplib.endpoints";
constexpr const char* key_name = "aplib.key";
constexpr const char* secure_name = "aplib.secure";
constexpr const char* timeout_name = "aplib.peer-timeout";

}  // namespace

std::optional<PmixRun> PmixRun::find() {
  if (!Pmix::launched_us()) return std::nullopt;
  auto pmix = std::make_unique<Pmix>();
  if (pmix->size() == 1) return std::nullopt;
  return PmixRun(std::move(pmix));
}

int PmixRun::run_node() {
  pmix_->fence();
  const auto endpoints = pmix_->get(0, endpoints_name);
  if (!endpoints || endpoints->empty()) return 0;  // the launcher has said why there is no machine
  const auto key = comm::JobKey::from_hex(pmix_->get(0, key_name).value_or(std::string()));
  if (!key) throw Error(Errc::failed, "no key came from process 0: are all installations of APlib the same?");
  Options options;
  options.set("secure", pmix_->get(0, secure_name).value_or("auth"));
  options.set("peer-timeout", pmix_->get(0, timeout_name).value_or("10s"));
  return launch::run_node(
      {split_list(*endpoints), pmix_->rank(), comm::secure_from(options.secure), options.peer_timeout}, *key, false);
}

void PmixRun::take_hosts(Cluster& cluster) const {
  const std::uint32_t size = pmix_->size();
  if (cluster.hosts.empty() || (cluster.hosts.size() == 1 && cluster.hosts.front().line == 0)) {
    cluster.hosts.clear();
    std::map<std::string, int> seen;
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      ClusterHost host = cluster.defaults;
      host.name = pmix_->host(rank);
      if (host.name.empty()) host.name = "host";
      // Several on one computer need names of their own.
      if (const int count = ++seen[host.name]; count > 1) host.name += fmt::format("-{}", count);
      cluster.hosts.push_back(std::move(host));
    }
  }
  if (cluster.hosts.size() != size) {
    throw Error(Errc::bad_option,
                fmt::format("{}: it names {} hosts, and another launcher has started {} processes: use "
                            "mpirun -np {}, or leave [[host]] out",
                            cluster.file, cluster.hosts.size(), size, cluster.hosts.size()));
  }
  const auto other =
      std::ranges::find_if(cluster.hosts, [](const ClusterHost& host) { return host.launch != LaunchKind::pmix; });
  if (other != cluster.hosts.end()) {
    throw Error(Errc::bad_option,
                fmt::format("{}: host {}: another launcher (mpirun, srun) has started {} processes of "
                            "aprun: write launch = \"pmix\", or start aprun once",
                            cluster.file, other->name, size));
  }
  cluster.hosts.front().launch = LaunchKind::local;  // beside the launcher
}

void PmixRun::invite(const Coordinator::Invitation& invitation, const Options& options) {
  pmix_->put(endpoints_name, fmt::format("{}", fmt::join(invitation.endpoints, ",")));
  pmix_->put(key_name, invitation.key);
  pmix_->put(secure_name, options.secure);
  pmix_->put(timeout_name, options.get("peer-timeout"));
  told_ = true;
  pmix_->fence();
}

void PmixRun::call_off() noexcept {
  if (std::exchange(told_, true)) return;
  try {
    pmix_->put(endpoints_name, "");
    pmix_->fence();
  } catch (const std::exception&) {  // their launcher ends them with us
  }
}

}  // namespace aplib::launch
