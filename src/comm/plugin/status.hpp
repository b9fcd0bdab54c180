// SPDX-License-Identifier: MIT
// Exceptions and statuses: what crosses the plug-in interface is a status and a text; on both sides of it stands C++.
#pragma once

#include <cstdint>
#include <string>

#include "aplib/comm_module.h"

namespace aplib::comm::plugin {

/// The status of the exception in flight, with its text in `error`. Call inside a catch block.
[[nodiscard]] std::int32_t status_of_exception(aplib_comm_error* error) noexcept;

/// Throws what `status` (negative) and `error` say, as Error; `subject`, "module tcp", is for texts that are missing.
[[noreturn]] void throw_status(std::int32_t status, const aplib_comm_error& error, const char* subject);

/// Writes `text` and its end, cut where it is too long.
void put_text(const std::string& text, char* into, std::size_t bytes) noexcept;

/// Room for a text that is empty until somebody writes one.
struct ErrorText : aplib_comm_error {
  ErrorText() noexcept { text[0] = '\0'; }  // Only that: it is made for each send().
};

}  // namespace aplib::comm::plugin
