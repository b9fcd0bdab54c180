// SPDX-License-Identifier: MIT
#include "gridrpc/arguments.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "aplib/error.hpp"

namespace aplib::gridrpc {
namespace {

constexpr std::size_t copied_text_max = 4096;

/// The elements that travel, side by side.
void pack(const Extent& extent, std::size_t each, const std::byte* array, std::byte* packed) {
  for_each_run(extent, [&](std::uint64_t offset, std::uint64_t count) {
    std::memcpy(packed, array + offset * each, count * each);
    packed += count * each;
  });
}

void unpack(const Extent& extent, std::size_t each, const std::byte* packed, std::byte* array) {
  for_each_run(extent, [&](std::uint64_t offset, std::uint64_t count) {
    std::memcpy(array + offset * each, packed, count * each);
    packed += count * each;
  });
}

void write_array(Parcel& parcel, const Extent& extent, std::size_t each, const std::byte* array, const Arena& arena) {
  if (extent.moved_bytes == 0) return;
  if (extent.offset != Extent::in_stream) {
    std::byte* const place = arena.base() + extent.offset;
    if (place != array) pack(extent, each, array, place);
  } else {
    for_each_run(extent, [&](std::uint64_t offset, std::uint64_t count) {
      if (count * each <= copied_text_max)
        parcel.copy(array + offset * each, count * each);
      else
        parcel.refer(array + offset * each, count * each);
    });
  }
}

void write_elements(Parcel& parcel, const Parameter& parameter, const Extent& extent, const void* address,
                    const Arena& arena) {
  if (!is_text(parameter.type)) {
    write_array(parcel, extent, bytes_of(parameter.type), static_cast<const std::byte*>(address), arena);
    return;
  }
  const auto* const texts = static_cast<const char* const*>(address);
  for_each_run(extent, [&](std::uint64_t offset, std::uint64_t count) {
    for (std::uint64_t k = offset; k < offset + count; ++k)
      parameter.type == Type::string ? parcel.text(texts[k]) : parcel.file(texts[k]);
  });
}

void read_array(Body& body, const Extent& extent, std::size_t each, std::byte* array, const Arena& arena) {
  if (extent.moved_bytes == 0) return;
  if (extent.offset != Extent::in_stream) {
    const std::byte* const place = arena.base() + extent.offset;
    if (place != array) unpack(extent, each, place, array);
  } else {
    for_each_run(extent,
                 [&](std::uint64_t offset, std::uint64_t count) { body.read(array + offset * each, count * each); });
  }
}

/// Writes so many bytes to the file; where that fails, reads them nevertheless. Returns why.
std::string read_into_file(Body& body, std::uint64_t bytes, int file) {
  std::array<char, 16384> block;
  std::string problem;
  while (bytes > 0) {
    const std::size_t count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, block.size()));
    body.read(block.data(), count);
    bytes -= count;
    if (problem.empty() && file >= 0 && !os::write_all(file, {block.data(), count})) problem = os::text_of(errno);
  }
  return problem;
}

/// A string of the stream, in memory of `take(bytes)`; NULL.
template <class Take>
char* read_string(Body& body, Take take) {
  const std::uint64_t length = body.read_length(text_bytes_max);
  if (length == no_text) return nullptr;
  char* const text = reinterpret_cast<char*>(take(length + 1));
  body.read(text, length);
  text[length] = '\0';
  return text;
}

std::byte* take_from_malloc(std::uint64_t bytes) {
  auto* const memory = static_cast<std::byte*>(std::malloc(bytes));
  if (memory == nullptr) throw Error(Errc::exhausted, fmt::format("no memory for a string of {} bytes", bytes));
  return memory;
}

}  // namespace

// --- Arguments ---

