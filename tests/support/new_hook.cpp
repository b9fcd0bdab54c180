// SPDX-License-Identifier: MIT
#include "new_hook.hpp"

#include <cstdlib>

namespace {

constinit thread_local const std::function<void()>* current = nullptr;

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (const auto* const hook = std::exchange(current, nullptr); hook != nullptr) {
    try {
      (*hook)();
    } catch (...) {
      current = hook;
      throw;
    }
    current = hook;
  }
  void* const memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

namespace aplib::testing_support {

NewHook::NewHook(std::function<void()> hook) : hook_(std::move(hook)) { current = &hook_; }
NewHook::~NewHook() { current = nullptr; }

}  // namespace aplib::testing_support

void* operator new(std::size_t bytes) { return allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
