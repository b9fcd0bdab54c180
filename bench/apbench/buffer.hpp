// SPDX-License-Identifier: MIT
// A page-aligned buffer, touched by the thread that makes it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>

namespace apbench {

class Buffer {
 public:
  explicit Buffer(std::size_t bytes, int fill = 0) : bytes_(bytes) {
    constexpr std::size_t page = 4096;
    storage_.reset(static_cast<std::byte*>(std::aligned_alloc(page, (bytes + page) / page * page)));
    if (storage_ == nullptr) throw std::bad_alloc();
    std::memset(storage_.get(), fill, bytes);
  }

  [[nodiscard]] std::byte* data() noexcept { return storage_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  [[nodiscard]] std::span<std::byte> span() noexcept { return {storage_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* p) const noexcept { std::free(p); }
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> storage_;
};

/// Reads one byte of every cache line, so that the lines must move to the reader.
inline void touch_lines(std::span<const std::byte> bytes) {
  constexpr std::size_t line = 64;
  unsigned sum = 0;
  for (std::size_t i = 0; i < bytes.size(); i += line) sum += static_cast<unsigned>(bytes[i]);
  asm volatile("" : : "r"(sum));  // the compiler must take the sum for used, and keep the loop
}

}  // namespace apbench
