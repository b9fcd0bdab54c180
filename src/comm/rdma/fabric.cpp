// SPDX-License-Identifier: MIT
#include "comm/rdma/fabric.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <poll.h>
#include <rdma/fi_errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/time.hpp"
#include "comm/job_key.hpp"

namespace aplib::comm::rdma {
namespace {

/// libfabric reads these when it is loaded. A user's own values stay.
void prepare_environment() {
  // This module caches registrations itself. libfabric's own cache would replace functions of libc in memory.
  setenv("FI_MR_CACHE_MONITOR", "disabled", 0);
  // ofi_rxm (verbs, tcp) carries packets up to this size in one piece. Its own limit, 16 KiB, is a little less than our
  // largest packet.
  setenv("FI_OFI_RXM_BUFFER_SIZE", "20480", 0);
  // A child of fork() must not get registered pages.
  setenv("RDMAV_FORK_SAFE", "1", 0);
  // Libraries of Omni-Path would print their own report of a crash.
  setenv("HFI_NO_BACKTRACE", "1", 0);
  setenv("IPATH_NO_BACKTRACE", "1", 0);
}

FabricLibrary load() {
  prepare_environment();
  FabricLibrary library;
  void* const file = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) {
    library.why = fmt::format("libfabric is not there: {}; install it (package libfabric1)", dlerror());
    return library;
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(file, name));
    if (function == nullptr) library.why = fmt::format("libfabric.so.1 has no function {}", name);
  };
  find(library.getinfo, "fi_getinfo");
  find(library.freeinfo, "fi_freeinfo");
  find(library.dupinfo, "fi_dupinfo");
  find(library.fabric, "fi_fabric");
  find(library.strerror, "fi_strerror");
  find(library.version, "fi_version");
  return library;  // It stays loaded, because its threads and handlers may be anywhere.
}

}  // namespace

const FabricLibrary& fabric_library() {
  static const FabricLibrary library = load();
  return library;
}

std::string fabric_words(long error) {
  const FabricLibrary& library = fabric_library();
  return library.strerror != nullptr ? library.strerror(static_cast<int>(std::labs(error))) : "no libfabric";
}

namespace {

constexpr std::uint32_t api = FI_VERSION(1, 9);  // The oldest that has everything used here.

// Best first. Other providers are taken only by name: they are no faster than the module tcp, or do not leave the host.
constexpr std::array<std::string_view, 6> with_hardware{"cxi", "verbs", "efa", "opx", "psm3", "psm2"};

/// Where the system lists the devices of these providers. libfabric takes tens or hundreds of milliseconds to find
/// that there are none.
constexpr std::array<const char*, 3> device_folders{"/sys/class/infiniband", "/sys/class/cxi", "/sys/class/hfi1"};

bool any_device() {
  return std::any_of(device_folders.begin(), device_folders.end(), [](const char* folder) {
    std::error_code error;
    const std::filesystem::directory_iterator first(folder, error);
    return !error && first != std::filesystem::directory_iterator();
  });
}

/// "verbs;ofi_rxm" is verbs, too.
bool is_provider(const fi_info& info, std::string_view name) {
  const std::string_view full = info.fabric_attr->prov_name;
  return full == name || (full.starts_with(name) && full.substr(name.size()).starts_with(';'));
}

ProviderInfo hints_for(const PortSettings& settings) {
  ProviderInfo hints(fabric_library().dupinfo(nullptr));
  if (!hints) return hints;
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  if (!settings.provider.empty()) hints->fabric_attr->prov_name = strdup(settings.provider.c_str());
  return hints;
}

}  // namespace

bool speaks_ip(const fi_info& info) noexcept {
  return info.addr_format == FI_SOCKADDR || info.addr_format == FI_SOCKADDR_IN || info.addr_format == FI_SOCKADDR_IN6;
}

bool stays_on_host(const fi_info& info) noexcept { return is_provider(info, "shm"); }

