// SPDX-License-Identifier: MIT
#include "comm/rdma/fabric.hpp"

#include <fmt/format.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <utility>

#include "aplib/error.hpp"
#include "comm/job_key.hpp"

namespace aplib::comm {
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
  throw Error(Errc::failed, fmt::format("rdma: provider {}, {}: {}: {}", info.fabric_attr->prov_name,
                                        info.domain_attr->name != nullptr ? info.domain_attr->name : "no domain", call,
                                        fabric_words(error)));
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
    // Some providers (shm) have nothing that others could wake by.
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
  constexpr int tries = 8;  // A random key may be taken.
  for (int i = 0; i < tries; ++i) {
    std::uint64_t key = 0;
    if (!needs(FI_MR_PROV_KEY)) {
      // Nobody can guess it, so that only those who were told reach the memory.
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

void Fabric::end() noexcept {
  // Others may still be reading what lies in our part of the shared memory, and this provider does nothing by itself: it stays until this object goes.
  if (stays_on_host(*info_)) return;
  endpoint_.reset();
  sent_.reset();
  received_.reset();
}

}  // namespace aplib::comm
