// SPDX-License-Identifier: MIT
// Instance: how an image gets into memory. Text stays shared with all other instances (file-backed private mappings); only pages that are written
// become the instance's own.
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "aplib/error.hpp"
#include "loader/find_object.hpp"
#include "loader/instance.hpp"

namespace aplib::loader {
namespace {

constexpr std::uint64_t page_down(std::uint64_t address) { return address & ~(page_bytes - 1); }
constexpr std::uint64_t page_up(std::uint64_t address) { return page_down(address + page_bytes - 1); }

void map(const ElfFile& file, void* place, std::uint64_t bytes, int protection, int flags, int descriptor,
         std::uint64_t offset) {
  if (mmap(place, bytes, protection, flags | MAP_FIXED, descriptor, static_cast<off_t>(offset)) != MAP_FAILED) return;
  const int error = errno;
  const char* remedy = error == ENOMEM ? "start fewer cells, or raise vm.max_map_count (sysctl)"
                                       : "look whether the file may be mapped (noexec mount?)";
  throw Error(
      error == ENOMEM ? Errc::exhausted : Errc::failed,
      fmt::format("{}: cannot map {} KiB of it: {}; {}", file.path(), bytes / 1024, std::strerror(error), remedy));
}

std::uint64_t& word(char* base, std::uint64_t offset) noexcept {
  return *reinterpret_cast<std::uint64_t*>(base + offset);
}

}  // namespace

void Instance::map_image(const LoadedImage& image) {
  const ElfFile& file = *image.file;
  for (const Segment& segment : file.segments()) {
    const std::uint64_t begin = page_down(segment.address);
    const std::uint64_t file_end = segment.address + segment.file_bytes;
    const std::uint64_t memory_end = page_up(segment.address + segment.memory_bytes);
    std::uint64_t mapped_end = begin;
    if (segment.file_bytes != 0) {
      mapped_end = page_up(file_end);
      map(file, image.base + begin, mapped_end - begin, segment.protection, MAP_PRIVATE, file.descriptor(),
          page_down(segment.offset));
      // The rest of the last page holds what follows in the file.
      if (segment.memory_bytes > segment.file_bytes && (segment.protection & PROT_WRITE) != 0 && mapped_end != file_end)
        std::memset(image.base + file_end, 0, mapped_end - file_end);
    }
    if (memory_end > mapped_end) {
      map(file, image.base + mapped_end, memory_end - mapped_end, segment.protection, MAP_PRIVATE | MAP_ANONYMOUS, -1,
          0);
    }
  }
}

void Instance::relocate_image(const LoadedImage& image) {
  char* const base = image.base;
  const RelocationPlan& plan = *image.plan;
  const auto own = reinterpret_cast<std::uint64_t>(base);
  const auto state = reinterpret_cast<std::uint64_t>(&libc_);
  for (const std::uint64_t offset : plan.packed) word(base, offset) += own;
  for (const auto& store : plan.relative) word(base, store.offset) = own + store.value;
  for (const auto& store : plan.absolute) word(base, store.offset) = store.value;
  for (const auto& store : plan.based)
    word(base, store.offset) = reinterpret_cast<std::uint64_t>(images_[store.image].base) + store.value;
  for (const auto& store : plan.state) word(base, store.offset) = state + store.value;
  for (const auto& store : plan.made)
    word(base, store.offset) = reinterpret_cast<std::uint64_t>(store.binding->place(*this)) + store.value;
  for (const auto& copy : plan.copies) {
    const char* from =
        copy.image == RelocationPlan::of_state ? reinterpret_cast<const char*>(&libc_) : images_[copy.image].base;
    std::memcpy(base + copy.offset, from + copy.value, copy.bytes);
  }
}

void Instance::finish_image(const LoadedImage& image) {
  // Resolvers are code of the instance: everything else must be in place.
  using Resolve = std::uint64_t (*)();
  for (const auto& store : image.plan->indirect)
    word(image.base, store.offset) = reinterpret_cast<Resolve>(images_[store.image].base + store.value)();
  const Range relro = image.file->relro();
  if (!relro.empty() && mprotect(image.base + relro.address, relro.bytes, PROT_READ) != 0) {
    throw Error(Errc::exhausted,
                fmt::format("{}: cannot protect its relocated data: {}; raise vm.max_map_count (sysctl)",
                            image.file->path(), std::strerror(errno)));
  }
  add_image(*this, image);
  debugger_.add(image.file->path(), image.base, image.base + image.file->dynamic_address());
}

}  // namespace aplib::loader
