// SPDX-License-Identifier: MIT
#include "comm/shm/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::comm::shm {
namespace {

constexpr int seal_future_write = 0x0010;  // F_SEAL_FUTURE_WRITE, Linux 5.1

}  // namespace

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      descriptor_(std::move(other.descriptor_)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

SharedMemory SharedMemory::make(std::size_t bytes) {
  SharedMemory made;
  made.descriptor_ = os::UniqueFd(::memfd_create("aplib", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int descriptor = made.descriptor_.get();
  if (descriptor >= 0 && ::ftruncate(descriptor, static_cast<off_t>(bytes)) == 0) {
    void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (data != MAP_FAILED) {
      made.data_ = data;
      made.bytes_ = bytes;
      // Without the last one, before Linux 5.1, others could write as well: what they would destroy is no more than
      // what they are believed anyway.
      if (::fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
        ::fcntl(descriptor, F_ADD_SEALS, seal_future_write);
        return made;
      }
    }
  }
  throw Error(Errc::exhausted,
              fmt::format("shm: cannot make {} bytes of shared memory: {}; raise the limits of open files (ulimit -n) "
                          "and memory, or choose another module",
                          bytes, std::generic_category().message(errno)));
}

std::optional<SharedMemory> SharedMemory::open(const os::UniqueFd& descriptor, std::size_t bytes, std::string& why) {
  struct stat status {};
  // What can be shortened later would kill the process that reads there.
  const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(descriptor.get(), &status) != 0 ||
      status.st_size != static_cast<off_t>(bytes)) {
    why = fmt::format("what it gave is not {} bytes of sealed shared memory", bytes);
    return std::nullopt;
  }
  void* const data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor.get(), 0);
  if (data == MAP_FAILED) {
    why = fmt::format("its shared memory cannot be mapped: {}", std::generic_category().message(errno));
    return std::nullopt;
  }
  SharedMemory opened;
  opened.data_ = data;
  opened.bytes_ = bytes;
  return opened;
}

}  // namespace aplib::comm::shm
