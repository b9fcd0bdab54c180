// SPDX-License-Identifier: MIT
// Endpoint: one of two processes that a provider of libfabric joins in the simplest way: with one polled completion
// queue and one registered piece of memory.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../apbench/buffer.hpp"
#include "../module/wire.hpp"

namespace bench_fabric {

template <class T>
struct Close {
  void operator()(T* object) const noexcept { fi_close(&object->fid); }
};
template <class T>
using Owned = std::unique_ptr<T, Close<T>>;

struct FreeInfo {
  void operator()(fi_info* info) const noexcept { fi_freeinfo(info); }
};

class Endpoint {
 public:
  static constexpr std::size_t arena_bytes = 16U << 20;

  /// Connects to the other end, which does the same. Throws std::runtime_error.
  Endpoint(const std::string& provider, const bench_module::Wire& wire);

  /// A message of 8 B, by inject if the provider has it.
  void send();
  void await_messages(std::uint64_t count);
  /// Writes to, and reads from, the start of the other end's memory.
  void write(std::size_t bytes);
  void read(std::size_t bytes);
  /// Waits for completions of write() and read().
  void await_transfers(std::uint64_t count);

 private:
  struct Target {
    std::uint64_t key = 0;
    std::uint64_t address = 0;
  };
  static constexpr std::size_t message_bytes = 8;
  static constexpr std::size_t receives = 64;

  void poll();
  void post_receive(std::size_t nth);
  /// Repeats an operation while the provider has no room for it.
  template <class Call>
  void retried(const char* what, Call call);

  std::unique_ptr<fi_info, FreeInfo> info_;
  apbench::Buffer arena_{arena_bytes, 1};
  Owned<fid_fabric> fabric_;
  Owned<fid_domain> domain_;
  Owned<fid_av> addresses_;
  Owned<fid_cq> queue_;
  Owned<fid_mr> region_;
  Owned<fid_ep> endpoint_;  // destroyed before what it uses
  std::vector<fi_context2> contexts_{receives + 1};
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  Target target_;
  std::uint64_t messages_ = 0;
  std::uint64_t transfers_ = 0;
};

}  // namespace bench_fabric