ProviderChoice choose_provider(const PortSettings& settings) {
  if (settings.provider.empty() && !any_device()) {
    return {nullptr,
            "no RDMA device is there; with provider = \"...\" others of libfabric's providers are used, which are "
            "no faster than the module tcp"};
  }
  const FabricLibrary& library = fabric_library();
  if (!library.why.empty()) return {nullptr, library.why};
  const ProviderInfo hints = hints_for(settings);
  if (!hints) return {nullptr, "libfabric has no memory"};
  const auto ask = [&](const char* node) {
    fi_info* found = nullptr;
    const int error = library.getinfo(api, node, nullptr, node != nullptr ? FI_SOURCE : 0, hints.get(), &found);
    return std::pair(ProviderInfo(found), error);
  };
  // The host's address decides between networks. A provider with addresses of another kind does not know it.
  auto [all, error] = ask(settings.address.empty() ? nullptr : settings.address.c_str());
  if (!all && !settings.address.empty()) std::tie(all, error) = ask(nullptr);
  const std::string wanted = settings.provider.empty() ? "an RDMA device" : "provider '" + settings.provider + "'";
  if (!all) {
    return {nullptr, fmt::format("libfabric finds no provider for {}: {}; `fi_info` lists those of this host", wanted,
                                 fabric_words(error))};
  }
  std::string others;
  const fi_info* best = nullptr;
  std::size_t best_rank = with_hardware.size();
  for (const fi_info* info = all.get(); info != nullptr; info = info->next) {
    if (!settings.provider.empty()) {
      if (best == nullptr &&
          (is_provider(*info, settings.provider) || settings.provider == info->fabric_attr->prov_name))
        best = info;
      continue;
    }
    for (std::size_t rank = 0; rank < best_rank; ++rank) {
      if (!is_provider(*info, with_hardware[rank])) continue;
      best = info;
      best_rank = rank;
    }
    const std::string_view name = info->fabric_attr->prov_name;
    if (others.find(name) == std::string::npos) others += (others.empty() ? "" : ", ") + std::string(name);
  }
  if (best != nullptr && !settings.address.empty() && !speaks_ip(*best)) {
    // The provider shm takes the host's address as the endpoint's name, which no two processes can share.
    PortSettings anywhere = settings;
    anywhere.address.clear();
    return choose_provider(anywhere);
  }
  if (best != nullptr) return {ProviderInfo(library.dupinfo(best)), {}};
  if (!settings.provider.empty()) {
    return {nullptr, fmt::format("libfabric finds no provider for {} with reliable datagrams and remote memory; "
                                 "`fi_info` lists those of this host",
                                 wanted)};
  }
  return {nullptr, fmt::format("libfabric finds no provider for {}: there are {}, which are no faster than the module "
                               "tcp; with provider = \"...\" one is used all the same",
                               wanted, others)};
}

namespace {

template <class T, class Open>
Fid<T> opened(const fi_info& info, const char* call, Open&& open) {
  T* made = nullptr;
  if (const int error = open(&made); error != 0) fabric_failed(info, call, error);
  return Fid<T>(made);
}

void check(const fi_info& info, const char* call, int error) {
  if (error != 0) fabric_failed(info, call, error);
}

}  // namespace

void fabric_failed(const fi_info& info, const char* call, int error) {
  const char* remedy = "";
  if (error == -FI_ENOMEM || error == -ENOMEM)
    remedy = "; raise the limit on address space (ulimit -v) or on locked memory (ulimit -l)";
  if (error == -FI_EAGAIN)  // of calls that make something: pthread_create(3) says so
    remedy =
        "; the provider can start no thread: raise the limit on address space (ulimit -v) or on processes (ulimit -u)";
  throw Error(Errc::failed, fmt::format("rdma: provider {}, {}: {}: {}{}", info.fabric_attr->prov_name,
                                        info.domain_attr->name != nullptr ? info.domain_attr->name : "no domain", call,
                                        fabric_words(error), remedy));
}