void Arguments::take(const Function& function, std::va_list list) {
  struct SingleComplex {
    float real, imaginary;
  };
  struct DoubleComplex {
    double real, imaginary;
  };
  slots_.resize(function.parameters.size());
  addresses_.clear();
  for (const Parameter& each : function.parameters) {
    if (!each.is_by_value()) {
      addresses_.push_back(va_arg(list, void*));
      continue;
    }
    switch (each.type) {
      case Type::character:
      case Type::boolean:
      case Type::signed_character:
      case Type::unsigned_character:
        keep(static_cast<char>(va_arg(list, int)));
        break;
      case Type::short_integer:
      case Type::unsigned_short:
        keep(static_cast<short>(va_arg(list, int)));
        break;
      case Type::integer:
      case Type::unsigned_integer:
        keep(va_arg(list, int));
        break;
      case Type::long_integer:
      case Type::unsigned_long:
        keep(va_arg(list, long));
        break;
      case Type::single_real:
        keep(static_cast<float>(va_arg(list, double)));
        break;
      case Type::double_real:
        keep(va_arg(list, double));
        break;
      case Type::single_complex:
        keep(va_arg(list, SingleComplex));
        break;
      case Type::double_complex:
        keep(va_arg(list, DoubleComplex));
        break;
      case Type::string:
      case Type::filename:
        keep(va_arg(list, char*));
        break;
    }
  }
}

void Arguments::take(const Function& function, std::span<void* const> stack) {
  if (stack.size() != function.parameters.size()) {
    throw Error(Errc::bad_argument, fmt::format("{}: the stack has {} arguments: push {}, as in {}", function.name,
                                                stack.size(), function.parameters.size(), print_function(function)));
  }
  slots_.resize(function.parameters.size());
  addresses_.clear();
  for (std::size_t i = 0; i < stack.size(); ++i) {
    const Parameter& each = function.parameters[i];
    if (is_text(each.type) && each.is_by_value())
      keep(stack[i]);
    else
      addresses_.push_back(stack[i]);
  }
}

// --- Parcel ---

void Parcel::clear() noexcept {
  copied_.clear();
  pieces_.clear();
  bytes_ = 0;
}

void Parcel::copy(const void* data, std::size_t bytes) {
  if (bytes == 0) return;
  const auto* const from = static_cast<const std::byte*>(data);
  copied_.insert(copied_.end(), from, from + bytes);
  if (!pieces_.empty() && pieces_.back().data == nullptr && !pieces_.back().file)
    pieces_.back().bytes += bytes;
  else
    pieces_.push_back({.data = nullptr, .bytes = bytes});
  bytes_ += bytes;
}

void Parcel::refer(const void* data, std::uint64_t bytes) {
  pieces_.push_back({.data = data, .bytes = bytes});
  bytes_ += bytes;
}

void Parcel::text(const char* text) {
  const std::uint64_t length = text == nullptr ? no_text : std::strlen(text);
  copy(&length, sizeof length);
  if (text == nullptr) return;
  if (length > text_bytes_max)
    throw Error(Errc::bad_argument, fmt::format("a string has {} bytes: use up to {}", length, text_bytes_max));
  length <= copied_text_max ? copy(text, length) : refer(text, length);
}

void Parcel::file(const char* path) {
  if (path == nullptr) {
    copy(&no_text, sizeof no_text);
    return;
  }
  os::UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0)
    throw Error(Errc::bad_argument, fmt::format("the file {} cannot be read: {}", path, os::text_of(errno)));
  if (!S_ISREG(about.st_mode))
    throw Error(Errc::bad_argument, fmt::format("{} is no file with contents: name a regular file", path));
  const auto bytes = static_cast<std::uint64_t>(about.st_size);
  copy(&bytes, sizeof bytes);
  if (bytes == 0) return;
  pieces_.push_back({.data = nullptr, .bytes = bytes, .file = std::move(file)});
  bytes_ += bytes;
}

void Parcel::send(Channel& channel, const void* head, std::size_t head_bytes, int descriptor) {
  parts_.clear();
  parts_.push_back({.iov_base = const_cast<void*>(head), .iov_len = head_bytes});
  const auto flush = [&] {
    channel.send(parts_, std::exchange(descriptor, -1));
    parts_.clear();
  };
  std::byte* copied = copied_.data();
  for (Piece& piece : pieces_) {
    if (!piece.file) {
      void* const data =
          piece.data != nullptr ? const_cast<void*>(piece.data) : std::exchange(copied, copied + piece.bytes);
      parts_.push_back({.iov_base = data, .iov_len = static_cast<std::size_t>(piece.bytes)});
      continue;
    }
    if (!parts_.empty()) flush();
    std::array<std::byte, 65536> block;
    for (std::uint64_t left = piece.bytes; left > 0;) {
      const ssize_t count =
          ::read(piece.file.get(), block.data(), static_cast<std::size_t>(std::min<std::uint64_t>(left, block.size())));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) throw Error(Errc::failed, "a file became shorter, or could not be read, while it was sent");
      parts_.push_back({.iov_base = block.data(), .iov_len = static_cast<std::size_t>(count)});
      flush();
      left -= static_cast<std::uint64_t>(count);
    }
  }
  if (!parts_.empty()) flush();
}

