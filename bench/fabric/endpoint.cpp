// SPDX-License-Identifier: MIT
#include "endpoint.hpp"

#include <fmt/core.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <span>
#include <stdexcept>

namespace bench_fabric {
namespace {

constexpr std::uint64_t requested_key = 0x5a5a;

void check(const char* call, ssize_t result) {
  if (result < 0) throw std::runtime_error(fmt::format("{}: {}", call, fi_strerror(static_cast<int>(-result))));
}

template <class T, class Open>
Owned<T> opened(const char* call, Open open) {
  T* made = nullptr;
  check(call, open(&made));
  return Owned<T>(made);
}

std::unique_ptr<fi_info, FreeInfo> find(const std::string& provider) {
  const std::unique_ptr<fi_info, FreeInfo> hints(fi_allocinfo());
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->fabric_attr->prov_name = strdup(provider.c_str());
  const auto ask = [&hints](const char* node, std::uint64_t flags) {
    fi_info* found = nullptr;
    check("fi_getinfo", fi_getinfo(FI_VERSION(1, 9), node, nullptr, flags, hints.get(), &found));
    return std::unique_ptr<fi_info, FreeInfo>(found);
  };
  // Only providers that use IP get a node: shm takes it for its own name, which two processes cannot share.
  std::unique_ptr<fi_info, FreeInfo> found = ask(nullptr, 0);
  const auto format = found->addr_format;
  if (format == FI_SOCKADDR || format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6)
    found = ask("127.0.0.1", FI_SOURCE);
  return found;
}

}  // namespace

Endpoint::Endpoint(const std::string& provider, const bench_module::Wire& wire) : info_(find(provider)) {
  fabric_ = opened<fid_fabric>("fi_fabric", [&](auto** made) { return fi_fabric(info_->fabric_attr, made, nullptr); });
  domain_ = opened<fid_domain>("fi_domain",
                               [&](auto** made) { return fi_domain(fabric_.get(), info_.get(), made, nullptr); });
  fi_av_attr table{};
  table.type = FI_AV_TABLE;
  addresses_ =
      opened<fid_av>("fi_av_open", [&](auto** made) { return fi_av_open(domain_.get(), &table, made, nullptr); });
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_MSG;
  attributes.wait_obj = FI_WAIT_NONE;
  queue_ =
      opened<fid_cq>("fi_cq_open", [&](auto** made) { return fi_cq_open(domain_.get(), &attributes, made, nullptr); });
  region_ = opened<fid_mr>("fi_mr_reg", [&](auto** made) {
    constexpr std::uint64_t access = FI_SEND | FI_RECV | FI_WRITE | FI_READ | FI_REMOTE_WRITE | FI_REMOTE_READ;
    return fi_mr_reg(domain_.get(), arena_.data(), arena_.size(), access, 0, requested_key, 0, made, nullptr);
  });
  endpoint_ = opened<fid_ep>("fi_endpoint",
                             [&](auto** made) { return fi_endpoint(domain_.get(), info_.get(), made, nullptr); });
  check("fi_ep_bind", fi_ep_bind(endpoint_.get(), &addresses_->fid, 0));
  check("fi_ep_bind", fi_ep_bind(endpoint_.get(), &queue_->fid, FI_TRANSMIT | FI_RECV));
  check("fi_enable", fi_enable(endpoint_.get()));
  for (std::size_t i = 0; i < receives; ++i) post_receive(i);

  std::string name(256, '\0');
  std::size_t size = name.size();
  check("fi_getname", fi_getname(&endpoint_->fid, name.data(), &size));
  name.resize(size);
  const std::string other = wire.swap(name);
  check("fi_av_insert", fi_av_insert(addresses_.get(), other.data(), 1, &peer_, 0, nullptr));
  const bool by_address = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  target_ =
      wire.swap(Target{fi_mr_key(region_.get()), by_address ? reinterpret_cast<std::uintptr_t>(arena_.data()) : 0});
}

void Endpoint::post_receive(std::size_t nth) {
  retried("fi_recv", [&] {
    return fi_recv(endpoint_.get(), arena_.data() + nth * message_bytes, message_bytes, fi_mr_desc(region_.get()),
                   FI_ADDR_UNSPEC, &contexts_[nth]);
  });
}

template <class Call>
void Endpoint::retried(const char* what, Call call) {
  for (;;) {
    const ssize_t result = call();
    if (result != -FI_EAGAIN) return check(what, result);
    poll();
  }
}

void Endpoint::send() {
  const std::byte* const body = arena_.data() + receives * message_bytes;
  retried("fi_send", [&] {
    if (info_->tx_attr->inject_size >= message_bytes) return fi_inject(endpoint_.get(), body, message_bytes, peer_);
    return fi_send(endpoint_.get(), body, message_bytes, fi_mr_desc(region_.get()), peer_, &contexts_.back());
  });
}

void Endpoint::write(std::size_t bytes) {
  retried("fi_write", [&] {
    return fi_write(endpoint_.get(), arena_.data(), bytes, fi_mr_desc(region_.get()), peer_, target_.address,
                    target_.key, &contexts_.back());
  });
}

void Endpoint::read(std::size_t bytes) {
  retried("fi_read", [&] {
    return fi_read(endpoint_.get(), arena_.data(), bytes, fi_mr_desc(region_.get()), peer_, target_.address,
                   target_.key, &contexts_.back());
  });
}

void Endpoint::poll() {
  std::array<fi_cq_msg_entry, 16> entries{};
  const ssize_t count = fi_cq_read(queue_.get(), entries.data(), entries.size());
  if (count == -FI_EAGAIN) return;
  if (count == -FI_EAVAIL) {
    fi_cq_err_entry fault{};
    fi_cq_readerr(queue_.get(), &fault, 0);
    check("an operation", -static_cast<ssize_t>(fault.err));
  }
  check("fi_cq_read", count);
  for (const fi_cq_msg_entry& entry : std::span(entries).first(static_cast<std::size_t>(count))) {
    if ((entry.flags & FI_RECV) != 0) {
      ++messages_;
      post_receive(static_cast<std::size_t>(static_cast<fi_context2*>(entry.op_context) - contexts_.data()));
    } else if ((entry.flags & FI_RMA) != 0) {
      ++transfers_;
    }
  }
}

void Endpoint::await_messages(std::uint64_t count) {
  while (messages_ < count) poll();
  messages_ -= count;
}

void Endpoint::await_transfers(std::uint64_t count) {
  while (transfers_ < count) poll();
  transfers_ -= count;
}

}  // namespace bench_fabric
