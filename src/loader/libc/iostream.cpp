// SPDX-License-Identifier: MIT
// std::cout and its relatives: each instance has a set. Those of libstdc++ belong to the process, and flags, fill, tie
// and buffer of one program would show in all others. They write to the instance's standard streams, and after
// sync_with_stdio(false) to its outlets, with a buffer of their own.
//
// Like libstdc++'s they are never destroyed, only written out at the end: what they hold (buffers and locales of the
// program) may be gone by then.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cwchar>
#include <istream>
#include <memory>
#include <mutex>
#include <new>
#include <ostream>
#include <streambuf>
#include <type_traits>
#include <utility>

#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/streams.hpp"

namespace aplib::loader::libc {
namespace {

using libc::outlet_of;
using libc::stream_of;

/// Each operation goes to the FILE: what stdio and iostreams print comes out in order.
class SyncedBuffer : public std::streambuf {
 public:
  SyncedBuffer(Instance& instance, Stream stream) : instance_(instance), stream_(stream) {}

 protected:
  int_type overflow(int_type character) override {
    if (traits_type::eq_int_type(character, traits_type::eof()))
      return sync() == 0 ? traits_type::not_eof(character) : character;
    return std::putc(character, file());
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    return static_cast<std::streamsize>(std::fwrite(text, 1, static_cast<std::size_t>(count), file()));
  }
  int sync() override { return stream_ == Stream::in ? 0 : libc::flush_stream(instance_, file()); }

  int_type underflow() override { return std::ungetc(std::getc(file()), file()); }
  int_type uflow() override { return last_ = std::getc(file()); }
  int_type pbackfail(int_type character) override {
    const int_type back = traits_type::eq_int_type(character, traits_type::eof()) ? last_ : character;
    last_ = traits_type::eof();
    return std::ungetc(back, file());
  }
  std::streamsize xsgetn(char* text, std::streamsize count) override {
    const std::size_t got = std::fread(text, 1, static_cast<std::size_t>(count), file());
    last_ = got > 0 ? traits_type::to_int_type(text[got - 1]) : traits_type::eof();
    return static_cast<std::streamsize>(got);
  }

  pos_type seekoff(off_type offset, std::ios_base::seekdir from, std::ios_base::openmode) override {
    const int whence = from == std::ios_base::beg ? SEEK_SET : from == std::ios_base::cur ? SEEK_CUR : SEEK_END;
    return ::fseeko64(file(), offset, whence) == 0 ? pos_type(::ftello64(file())) : pos_type(off_type(-1));
  }
  pos_type seekpos(pos_type position, std::ios_base::openmode which) override {
    return seekoff(off_type(position), std::ios_base::beg, which);
  }

 private:
  std::FILE* file() { return stream_of(instance_, stream_); }

  Instance& instance_;
  const Stream stream_;
  int_type last_ = traits_type::eof();  // what can be put back
};

class WideBuffer : public std::wstreambuf {
 public:
  WideBuffer(Instance& instance, Stream stream) : instance_(instance), stream_(stream) {}

 protected:
  int_type overflow(int_type character) override {
    if (traits_type::eq_int_type(character, traits_type::eof()))
      return sync() == 0 ? traits_type::not_eof(character) : character;
    return libc::put_wide(file(), traits_type::to_char_type(character));
  }
  std::streamsize xsputn(const wchar_t* text, std::streamsize count) override {
    return libc::put_wide(file(), text, static_cast<std::size_t>(count)) ? count : 0;
  }
  int sync() override { return stream_ == Stream::in ? 0 : libc::flush_stream(instance_, file()); }

  int_type underflow() override { return libc::unget_wide(file(), libc::get_wide(file())); }
  int_type uflow() override { return last_ = libc::get_wide(file()); }
  int_type pbackfail(int_type character) override {
    const int_type back = traits_type::eq_int_type(character, traits_type::eof()) ? last_ : character;
    last_ = traits_type::eof();
    return libc::unget_wide(file(), back);
  }

 private:
  std::FILE* file() { return stream_of(instance_, stream_); }

  Instance& instance_;
  const Stream stream_;
  int_type last_ = traits_type::eof();
};

/// Buffers by itself, beside stdio.
class DirectBuffer : public std::streambuf {
 public:
  DirectBuffer(Instance& instance, Stream stream) : outlet_(outlet_of(instance, static_cast<int>(stream))) {
    if (stream == Stream::in) return;
    bytes_ = std::make_unique<char[]>(size);
    setp(bytes_.get(), bytes_.get() + size);
  }
  /// Frees what is buffered without writing it.
  void drop() noexcept { bytes_.reset(); }

