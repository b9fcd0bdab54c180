// SPDX-License-Identifier: MIT
// The tables of bindings, one for each file in this folder.
#pragma once

#include <span>

#include "loader/binding.hpp"

namespace aplib::loader::libc {

std::span<const Binding> getopt_bindings();
std::span<const Binding> random_bindings();
std::span<const Binding> environ_bindings();
std::span<const Binding> static_buffers_bindings();
std::span<const Binding> databases_bindings();
std::span<const Binding> conversions_bindings();
std::span<const Binding> gamma_bindings();
std::span<const Binding> locale_bindings();
std::span<const Binding> time_zone_bindings();
std::span<const Binding> files_bindings();
std::span<const Binding> process_bindings();
std::span<const Binding> children_bindings();
std::span<const Binding> stdio_bindings();
std::span<const Binding> iostream_bindings();
std::span<const Binding> errors_bindings();
std::span<const Binding> record_locks_bindings();
std::span<const Binding> heap_bindings();
std::span<const Binding> exit_bindings();
std::span<const Binding> signals_bindings();
std::span<const Binding> signal_masks_bindings();
std::span<const Binding> threads_bindings();
std::span<const Binding> openmp_bindings();
std::span<const Binding> sleep_bindings();
std::span<const Binding> dl_bindings();

}  // namespace aplib::loader::libc