Fabric::Fabric(ProviderInfo chosen) : info_(std::move(chosen)) {
  fi_info& info = *info_;
  fabric_ = opened<fid_fabric>(
      info, "fi_fabric", [&](fid_fabric** made) { return fabric_library().fabric(info.fabric_attr, made, nullptr); });
  domain_ = opened<fid_domain>(info, "fi_domain",
                               [&](fid_domain** made) { return fi_domain(fabric_.get(), &info, made, nullptr); });
  fi_av_attr by_number{};
  by_number.type = FI_AV_TABLE;
  addresses_ = opened<fid_av>(info, "fi_av_open",
                              [&](fid_av** made) { return fi_av_open(domain_.get(), &by_number, made, nullptr); });
  open_queue(received_, FI_CQ_FORMAT_MSG, info.rx_attr->size);
  open_queue(sent_, FI_CQ_FORMAT_CONTEXT, info.tx_attr->size);
  endpoint_ = opened<fid_ep>(info, "fi_endpoint",
                             [&](fid_ep** made) { return fi_endpoint(domain_.get(), &info, made, nullptr); });
  check(info, "fi_ep_bind", fi_ep_bind(endpoint_.get(), &addresses_->fid, 0));
  check(info, "fi_ep_bind", fi_ep_bind(endpoint_.get(), &received_->fid, FI_RECV));
  check(info, "fi_ep_bind", fi_ep_bind(endpoint_.get(), &sent_->fid, FI_TRANSMIT));
  check(info, "fi_enable", fi_enable(endpoint_.get()));
  for (fid_cq* const queue : {received_.get(), sent_.get()}) {
    int descriptor = -1;
    if (waits_ && fi_control(&queue->fid, FI_GETWAIT, &descriptor) == 0) descriptors_.push_back(descriptor);
  }
  if (descriptors_.size() != 2) descriptors_.clear();
}

void Fabric::open_queue(Fid<fid_cq>& queue, fi_cq_format format, std::size_t size) {
  fi_cq_attr attributes{};
  attributes.size = size;
  attributes.format = format;
  attributes.wait_obj = waits_ ? FI_WAIT_FD : FI_WAIT_NONE;
  fid_cq* made = nullptr;
  int error = fi_cq_open(domain_.get(), &attributes, &made, nullptr);
  if (error != 0 && waits_) {
    // Some providers (shm) have no descriptor on which a thread could sleep.
    waits_ = false;
    attributes.wait_obj = FI_WAIT_NONE;
    error = fi_cq_open(domain_.get(), &attributes, &made, nullptr);
  }
  check(*info_, "fi_cq_open", error);
  queue.reset(made);
}

std::vector<std::byte> Fabric::name() const {
  std::vector<std::byte> bytes(256);
  std::size_t size = bytes.size();
  check(*info_, "fi_getname", fi_getname(&endpoint_->fid, bytes.data(), &size));
  bytes.resize(size);
  return bytes;
}

fi_addr_t Fabric::insert(std::span<const std::byte> name) {
  fi_addr_t address = FI_ADDR_UNSPEC;
  const int inserted = fi_av_insert(addresses_.get(), name.data(), 1, &address, 0, nullptr);
  if (inserted != 1) fabric_failed(*info_, "fi_av_insert", inserted < 0 ? inserted : -FI_EINVAL);
  return address;
}