 protected:
  int_type overflow(int_type character) override {
    if (!write_out()) return traits_type::eof();
    if (!traits_type::eq_int_type(character, traits_type::eof())) sputc(traits_type::to_char_type(character));
    return traits_type::not_eof(character);
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    if (count < epptr() - pptr()) {
      std::copy_n(text, count, pptr());
      pbump(static_cast<int>(count));
      return count;
    }
    if (!write_out()) return 0;
    if (count < static_cast<std::streamsize>(size)) return std::streambuf::xsputn(text, count);
    return std::max<std::streamsize>(libc::write_outlet(outlet_, text, static_cast<std::size_t>(count)), 0);
  }
  int sync() override {
    if (pbase() == nullptr) return 0;
    if (!write_out()) return -1;
    libc::show_outlet(outlet_);
    return 0;
  }

  int_type underflow() override {
    if (bytes_ == nullptr) bytes_ = std::make_unique<char[]>(size);
    const auto kept = std::min<std::ptrdiff_t>(gptr() - eback(), put_back);
    std::copy_n(gptr() - kept, kept, bytes_.get());
    char* begin = bytes_.get() + kept;
    const ssize_t got = libc::read_outlet(outlet_, begin, size - static_cast<std::size_t>(kept));
    setg(bytes_.get(), begin, begin + std::max<ssize_t>(got, 0));
    return got > 0 ? traits_type::to_int_type(*gptr()) : traits_type::eof();
  }
  int_type pbackfail(int_type character) override {
    if (gptr() == eback()) return traits_type::eof();
    gbump(-1);
    if (!traits_type::eq_int_type(character, traits_type::eof())) *gptr() = traits_type::to_char_type(character);
    return traits_type::not_eof(character);
  }

 private:
  static constexpr std::size_t size = 8192;
  static constexpr std::ptrdiff_t put_back = 16;

  bool write_out() {
    const std::ptrdiff_t count = pptr() - pbase();
    const bool done = count == 0 || libc::write_outlet(outlet_, pbase(), static_cast<std::size_t>(count)) ==
                                        static_cast<ssize_t>(count);
    setp(bytes_.get(), bytes_.get() + size);
    return done;
  }

  Outlet& outlet_;
  std::unique_ptr<char[]> bytes_;
};

/// An object that lives until its memory is freed: no destructor.
template <class T>
class Undestroyed {
 public:
  /// It will be made in the program's own memory.
  void give_room(void* room) noexcept { room_ = room; }
  template <class... Args>
  T& make(Args&&... arguments) {
    if (room_ == nullptr) {
      memory_ = std::make_unique<Memory>();
      room_ = memory_->bytes;
    }
    return *(object_ = ::new (room_) T(std::forward<Args>(arguments)...));
  }
  [[nodiscard]] T* get() const noexcept { return object_; }

 private:
  struct Memory {
    alignas(T) std::byte bytes[sizeof(T)];
  };
  std::unique_ptr<Memory> memory_;
  void* room_ = nullptr;
  T* object_ = nullptr;
};

}  // namespace

struct IostreamState {
  /// A stream with its buffers; Object: std::istream or std::wostream, say.
  template <class Object, class Buffer>
  struct Made {
    Undestroyed<Object> object;
    Undestroyed<Buffer> buffer;
  };
  IostreamState() = default;
  ~IostreamState() {
    for (const auto& each : direct) {
      if (each.get() != nullptr) each.get()->drop();
    }
  }
  IostreamState(const IostreamState&) = delete;
  IostreamState& operator=(const IostreamState&) = delete;

