// SPDX-License-Identifier: MIT
// The usual messages: elements of a predefined type, to or from a rank of a communicator, and from a task that receives
// by itself. Whatever they need is found with few branches, in the exported function itself. What is not plain takes
// the long way (point_to_point.cpp), which checks each argument and says what is wrong.
//
// For the functions that generate.cpp makes: `plain` in functions.txt. False: it is not plain, and nothing is done.
#pragma once

#include <array>

#include "kernel/mailbox_inline.hpp"
#include "mpi/request.hpp"

namespace aplib::mpi::plain {

/// Bytes of an element of a predefined type, by the low byte of its handle; 0: it has none, or gaps.
extern const std::array<std::uint8_t, 256> element_bytes;

/// A call with its arguments in the library's terms.
class Message {
 public:
  [[gnu::always_inline]] Message(const char* name, const void* buffer, MPI_Count count, MPI_Datatype type,
                                 MPI_Comm handle) noexcept
      : name_(name) {
    constexpr std::uintptr_t first_type = 0x200;
    constexpr auto count_max = std::uint64_t{1} << 40;
    TaskControl* const self = running_task();
    if (self == nullptr) return;
    auto* const rank = static_cast<Rank*>(self->cell->mpi.rank);
    if (rank == nullptr || rank->phase != Rank::Phase::initialized || rank->main_task != self->id) return;
    const std::uintptr_t code = handle_value(type) - first_type;
    if (code >= element_bytes.size() || buffer == nullptr || static_cast<std::uint64_t>(count) >= count_max) return;
    comm_ = handle == MPI_COMM_WORLD ? &rank->world() : find_made<Comm>(handle);
    self_ = self;
    rank_ = rank;
    bytes_ = {static_cast<std::byte*>(const_cast<void*>(buffer)),
              element_bytes[code] * static_cast<std::size_t>(count)};
    is_plain_ = comm_ != nullptr && element_bytes[code] != 0;
  }

  [[gnu::always_inline]] bool send(int dest, int tag) const {
    if (!is_plain_ || !is_peer(dest) || !is_tag(tag) || bytes_.size() >= lend_from_bytes) [[unlikely]]
      return false;
    api::send(*self_, name_, mailbox_of(*rank_),
              {comm_->cell_of(dest), comm_->context(), static_cast<std::uint32_t>(tag)}, bytes_);
    return true;
  }
  [[gnu::always_inline]] bool receive(int source, int tag, MPI_Status* status) const {
    if (!is_plain_ || (!is_peer(source) && source != MPI_ANY_SOURCE) || (!is_tag(tag) && tag != MPI_ANY_TAG))
        [[unlikely]]
      return false;
    const api::Mailbox mailbox = mailbox_of(*rank_);
    const MatchWish wish = api::wish_for(*self_, name_, mailbox, wish_of(*comm_, source, tag));
    const auto arrived =
        wait_for_rank(source, fail_unsent, [&] { return api::receive_own(*self_, name_, mailbox, bytes_, wish); });
    if (!arrived) return true;  // the machine stops
    set_arrived(status, *comm_, *arrived);
    check_room(*comm_, *arrived, static_cast<MPI_Count>(bytes_.size()));
    return true;
  }
  [[nodiscard]] Request& sent() const noexcept { return rank_->sent(); }

 private:
  [[nodiscard]] bool is_peer(int rank) const noexcept {
    return static_cast<std::uint32_t>(rank) < comm_->peers->size();
  }
  [[nodiscard]] static bool is_tag(int tag) noexcept { return static_cast<std::uint32_t>(tag) <= api::Label::tag_max; }

  const char* name_;
  bool is_plain_ = false;
  TaskControl* self_ = nullptr;
  Rank* rank_ = nullptr;
  const Comm* comm_ = nullptr;
  std::span<std::byte> bytes_;
};

[[gnu::always_inline]] inline bool send(const char* name, const void* buf, MPI_Count count, MPI_Datatype type, int dest,
                                        int tag, MPI_Comm comm) {
  return Message(name, buf, count, type, comm).send(dest, tag);
}

[[gnu::always_inline]] inline bool recv(const char* name, void* buf, MPI_Count count, MPI_Datatype type, int source,
                                        int tag, MPI_Comm comm, MPI_Status* status) {
  return Message(name, buf, count, type, comm).receive(source, tag, status);
}

[[gnu::always_inline]] inline bool isend(const char* name, const void* buf, MPI_Count count, MPI_Datatype type,
                                         int dest, int tag, MPI_Comm comm, MPI_Request* request) {
  const Message message(name, buf, count, type, comm);
  if (request == nullptr || !message.send(dest, tag)) [[unlikely]]
    return false;
  *request = handle_of<MPI_Request>(message.sent());
  return true;
}

}  // namespace aplib::mpi::plain
