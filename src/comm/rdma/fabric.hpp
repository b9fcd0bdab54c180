// SPDX-License-Identifier: MIT
// Fabric: one open endpoint of libfabric, with all that belongs to it.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/rdma/provider.hpp"

namespace aplib::comm {

template <class T>
struct FidEnd {
  void operator()(T* object) const noexcept { fi_close(&object->fid); }
};
template <class T>
using Fid = std::unique_ptr<T, FidEnd<T>>;

/// Thread safety: none; the owner's lock orders all calls (FI_THREAD_DOMAIN).
class Fabric {
 public:
  /// Opens and enables. Throws Error(failed).
  explicit Fabric(ProviderInfo chosen);

  [[nodiscard]] const fi_info& info() const noexcept { return *info_; }
  /// Where others reach it: the provider's own bytes.
  [[nodiscard]] std::vector<std::byte> name() const;
  /// Throws Error.
  [[nodiscard]] fi_addr_t insert(std::span<const std::byte> name);

  [[nodiscard]] bool needs(std::uint64_t mr_mode) const noexcept {
    return (static_cast<std::uint64_t>(info_->domain_attr->mr_mode) & mr_mode) != 0;
  }
  /// Registers memory. Null: not possible, and `error` says why.
  [[nodiscard]] Fid<fid_mr> enroll(std::span<const std::byte> memory, std::uint64_t access, int& error) noexcept;

  [[nodiscard]] fid_ep* endpoint() const noexcept { return endpoint_.get(); }
  [[nodiscard]] fid_cq* received() const noexcept { return received_.get(); }
  [[nodiscard]] fid_cq* sent() const noexcept { return sent_.get(); }

  /// What becomes readable when something is completed; none: this provider cannot tell.
  [[nodiscard]] const std::vector<int>& descriptors() const noexcept { return descriptors_; }
  /// Nothing is there, and the descriptors will tell. Only with descriptors.
  [[nodiscard]] bool may_sleep() noexcept;

  /// The endpoint is gone, and with it whatever the provider still did with our memory.
  void end() noexcept;

 private:
  void open_queue(Fid<fid_cq>& queue, fi_cq_format format, std::size_t size);

  ProviderInfo info_;
  Fid<fid_fabric> fabric_;
  Fid<fid_domain> domain_;
  Fid<fid_av> addresses_;
  Fid<fid_cq> received_;
  Fid<fid_cq> sent_;
  Fid<fid_ep> endpoint_;
  std::vector<int> descriptors_;
  bool waits_ = true;
};

/// Throws Error(failed): "rdma: provider verbs: fi_domain: no such device".
[[noreturn]] void fabric_failed(const fi_info& info, const char* call, int error);

}  // namespace aplib::comm