  std::mutex mutex;
  bool synced = true;
  Made<std::istream, SyncedBuffer> in;
  Made<std::ostream, SyncedBuffer> out;
  Made<std::ostream, SyncedBuffer> err;
  Made<std::ostream, SyncedBuffer> log;
  Made<std::wistream, WideBuffer> wide_in;
  Made<std::wostream, WideBuffer> wide_out;
  Made<std::wostream, WideBuffer> wide_err;
  Made<std::wostream, WideBuffer> wide_log;
  std::array<Undestroyed<DirectBuffer>, 3> direct;  ///< By descriptor; made by sync_with_stdio(false).
};

namespace {

// cin, or cout; not synchronized: over the direct buffer.
template <class Object, class Buffer>
Object& make(Instance& instance, IostreamState& own, IostreamState::Made<Object, Buffer>& made, Stream stream) {
  if (made.object.get() != nullptr) return *made.object.get();
  auto& buffer = made.buffer.make(instance, stream);
  Object& object = made.object.make(&buffer);
  if constexpr (std::is_same_v<typename Object::char_type, char>) {
    if (!own.synced) {
      auto& direct = own.direct[static_cast<std::size_t>(stream)];
      object.rdbuf(direct.get() != nullptr ? direct.get() : &direct.make(instance, stream));
    }
  }
  return object;
}

template <class Object, class Buffer, class Out>
void* make_tied(Instance& instance, IostreamState& own, IostreamState::Made<Object, Buffer>& made, Stream stream,
                Out& out) {
  if (made.object.get() == nullptr) {
    Object& object = make(instance, own, made, stream);
    object.tie(&make(instance, own, out, Stream::out));
    if (stream == Stream::err) object.setf(std::ios_base::unitbuf);
  }
  return made.object.get();
}

IostreamState& state_of(Instance& instance) { return shared_part(instance.libc().iostream); }

template <auto member>
void* place_out(Instance& instance) {
  IostreamState& own = state_of(instance);
  const std::lock_guard lock(own.mutex);
  return &make(instance, own, own.*member, Stream::out);
}
template <auto member>
void* place_log(Instance& instance) {
  IostreamState& own = state_of(instance);
  const std::lock_guard lock(own.mutex);
  return &make(instance, own, own.*member, Stream::err);
}
template <auto member, auto out, Stream stream>
void* place_tied(Instance& instance) {
  IostreamState& own = state_of(instance);
  const std::lock_guard lock(own.mutex);
  return make_tied(instance, own, own.*member, stream, own.*out);
}

template <auto member>
Binding stream(std::string_view name, void* (*place)(Instance&)) {
  return Binding::datum(
      name, place, [](Instance& instance, void* room) { (state_of(instance).*member).object.give_room(room); },
      sizeof(*(std::declval<IostreamState&>().*member).object.get()));
}

// As libstdc++ does: it can be switched off, once, and not on again. Wide streams convert and stay as they are.
bool own_sync_with_stdio(bool sync) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return std::ios_base::sync_with_stdio(sync);
  IostreamState& own = state_of(*instance);
  const std::lock_guard lock(own.mutex);
  if (sync || !own.synced) return own.synced;
  own.synced = false;
  const auto lead = [&own, instance](auto* object, Stream stream) {
    if (object == nullptr) return;
    auto& direct = own.direct[static_cast<std::size_t>(stream)];
    object->rdbuf(direct.get() != nullptr ? direct.get() : &direct.make(*instance, stream));
  };
  lead(own.in.object.get(), Stream::in);
  lead(own.out.object.get(), Stream::out);
  lead(own.err.object.get(), Stream::err);
  lead(own.log.object.get(), Stream::err);
  return true;
}

}  // namespace

void flush_iostreams(Instance& instance) {
  IostreamState* own = instance.libc().iostream.part;
  if (own == nullptr) return;
  // Buffers that the program has put in their place are its own concern, and may be gone. Synchronized ones hold
  // nothing.
  for (const auto& each : own->direct) {
    if (each.get() != nullptr) each.get()->pubsync();
  }
}

std::span<const Binding> iostream_bindings() {
  using State = IostreamState;
  static const std::array table{
      stream<&State::in>("_ZSt3cin", &place_tied<&State::in, &State::out, Stream::in>),
      stream<&State::out>("_ZSt4cout", &place_out<&State::out>),
      stream<&State::err>("_ZSt4cerr", &place_tied<&State::err, &State::out, Stream::err>),
      stream<&State::log>("_ZSt4clog", &place_log<&State::log>),
      stream<&State::wide_in>("_ZSt4wcin", &place_tied<&State::wide_in, &State::wide_out, Stream::in>),
      stream<&State::wide_out>("_ZSt5wcout", &place_out<&State::wide_out>),
      stream<&State::wide_err>("_ZSt5wcerr", &place_tied<&State::wide_err, &State::wide_out, Stream::err>),
      stream<&State::wide_log>("_ZSt5wclog", &place_log<&State::wide_log>),
      Binding::of("_ZNSt8ios_base15sync_with_stdioEb", &own_sync_with_stdio),
  };
  return table;
}

}  // namespace aplib::loader::libc
