// SPDX-License-Identifier: MIT
// Wire: the connection by which the two processes of a measurement coordinate, apart from what they measure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

namespace bench_module {

class Wire {
 public:
  /// Owns `socket`, one end of a socketpair.
  explicit Wire(int socket) noexcept : socket_(socket) {}
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  /// These throw std::runtime_error when the other process is gone.
  void write(std::span<const std::byte> bytes) const;
  void read(std::span<std::byte> bytes) const;

  template <class T>
    requires std::is_trivially_copyable_v<T>
  void tell(const T& value) const {
    write(std::as_bytes(std::span(&value, 1)));
  }
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] T hear() const {
    T value{};
    read(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  /// Both ends send a text, and each gets the other's.
  [[nodiscard]] std::string swap(const std::string& text) const;
  template <class T>
  [[nodiscard]] T swap(const T& value) const {
    tell(value);
    return hear<T>();
  }

 private:
  int socket_;
};

}  // namespace bench_module
