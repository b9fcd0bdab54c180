// SPDX-License-Identifier: MIT
// Writes and reads in others' memory.
#include <fmt/format.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "aplib/error.hpp"
#include "comm/rdma/rdma_state.hpp"

namespace aplib::comm {
namespace {

/// The words of a MemoryKey. The provider checks its own key; the bounds are checked here, too, so that a mistake does not cost the connection.
struct KeyWords {
  std::uint64_t key;
  std::uint64_t address;
  std::uint64_t bytes;
};
static_assert(sizeof(KeyWords) <= MemoryKey::bytes_max);

std::optional<KeyWords> words_of(const MemoryKey& key) noexcept {
  KeyWords words{};
  if (key.bytes != sizeof words) return std::nullopt;
  std::memcpy(&words, key.words.data(), sizeof words);
  return words;
}

}  // namespace

MemoryKey RdmaModule::State::expose(Peer peer, std::span<std::byte> memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  if (memory.empty())
    throw Error(Errc::bad_argument, fmt::format("rdma: expose to {}: no memory is given", name_of(peer)));
  const std::lock_guard lock(mutex_);
  Exposure& exposure = exposed_[{address, memory.size()}];
  if (exposure.times == 0) {
    int error = 0;
    exposure.region = fabric_.enroll(memory, FI_REMOTE_READ | FI_REMOTE_WRITE, error);
    if (!exposure.region) {
      exposed_.erase({address, memory.size()});
      const bool full = error == -FI_ENOMEM || error == -FI_ENOSPC || error == -FI_EAGAIN;
      throw Error(full ? Errc::exhausted : Errc::bad_argument,
                  fmt::format("rdma: expose {} bytes to {}: provider {} does not register them: {}", memory.size(),
                              name_of(peer), fabric_.info().fabric_attr->prov_name, fabric_words(error)));
    }
  }
  ++exposure.times;
  const KeyWords words{fi_mr_key(exposure.region.get()), address, memory.size()};
  MemoryKey key;
  key.bytes = sizeof words;
  std::memcpy(key.words.data(), &words, sizeof words);
  return key;
}

void RdmaModule::State::conceal(const MemoryKey& key) noexcept {
  const std::optional<KeyWords> words = words_of(key);
  if (!words) return;
  const std::lock_guard lock(mutex_);
  const auto found = exposed_.find({words->address, words->bytes});
  if (found == exposed_.end() || fi_mr_key(found->second.region.get()) != words->key) return;
  if (--found->second.times == 0) exposed_.erase(found);
}

std::size_t RdmaModule::State::part_bytes() const noexcept {
  return std::min<std::size_t>(fabric_.info().ep_attr->max_msg_size, std::size_t{1} << 30U);
}

void RdmaModule::State::transfer(Peer peer, RdmaTransfer::Kind kind, const MemoryKey& key, std::uint64_t address,
                                 std::span<std::byte> local, std::uint64_t context) {
  const std::optional<KeyWords> words = words_of(key);
  const std::lock_guard lock(mutex_);
  RdmaLink& link = links_[peer];
  const std::uint64_t offset = words ? address - words->address : 0;
  const bool open = words && offset <= words->bytes && local.size() <= words->bytes - offset;
  try {
    if (!open || closing_ || link.stage == RdmaLink::Stage::over || local.empty()) {
      done_.push_back({context, open && local.empty() && link.stage != RdmaLink::Stage::over});
      news_.store(true);
      sleep_.ring();
      return;
    }
    const std::size_t part = part_bytes();
    RdmaTransfer transfer{.kind = kind,
                          .local = local.data(),
                          .bytes = local.size(),
                          .remote = fabric_.needs(FI_MR_VIRT_ADDR) ? address : offset,
                          .key = words->key,
                          .context = context};
    if (local.size() > part) {
      transfer.parts = std::make_shared<RdmaTransfer::Parts>();
      transfer.parts->left = (local.size() + part - 1) / part;
    }
    done_.reserve(done_.size() + 1);
    for (std::size_t at = 0; at < local.size(); at += part) {
      transfer.local = local.data() + at;
      transfer.bytes = std::min(part, local.size() - at);
      if (kind == RdmaTransfer::Kind::write) transfer.number = ++link.writes_begun;
      if (link.stage == RdmaLink::Stage::ready && !link.failed_since && link.transfers.empty() &&
          link.control.empty() && post_transfer(link, peer, transfer)) {
        transfer.remote += transfer.bytes;
        continue;
      }
      if (link.stage == RdmaLink::Stage::over) {
        transfer_over(link, peer, transfer, false);
        continue;
      }
      link.transfers.push_back(transfer);
      transfer.remote += transfer.bytes;
      note_busy(link, peer);
      need_greeting(link, peer);
      sleep_.ring();
    }
  } catch (const std::bad_alloc&) {
    throw Error(Errc::exhausted,
                fmt::format("rdma: {} {} bytes, {}: no memory to note it",
                            kind == RdmaTransfer::Kind::write ? "write" : "read", local.size(), name_of(peer)));
  }
}

/// False: the provider does not take it now.
bool RdmaModule::State::post_transfer(RdmaLink& link, Peer peer, const RdmaTransfer& transfer) {
  Operation* const operation = take_operation();
  operation->peer = peer;
  operation->is_packet = false;
  operation->transfer = transfer;
  void* descriptor = nullptr;
  if (cache_) {
    operation->local = cache_->find_or_make({transfer.local, transfer.bytes});
    if (!operation->local) {
      give_operation(operation);
      if (operations_out_ != 0) return false;  // What ends gives registrations back.
      transfer_over(link, peer, transfer, false);
      return true;
    }
    descriptor = operation->local->descriptor();
  }
  ssize_t error = 0;
  if (transfer.kind == RdmaTransfer::Kind::write) {
    iovec from{transfer.local, transfer.bytes};
    fi_rma_iov to{transfer.remote, transfer.bytes, transfer.key};
    fi_msg_rma message{};
    message.msg_iov = &from;
    message.desc = &descriptor;
    message.iov_count = 1;
    message.addr = link.address;
    message.rma_iov = &to;
    message.rma_iov_count = 1;
    message.context = &operation->context;
    error = fi_writemsg(fabric_.endpoint(), &message, FI_DELIVERY_COMPLETE | FI_COMPLETION);
  } else {
    error = fi_read(fabric_.endpoint(), transfer.local, transfer.bytes, descriptor, link.address, transfer.remote,
                    transfer.key, &operation->context);
  }
  calls_.fetch_add(1, std::memory_order_relaxed);
  if (error == 0) {
    ++operations_out_;
    if (transfer.kind == RdmaTransfer::Kind::write) link.writes_posted = transfer.number;
    unstick(link);
    if (link.transfers_out++ == 0) link.transfers_since = Clock::now();
    note_busy(link, peer);
    return true;
  }
  give_operation(operation);
  stick(link, peer, static_cast<int>(error), "remote memory");
  return false;
}

void RdmaModule::State::transfer_over(RdmaLink& link, Peer peer, const RdmaTransfer& transfer, bool ok) {
  if (transfer.kind == RdmaTransfer::Kind::body) {
    if (!link.large) return;
    link.large->left -= transfer.bytes;
    if (!ok) link.large->failed = true;
    if (link.large->left != 0) return;
    changed_.push_back(peer);
  } else {
    if (transfer.kind == RdmaTransfer::Kind::write && !sends_after_writes_) {
      // Frames wait for all writes before them.
      const std::size_t at = transfer.number - link.writes_over - 1;
      if (at >= link.writes_ended.size()) link.writes_ended.resize(at + 1);
      link.writes_ended[at] = true;
      while (!link.writes_ended.empty() && link.writes_ended.front()) {
        link.writes_ended.pop_front();
        ++link.writes_over;
      }
      if (!link.packets.empty()) note_busy(link, peer);
    }
    if (transfer.parts) {
      transfer.parts->ok &= ok;
      if (--transfer.parts->left != 0) return;
      ok = transfer.parts->ok;
    }
    done_.push_back({transfer.context, ok});
  }
  news_.store(true);
  sleep_.ring();
}

}  // namespace aplib::comm
