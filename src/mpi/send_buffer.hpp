// SPDX-License-Identifier: MIT
// SendBuffer: what a program has attached for its buffered sends, to its rank, a session or a communicator. Nothing is
// ever put there, because the core copies what is sent. But its size limits what may be sent, as the standard has it.
#pragma once

#include <mpi.h>

namespace aplib::mpi {

struct Comm;

class SendBuffer {
 public:
  void attach(void* address, MPI_Count bytes);
  /// Gives what was attached. No message is in it, so there is nothing to wait for.
  void detach(void* place, MPI_Count* bytes);
  [[nodiscard]] bool is_attached() const noexcept { return address_ != nullptr || bytes_ != 0; }
  [[nodiscard]] bool holds(MPI_Count bytes) const noexcept {
    return address_ == MPI_BUFFER_AUTOMATIC || bytes <= bytes_;
  }
  [[nodiscard]] MPI_Count bytes() const noexcept { return bytes_; }

 private:
  void* address_ = nullptr;
  MPI_Count bytes_ = 0;
};

/// Fails unless a message of so many bytes may be sent by a buffered send.
void check_send_buffer(const Comm& comm, MPI_Count bytes);

}  // namespace aplib::mpi
