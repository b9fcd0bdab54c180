// SPDX-License-Identifier: MIT
#include "kernel/shared_memory.hpp"

#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "kernel/machine_impl.hpp"
#include "kernel/module_network.hpp"

namespace aplib::api {

namespace {

constexpr const char* file_name = "aplib-shared";

/// More than there is would end who touches it.
bool can_exist(std::size_t bytes) noexcept {
  struct sysinfo info {};
  return ::sysinfo(&info) != 0 || bytes / info.mem_unit <= info.totalram + info.totalswap;
}

}  // namespace

std::byte* SharedMemory::map(int descriptor, std::size_t bytes) noexcept {
  void* const got = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return got != MAP_FAILED ? static_cast<std::byte*>(got) : nullptr;
}

std::optional<SharedMemory> SharedMemory::make(std::size_t bytes) noexcept {
  auto file = can_exist(bytes) ? SharedFile::make(file_name, bytes) : std::nullopt;
  std::byte* const data = file ? map(file->descriptor(), bytes) : nullptr;
  if (data == nullptr) return std::nullopt;
  return SharedMemory(std::move(file), data, bytes);
}

std::optional<SharedMemory> SharedMemory::open(const SharedFilePlace& place, std::size_t bytes) {
  const os::UniqueFd file = SharedFile::open(place, file_name, bytes);
  std::byte* const data = file ? map(file.get(), bytes) : nullptr;
  if (data == nullptr) return std::nullopt;
  return SharedMemory(std::nullopt, data, bytes);
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

SharedFilePlace SharedMemory::place() const noexcept {
  return file_ ? SharedFile::place_of(file_->descriptor()).value_or(SharedFilePlace{}) : SharedFilePlace{};
}

void SharedMemory::end_place() noexcept { file_.reset(); }

bool shares_host(const char* call, std::uint32_t process) {
  Domain& domain = self_or_throw(call).cell->processor->domain();
  if (process == domain.process) return true;
  return domain.network != nullptr && static_cast<ModuleNetwork&>(*domain.network).module().shares_host(process);
}

}  // namespace aplib::api