// --- Body ---

void Body::read(void* into, std::uint64_t bytes) {
  if (bytes > left_) throw Error(Errc::failed, "what came is shorter than its arguments");
  left_ -= bytes;
  channel_.receive(into, static_cast<std::size_t>(bytes));
}

std::uint64_t Body::read_length(std::uint64_t most) {
  const auto length = read<std::uint64_t>();
  if (length != no_text && (length > left_ || length > most))
    throw Error(Errc::failed, fmt::format("a text or file is said to have {} bytes, which do not come", length));
  return length;
}

// --- Memory of a call ---

std::byte* CallMemory::take(std::uint64_t bytes) {
  const std::uint64_t rounded = rounded_to_lines(std::max<std::uint64_t>(bytes, 1));
  if (rounded <= sizeof small_->bytes - used_) return small_->bytes + std::exchange(used_, used_ + rounded);
  blocks_.reserve(blocks_.size() + 1);
  void* const block = std::aligned_alloc(line_bytes, rounded);
  if (block == nullptr) throw Error(Errc::exhausted, fmt::format("the server has no {} bytes of memory", bytes));
  blocks_.push_back(block);
  return static_cast<std::byte*>(block);
}

void CallMemory::clear() noexcept {
  for (void* const block : blocks_) std::free(block);
  blocks_.clear();
  used_ = 0;
}

CallFile CallFile::make() {
  const char* const folder = std::getenv("TMPDIR");
  os::UniqueFd file(
      ::open(folder != nullptr && *folder != '\0' ? folder : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file) file.reset(::memfd_create("aplib-gridrpc-file", MFD_CLOEXEC));
  if (!file) os::refuse_descriptor("a file of a call");
  std::string path = fmt::format("/proc/{}/fd/{}", ::getpid(), file.get());
  return {.file = std::move(file), .path = std::move(path)};
}

// --- At the client ---

void write_arguments(Parcel& parcel, const Function& function, std::span<void* const> addresses, const Extents& extents,
                     const Arena& arena) {
  parcel.clear();
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const Parameter& parameter = function.parameters[i];
    if (parameter.mode == Mode::work) continue;
    if (addresses[i] == nullptr && extents[i].moved != 0)
      refuse_argument(function, parameter, "its address is NULL: pass that of memory for it");
    if (parameter.is_scalar() && parameter.goes_in()) parcel.copy(addresses[i], bytes_of(parameter.type));
  }
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const Parameter& parameter = function.parameters[i];
    if (parameter.goes_in() && !parameter.is_scalar())
      write_elements(parcel, parameter, extents[i], addresses[i], arena);
  }
}

std::string read_results(Body& body, const Function& function, std::span<void* const> addresses, const Extents& extents,
                         const Arena& arena) {
  std::string problem;
  const auto read_file = [&](const Parameter& parameter, const char* path) {
    const std::uint64_t bytes = body.read_length(INT64_MAX);
    if (bytes == no_text) return;
    std::string why;
    os::UniqueFd file;
    if (path != nullptr) {
      file.reset(::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
      if (!file) why = os::text_of(errno);
    }
    const std::string later = read_into_file(body, bytes, file.get());
    if (why.empty()) why = later;
    std::error_code ignored;
    if (!later.empty() && std::filesystem::is_regular_file(path, ignored)) std::filesystem::remove(path, ignored);
    if (!why.empty() && problem.empty())
      problem = fmt::format("{}: {}: the file {} cannot be written: {}", function.name,
                            print_parameter(function, parameter), path, why);
  };
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const Parameter& parameter = function.parameters[i];
    if (!parameter.comes_out()) continue;
    if (!is_text(parameter.type)) {
      read_array(body, extents[i], bytes_of(parameter.type), static_cast<std::byte*>(addresses[i]), arena);
      continue;
    }
    auto* const texts = static_cast<char**>(addresses[i]);
    for_each_run(extents[i], [&](std::uint64_t offset, std::uint64_t count) {
      for (std::uint64_t k = offset; k < offset + count; ++k) {
        if (parameter.type == Type::string)
          texts[k] = read_string(body, take_from_malloc);
        else
          read_file(parameter, texts[k]);
      }
    });
  }
  return problem;
}

// --- At the server ---

