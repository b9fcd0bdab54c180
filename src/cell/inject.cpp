// SPDX-License-Identifier: MIT
// What comes from other processes: the network's processor, which has no thread, brings it to the carriers as any processor would.
#include <cstring>

#include "cell/processor.hpp"

namespace aplib {

void Processor::inject(std::uint32_t cell, std::uint32_t task, std::uint64_t key, std::span<const std::byte> bytes) {
  send_remote(cell, route_[cell], task, key, bytes);
}

std::byte* Processor::begin_large(LargeArrival& arrival) {
  arrival.posted = claim_offer(arrival.cell, route_[arrival.cell], arrival.task, arrival.key, arrival.bytes);
  if (arrival.posted != nullptr) return reinterpret_cast<std::byte*>(arrival.posted->buffer);
  arrival.buffer = pool_->get(arrival.bytes);
  return reinterpret_cast<std::byte*>(arrival.buffer->body());
}

void Processor::end_large(LargeArrival& arrival, bool complete) {
  const std::uint32_t processor = route_[arrival.cell];
  if (arrival.posted != nullptr) {
    push(processor, SlotKind::offer_taken, arrival.cell, arrival.task, arrival.key,
         OfferSlot{arrival.posted, arrival.bytes, 0});
  } else if (complete) {
    push(processor, SlotKind::buffer_message, arrival.cell, arrival.task, arrival.key,
         BufferSlot{arrival.buffer, arrival.bytes});
  } else {
    pool_->put(arrival.buffer);
  }
  arrival.posted = nullptr;
  arrival.buffer = nullptr;
}

void Processor::inject_end(std::uint32_t cell, const CellEnd& end) {
  for (std::uint32_t p = 0; p < domain_.thread_count(); ++p)
    push(p, SlotKind::cell_ended, cell, 0, MatchKey::make(0, cell, 0, 0), end);
}

void Processor::inject_start(const Program& program) {
  for (const std::uint32_t cell : domain_.local_cells())
    push(route_[cell], SlotKind::start_task, cell, program.task, 0, &program);
}

void Processor::inject_call(void (*function)(Processor& processor, void* state), void* state) {
  for (std::uint32_t p = 0; p < domain_.thread_count(); ++p)
    push(p, SlotKind::call, 0, 0, MatchKey::make(0, 0, 0, 0), CallSlot{function, state});
}

void Processor::add_unread(const Buffer& buffer, bool joins) noexcept {
  constexpr std::int64_t overhead = sizeof(Buffer);
  const std::int64_t bytes = static_cast<std::int64_t>(buffer.bytes) + overhead;
  unread_bytes_.store(unread_bytes_.load(std::memory_order_relaxed) + (joins ? bytes : -bytes),
                      std::memory_order_relaxed);  // relaxed: only we write it
}

}  // namespace aplib