Fid<fid_mr> Fabric::enroll(std::span<const std::byte> memory, std::uint64_t access, int& error) noexcept {
  constexpr int tries = 8;  // A random key may be in use.
  for (int i = 0; i < tries; ++i) {
    std::uint64_t key = 0;
    if (!needs(FI_MR_PROV_KEY)) {
      // Nobody can guess the key, so only processes that were told it reach the memory.
      fill_random(std::as_writable_bytes(std::span(&key, 1)));
      const std::size_t size = info_->domain_attr->mr_key_size;
      if (size < sizeof key) key &= (std::uint64_t{1} << (8 * size)) - 1;
    }
    fid_mr* made = nullptr;
    error = fi_mr_reg(domain_.get(), memory.data(), memory.size(), access, 0, key, 0, &made, nullptr);
    if (error == -FI_ENOKEY || error == -FI_EKEYREJECTED) continue;
    if (error != 0) return nullptr;
    Fid<fid_mr> region(made);
    if (needs(FI_MR_ENDPOINT)) {
      error = -FI_EOPBADSTATE;  // end() has closed the endpoint.
      if (!endpoint_) return nullptr;
      error = fi_mr_bind(region.get(), &endpoint_->fid, 0);
      if (error == 0) error = fi_mr_enable(region.get());
      if (error != 0) return nullptr;
    }
    return region;
  }
  return nullptr;
}

bool Fabric::may_sleep() noexcept {
  std::array<fid*, 2> queues{&received_->fid, &sent_->fid};
  return fi_trywait(fabric_.get(), queues.data(), static_cast<int>(queues.size())) == 0;
}

void Fabric::end(bool reads) noexcept {
  // Other processes may still read our part of the shared memory. This provider does nothing outside its calls, so its
  // endpoint may stay as long as this object.
  if (stays_on_host(*info_)) return;
  // This provider does nothing outside its calls, either. When libfabric 1.17 closes a connection of it in the middle
  // of a read's answer, it reports the read twice, the second time without a context, and follows that null pointer.
  if (reads && is_provider(*info_, "tcp")) stays_open_ = true;
  if (stays_open_) return;
  endpoint_.reset();
  sent_.reset();
  received_.reset();
}

Fabric::~Fabric() {
  if (!stays_open_) return;
  const std::array<void*, 6> parts{endpoint_.release(),  sent_.release(),   received_.release(),
                                   addresses_.release(), domain_.release(), fabric_.release()};
  // Where tools that look for lost memory find them.
  static std::mutex mutex;
  static std::vector<void*>& open = *new std::vector<void*>;
  try {
    const std::lock_guard hold(mutex);
    open.insert(open.end(), parts.begin(), parts.end());
  } catch (const std::bad_alloc&) {
  }
}

void Sleep::open(std::span<const int> descriptors) {
  const auto check = [](int result) {
    if (result < 0) throw Error(Errc::failed, fmt::format("rdma: no descriptor to sleep on: {}", std::strerror(errno)));
    return result;
  };
  all_.reset(check(epoll_create1(EPOLL_CLOEXEC)));
  timer_.reset(check(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)));
  epoll_event event{};
  event.events = EPOLLIN;
  check(epoll_ctl(all_.get(), EPOLL_CTL_ADD, bell_.descriptor(), &event));
  check(epoll_ctl(all_.get(), EPOLL_CTL_ADD, timer_.get(), &event));
  for (const int descriptor : descriptors) check(epoll_ctl(all_.get(), EPOLL_CTL_ADD, descriptor, &event));
}

void Sleep::set_timer(std::optional<std::chrono::nanoseconds> time) noexcept {
  if (!time && !timer_set_) return;
  const Clock::time_point now = Clock::now();
  // A timer that rings a little too early is left alone: this saves a system call for each sleep of a busy pair.
  if (time && timer_set_ && *timer_set_ > now && *timer_set_ <= now + *time) return;
  itimerspec spec{};  // Zeros: it never rings, and one that has rung is silent.
  timer_set_.reset();
  if (time) {
    spec.it_value = os::timespec_of(std::max(*time, std::chrono::nanoseconds(1)));
    timer_set_ = now + *time;
  }
  ::timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

void Sleep::sleep(std::optional<std::chrono::nanoseconds> timeout) const noexcept {
  pollfd wish{all_.get(), POLLIN, 0};
  const timespec time = os::timespec_of(timeout.value_or(std::chrono::nanoseconds(0)));
  ::ppoll(&wish, 1, timeout ? &time : nullptr, nullptr);
}

}  // namespace aplib::comm::rdma