void ServedCall::read(Body& body, const Function& function, std::uint64_t arena_bytes, const Arena& arena) {
  function_ = &function;
  addresses_.assign(function.parameters.size(), nullptr);
  read_scalars(body);
  extents_.measure(function, addresses_);
  const auto memory =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (extents_.bytes() > memory) {
    throw Error(Errc::exhausted, fmt::format("{}: the arguments have {} bytes, more than the memory of the server's "
                                             "computer: pass less at a time",
                                             function.name, extents_.bytes()));
  }
  if (arena_bytes != 0 && extents_.place_in_arena(function) > std::min(arena_bytes, arena.bytes()))
    throw Error(Errc::failed, "the shared memory is smaller than the arguments");
  read_others(body, arena);
  if (body.left() != 0) throw Error(Errc::failed, "what came is longer than its arguments");
}

void ServedCall::read_scalars(Body& body) {
  for (std::size_t i = 0; i < addresses_.size(); ++i) {
    const Parameter& parameter = function_->parameters[i];
    if (!parameter.is_scalar()) continue;
    addresses_[i] = memory_.take(bytes_of(parameter.type));
    if (parameter.goes_in())
      body.read(addresses_[i], bytes_of(parameter.type));
    else
      std::memset(addresses_[i], 0, bytes_of(parameter.type));
  }
}

void ServedCall::read_others(Body& body, const Arena& arena) {
  for (std::size_t i = 0; i < addresses_.size(); ++i) {
    const Parameter& parameter = function_->parameters[i];
    if (parameter.is_scalar()) continue;
    is_text(parameter.type) ? read_texts(body, i) : read_array(body, i, arena);
  }
}

void ServedCall::read_array(Body& body, std::size_t which, const Arena& arena) {
  const Parameter& parameter = function_->parameters[which];
  const Extent& extent = extents_[which];
  const bool in_place = extent.offset != Extent::in_stream && extent.ranges.empty();
  std::byte* const array = in_place ? arena.base() + extent.offset : memory_.take(extent.bytes);
  addresses_[which] = array;
  // Elements that do not travel are 0. What comes out has nothing to show of an earlier call, either.
  if (!in_place && (!extent.ranges.empty() || parameter.mode == Mode::out)) std::memset(array, 0, extent.bytes);
  if (parameter.goes_in()) gridrpc::read_array(body, extent, bytes_of(parameter.type), array, arena);
}

void ServedCall::read_texts(Body& body, std::size_t which) {
  const Parameter& parameter = function_->parameters[which];
  const Extent& extent = extents_[which];
  auto* const texts = reinterpret_cast<char**>(memory_.take(extent.bytes));
  std::fill_n(texts, extent.elements, nullptr);
  addresses_[which] = texts;
  const auto take_from_call = [&](std::uint64_t bytes) { return memory_.take(bytes); };
  const auto read_one = [&](char*& text) {
    if (parameter.type == Type::string) {
      if (parameter.goes_in()) text = read_string(body, take_from_call);
      if (parameter.comes_out()) given_.emplace_back(&text, text);
      return;
    }
    const std::uint64_t bytes = parameter.goes_in() ? body.read_length(INT64_MAX) : 0;
    if (bytes == no_text) return;
    CallFile file = CallFile::make();
    if (const std::string why = read_into_file(body, bytes, file.file.get()); !why.empty())
      refuse_argument(*function_, parameter, "the server cannot write the file: " + why);
    text = reinterpret_cast<char*>(memory_.take(file.path.size() + 1));
    std::memcpy(text, file.path.c_str(), file.path.size() + 1);
    files_.push_back(std::move(file));
  };
  for_each_run(extent, [&](std::uint64_t offset, std::uint64_t count) {
    for (std::uint64_t k = offset; k < offset + count; ++k) read_one(texts[k]);
  });
}

void ServedCall::write_results(Parcel& parcel, const Arena& arena) {
  parcel.clear();
  for (std::size_t i = 0; i < addresses_.size(); ++i) {
    const Parameter& parameter = function_->parameters[i];
    if (parameter.comes_out()) write_elements(parcel, parameter, extents_[i], addresses_[i], arena);
  }
}

void ServedCall::clear() noexcept {
  for (const auto& [text, before] : given_)
    if (*text != before) std::free(*text);
  given_.clear();
  files_.clear();
  memory_.clear();
}

}  // namespace aplib::gridrpc
