// SPDX-License-Identifier: MIT
// What dl.cpp works on: the scopes in which names are looked up, and the end of plug-ins.
#include <algorithm>
#include <utility>

#include <elf.h>

#include "loader/exit_frame.hpp"
#include "loader/instance.hpp"
#include "loader/libc/dl.hpp"
#include "loader/tls.hpp"

namespace aplib::loader::libc {

std::uint32_t index_of(const Instance& instance, const LoadedImage& image) noexcept {
  return static_cast<std::uint32_t>(&image - instance.images().data());
}

std::vector<std::uint32_t> global_scope(const Instance& instance, const DlState& state) {
  std::vector<std::uint32_t> scope = instance.program().group();
  for (const DlHandle& handle : state.handles) {
    if (handle.kind != DlHandle::Kind::images || !handle.global) continue;
    for (const std::uint32_t index : handle.group) {
      if (std::ranges::find(scope, index) == scope.end()) scope.push_back(index);
    }
  }
  return scope;
}

std::vector<std::uint32_t> scope_of(const Instance& instance, const DlState& state, std::uint32_t index) {
  std::vector<std::uint32_t> scope = global_scope(instance, state);
  // What a plug-in sees besides is its group: that of the handle that brought it, the oldest of those that name it.
  for (const DlHandle& handle : state.handles) {
    if (std::ranges::find(handle.group, index) == handle.group.end()) continue;
    for (const std::uint32_t other : handle.group) {
      if (std::ranges::find(scope, other) == scope.end()) scope.push_back(other);
    }
    break;
  }
  return scope;
}

void* address_of(const Instance& instance, std::uint32_t index, const Symbol& symbol) {
  const LoadedImage& image = instance.images()[index];
  if (symbol.absolute) return reinterpret_cast<void*>(symbol.value);
  if (symbol.type == STT_TLS) {
    if (image.file->uses_static_tls())
      return static_cast<char*>(__builtin_thread_pointer()) + image.static_tls_offset + symbol.value;
    const TlsIndex place{own_module(image.module), symbol.value};
    return tls_get_addr(&place);
  }
  char* const address = image.base + symbol.value;
  if (symbol.type == STT_GNU_IFUNC) return reinterpret_cast<void* (*)()>(address)();
  return address;
}

DlHandle* find_handle(DlState& state, const void* handle) noexcept {
  const auto found = std::ranges::find_if(state.handles, [handle](const DlHandle& one) { return &one == handle; });
  return found != state.handles.end() ? &*found : nullptr;
}

void set_error(DlState& state, std::string text) {
  state.error = std::move(text);
  state.failed = true;
}

void end_plugins(Instance& instance) {
  DlState* const state = instance.libc().dl.part;
  if (state == nullptr) return;
  while (!state->construction_order.empty()) {
    const std::uint32_t index = state->construction_order.back();
    state->construction_order.pop_back();
    const LoadedImage image = instance.images()[index];
    until_exit(*here(), [&instance, &image] {
      instance.destroy_image(image);
      return 0;
    });
  }
}

}  // namespace aplib::loader::libc
