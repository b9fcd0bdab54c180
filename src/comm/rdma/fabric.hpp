// SPDX-License-Identifier: MIT
// libfabric, loaded when the first one asks for it: it brings a dozen libraries along, some of which look for
// devices as they are loaded, and hosts without it can do without the module. All but these functions are called
// through tables in its own objects, and need no library.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/os/bell.hpp"
#include "base/os/descriptor.hpp"
#include "comm/kind.hpp"

namespace aplib::comm::rdma {

struct FabricLibrary {
  decltype(&fi_getinfo) getinfo = nullptr;
  decltype(&fi_freeinfo) freeinfo = nullptr;
  decltype(&fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
  decltype(&fi_strerror) strerror = nullptr;
  decltype(&fi_version) version = nullptr;
  std::string why;  ///< It is not there, for people; then the functions are null.
};

/// Any thread; the first call loads, and takes milliseconds.
[[nodiscard]] const FabricLibrary& fabric_library();

/// Words for one of libfabric's error numbers, of either sign.
[[nodiscard]] std::string fabric_words(long error);

// Which of libfabric's providers carries the frames.

struct InfoEnd {
  void operator()(fi_info* info) const noexcept { fabric_library().freeinfo(info); }
};
using ProviderInfo = std::unique_ptr<fi_info, InfoEnd>;

/// A provider, or why there is none.
struct ProviderChoice {
  ProviderInfo info;
  std::string why;  ///< For people, when `info` is null.
};

/// The provider that `settings` name, or the best one with hardware. Looks at the host's devices each time, which
/// takes milliseconds.
[[nodiscard]] ProviderChoice choose_provider(const PortSettings& settings);

/// Whether its addresses are those of IP: they say themselves where they can be reached.
[[nodiscard]] bool speaks_ip(const fi_info& info) noexcept;

/// Whether it joins processes of one host alone, through shared memory.
[[nodiscard]] bool stays_on_host(const fi_info& info) noexcept;

// Fabric: one open endpoint of libfabric, with all that belongs to it.

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
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

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

  /// The provider does nothing with our memory any more; the endpoint is gone, or nobody calls it. `reads`: some of
  /// ours are under way.
  void end(bool reads) noexcept;

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
  bool stays_open_ = false;  // Until the process ends.
};

/// Throws Error(failed): "rdma: provider verbs: fi_domain: no such device".
[[noreturn]] void fabric_failed(const fi_info& info, const char* call, int error);

// Sleep: what the threads of an rdma module sleep on: the provider's descriptors and a bell, as one descriptor.

/// Thread safety: any thread.
class Sleep {
 public:
  /// Once, before the rest. Throws Error(failed).
  void open(std::span<const int> descriptors);
  /// Readable when one of them is, or the bell rings.
  [[nodiscard]] int descriptor() const noexcept { return all_.get(); }

  /// Counts the caller among the sleepers, until disarm().
  void arm() noexcept { bell_.begin(); }
  void disarm() noexcept { bell_.end(); }
  /// Ends the sleep of all who are armed. Any thread.
  void ring() noexcept {
    if (bell_.anyone()) bell_.ring();
  }
  /// The same, or ends the next sleep if nobody is armed. Async-signal-safe.
  void call() noexcept { bell_.ring(); }
  /// The descriptor becomes readable after that time at the latest, or not by time. May do so earlier. Under the
  /// module's lock.
  void set_timer(std::optional<std::chrono::nanoseconds> time) noexcept;
  /// Between arm() and disarm().
  void sleep(std::optional<std::chrono::nanoseconds> timeout) const noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  os::UniqueFd all_;
  os::UniqueFd timer_;
  std::optional<Clock::time_point> timer_set_;
  os::Bell bell_;
};

}  // namespace aplib::comm::rdma
