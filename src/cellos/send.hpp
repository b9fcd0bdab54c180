// SPDX-License-Identifier: MIT
// The return value of CellOS sends.
#pragma once

#include <new>

#include "kernel/face.hpp"

namespace aplib::cellos {

/// The one failure CellOS programs could hear of is "no memory": 0, and a line for the person who reads stderr.
template <class Send>
int one_unless_exhausted(const char* call, Send&& send) {
  try {
    send();
    return 1;
  } catch (const Error& error) {
    if (error.code() != Errc::exhausted) throw;
    face::warn(call, error.what());
  } catch (const std::bad_alloc&) {
    face::warn(call, "no memory for the message; it was not sent");
  }
  return 0;
}

}  // namespace aplib::cellos
