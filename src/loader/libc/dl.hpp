// SPDX-License-Identifier: MIT
// DlState: what an instance has loaded by dlopen: handles and their counts, who needs which image, and the order of
// their construction.
//
// Invariants, under the mutex: (1) An image that a plug-in brought is in `brought` as long as it is mapped. (2) Its
// `uses` are the handles whose `needs` name it; it goes when none is left and nothing says that it stays. (3) No code
// of the program runs under the mutex but IFUNC resolvers.
#pragma once

#include <link.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/context.hpp"
#include "loader/libc/bindings.hpp"

namespace aplib::loader {
struct Symbol;
struct LoadedImage;
}  // namespace aplib::loader

namespace aplib::loader::libc {

/// What dlopen returns. Begins with a link_map, because programs for glibc take it for one.
struct DlHandle {
  enum class Kind : std::uint8_t {
    program,  ///< dlopen(NULL): all that every image sees.
    images,   ///< An image of the instance with what it needs.
    system,   ///< A library that the process shares.
  };
  link_map map{};
  Kind kind = Kind::program;
  std::string path;
  std::vector<std::uint32_t> group;   ///< Images: in order of search, its own first.
  std::vector<std::uint32_t> needs;   ///< Images: those that plug-ins brought and that this handle keeps.
  void* system = nullptr;             ///< System: its handle.
  bool global = false;                ///< RTLD_GLOBAL.
  std::uint32_t count = 0;            ///< dlopen less dlclose.
  const void* constructor = nullptr;  ///< The context that runs its constructors now.
};

struct DlState {
  /// An image that a plug-in brought.
  struct Brought {
    std::uint32_t uses = 0;            ///< Handles that need it.
    std::vector<std::uint32_t> needs;  ///< Images that it needs itself.
    bool stays = false;                ///< RTLD_NODELETE, or a thread_local of it is still to be destroyed.
    bool closing = false;              ///< Its destructors run: not to be found any more.
  };
  std::mutex mutex;
  std::list<DlHandle> handles;
  std::map<std::uint32_t, Brought> brought;
  std::vector<std::uint32_t> construction_order;  ///< Of those in `brought`.
  std::string error;                              ///< dlerror's next text,
  bool failed = false;                            ///< if there is one;
  std::string told;                               ///< and its last one, which the program may still look at.
};

/// Destructors of what dlopen has brought and dlclose has not taken away. Call from: the last flow of the instance,
/// before the program's own destructors.
void end_plugins(Instance& instance);

/// Images that code in image `index` sees, in order of search. Call with the mutex held.
std::vector<std::uint32_t> scope_of(const Instance& instance, const DlState& state, std::uint32_t index);
/// Images that every image sees. Call with the mutex held.
std::vector<std::uint32_t> global_scope(const Instance& instance, const DlState& state);
/// Index of `image` in its instance.
std::uint32_t index_of(const Instance& instance, const LoadedImage& image) noexcept;
/// Where a symbol that image `index` defines is for the calling flow.
void* address_of(const Instance& instance, std::uint32_t index, const Symbol& symbol);
/// The handle, or null if it is none of this instance. Call with the mutex held.
DlHandle* find_handle(DlState& state, const void* handle) noexcept;
void set_error(DlState& state, std::string text);

/// "solve+0x1c of prog" for an address in an instance, as a call returns to; empty: it lies in none.
std::string place_in_program(const void* address);

/// The part of dl_bindings() that is about addresses: dladdr, dl_iterate_phdr, dlinfo, backtrace_symbols.
std::span<const Binding> dl_address_bindings();

}  // namespace aplib::loader::libc
