// SPDX-License-Identifier: MIT
// Memory that programs map: mmap() and its relatives at an address of their choice, and the break.
//
// Processes may all choose one address. Cells cannot: with MAP_FIXED one would lose its memory to another without a
// word. So the places are known that a program has chosen where nothing was. What it maps over memory that it has from
// elsewhere (a range that it has reserved) stays libc's affair.
#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "aplib/error.hpp"
#include "loader/instance.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/end.hpp"
#include "loader/libc/state.hpp"
#include "loader/libc/streams.hpp"
#include "memory/slot.hpp"

namespace aplib::loader::libc {

namespace {

std::size_t page_bytes() noexcept { return static_cast<std::size_t>(::getpagesize()); }

struct ChosenRange {
  std::uintptr_t end;
  std::uint32_t owner;  ///< LibcState::number.
};

/// Those of all instances, by where they begin; none overlaps another. A range stays known until its owner unmaps it,
/// or ends, or another takes the place.
struct ChosenRanges {
  std::mutex mutex;
  std::map<std::uintptr_t, ChosenRange> all;
  std::atomic<std::size_t> known{0};  ///< How many, for those that do not hold the lock.

  [[nodiscard]] std::size_t count() const noexcept { return known.load(std::memory_order_acquire); }

  /// The first that ends behind `begin`.
  auto behind(std::uintptr_t begin) {
    auto found = all.upper_bound(begin);
    if (found != all.begin() && std::prev(found)->second.end > begin) --found;
    return found;
  }
  /// Somebody else than `owner` has some of it.
  bool is_of_another(std::uintptr_t begin, std::uintptr_t end, std::uint32_t owner) {
    for (auto each = behind(begin); each != all.end() && each->first < end; ++each) {
      if (each->second.owner != owner) return true;
    }
    return false;
  }
  /// `owner` has what lies at `place`.
  bool is_of(std::uintptr_t place, std::uint32_t owner) {
    const auto found = behind(place);
    return found != all.end() && found->first <= place && found->second.owner == owner;
  }
  /// Up to where, from `begin` on, nothing is somebody else's than `owner`'s, and where that is so again.
  std::pair<std::uintptr_t, std::uintptr_t> gap(std::uintptr_t begin, std::uintptr_t end, std::uint32_t owner) {
    for (auto each = behind(begin); each != all.end() && each->first < end; ++each) {
      if (each->second.owner != owner) return {std::max(each->first, begin), std::min(each->second.end, end)};
    }
    return {end, end};
  }
  /// Without memory, it stays known.
  void erase(std::uintptr_t begin, std::uintptr_t end) noexcept {
    try {
      cut(begin, end);
    } catch (const std::bad_alloc&) {
    }
    known = all.size();
  }
  /// It is `owner`'s from now on. Without memory, it is not known.
  void take(std::uintptr_t begin, std::uintptr_t end, std::uint32_t owner) noexcept {
    try {
      cut(begin, end);
      const auto next = all.lower_bound(begin);
      const auto before = next != all.begin() ? std::prev(next) : all.end();
      if (before != all.end() && before->second.end == begin && before->second.owner == owner) {  // one after the other
        before->second.end = end;
      } else {
        all.emplace_hint(next, begin, ChosenRange{end, owner});
      }
    } catch (const std::bad_alloc&) {
    }
    known = all.size();
  }
  void forget(std::uint32_t owner) noexcept {
    std::erase_if(all, [owner](const auto& each) { return each.second.owner == owner; });
    known = all.size();
  }

 private:
  /// May throw std::bad_alloc.
  void cut(std::uintptr_t begin, std::uintptr_t end) {
    for (auto each = behind(begin); each != all.end() && each->first < end; each = behind(begin)) {
      const auto [low, range] = *each;
      all.erase(each);
      if (low < begin) all.emplace(low, ChosenRange{begin, range.owner});
      if (range.end > end) all.emplace(end, range);
    }
  }
};
ChosenRanges& chosen_ranges() {
  static auto* const all = new ChosenRanges;  // instances may end late
  return *all;
}

}  // namespace

struct ChosenPlaces {
  std::uint32_t owner = 0;
  std::map<const void*, std::size_t> attached;  // by shmat(), at a place of the program's choice; in bytes

  // brk(): [begin, end) of what is reserved
  std::mutex mutex;
  char* begin = nullptr;
  char* end = nullptr;
  std::size_t reserved = 0;

  ChosenPlaces() = default;
  ~ChosenPlaces() {
    if (begin != nullptr) ::munmap(begin, reserved);
    const std::lock_guard lock(chosen_ranges().mutex);
    chosen_ranges().forget(owner);
  }
  ChosenPlaces(const ChosenPlaces&) = delete;
  ChosenPlaces& operator=(const ChosenPlaces&) = delete;
};

namespace {

ChosenPlaces& places_of(Instance& instance) {
  ChosenPlaces& own = shared_part(instance.libc().places);
  std::atomic_ref(own.owner).store(instance.libc().number);
  return own;
}

/// In the slot of a cell that is not the instance's.
bool is_in_other_slot(const Instance& instance, std::uintptr_t begin, std::uintptr_t end) noexcept {
  const std::size_t own = SlotPlan::cell_around(reinterpret_cast<std::uintptr_t>(instance.images().front().base));
  const auto is_other = [own](std::uintptr_t place) {
    const std::size_t cell = SlotPlan::cell_around(place);
    return cell < SlotPlan::count && cell != own;
  };
  return own < SlotPlan::count && (is_other(begin) || is_other(end - 1));
}

[[gnu::noinline]] std::string describe_overlap(const char* call, std::uintptr_t begin, std::uintptr_t end,
                                               const char* outcome) {
  return fmt::format(
      "{}: at {:#x} to {:#x} lies memory of another cell, {}; let the system choose the address, or run the program as "
      "processes (--processes)",
      call, begin, end, outcome);
}

/// What a call puts at a place of the program's choice, whatever lies there.
class Replacement {
 public:
  /// The lock of the ranges is held, as long as this lives: who finds memory there finds its owner, too.
  Replacement(Instance& instance, std::uintptr_t begin, std::uintptr_t end)
      : address_(reinterpret_cast<void*>(begin)), bytes_(end - begin) {  // NOLINT: the program's
    const ChosenPlaces& own = places_of(instance);
    is_refused_ = is_in_other_slot(instance, begin, end);
    if (is_refused_) return;
    is_reserved_ = ::mmap64(address_, bytes_, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == address_;
    is_refused_ = !is_reserved_ && chosen_ranges().is_of_another(begin, end, own.owner);
  }
  ~Replacement() {
    if (is_reserved_) ::munmap(address_, bytes_);
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  [[nodiscard]] bool is_refused() const noexcept { return is_refused_; }
  [[nodiscard]] bool was_free() const noexcept { return is_reserved_; }
  /// The call has put something there.
  void done() noexcept { is_reserved_ = false; }

 private:
  void* address_;
  std::size_t bytes_;
  bool is_refused_ = false;
  bool is_reserved_ = false;
};

[[noreturn]] void refuse_place(Instance& instance, const char* call, std::uintptr_t begin, std::uintptr_t end) {
  fail_instance(instance, static_cast<int>(ExitStatus::program_failed),
                describe_overlap(call, begin, end, "which the program would overwrite"));
}

bool is_of_another(Instance& instance, const void* address, std::size_t bytes) noexcept {
  ChosenRanges& ranges = chosen_ranges();
  if (ranges.count() == 0) return false;
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(ranges.mutex);
  return ranges.is_of_another(begin, begin + bytes, instance.libc().number);
}

/// A call that leaves what is there has failed: says so where that is another cell's.
void warn_of_place(Instance& instance, const char* call, std::uintptr_t begin, std::uintptr_t end) {
  const int error = errno_now();
  if (is_in_other_slot(instance, begin, end) ||
      is_of_another(instance, reinterpret_cast<const void*>(begin), end - begin))  // NOLINT: the program's
    instance.services().warn(describe_overlap(call, begin, end, "where each process would have nothing"));
  failed(error);
}

/// Makes a call that puts something at [begin, end), which the instance then has.
template <class Make>
void* put_at(Instance& instance, const char* call, std::uintptr_t begin, std::uintptr_t end, bool replaces, Make make) {
  const ChosenPlaces& own = places_of(instance);
  bool is_refused = false;
  void* got = MAP_FAILED;
  {
    ChosenRanges& ranges = chosen_ranges();
    const std::lock_guard lock(ranges.mutex);
    std::optional<Replacement> replacement;
    if (replaces) replacement.emplace(instance, begin, end);
    is_refused = replacement && replacement->is_refused();
    if (!is_refused) got = make();
    if (reinterpret_cast<std::uintptr_t>(got) == begin && end > begin) {
      if (!replacement || replacement->was_free()) ranges.take(begin, end, own.owner);
      if (replacement) replacement->done();
    }
  }
  if (is_refused) refuse_place(instance, call, begin, end);
  return got;
}

std::uintptr_t page_up(std::uintptr_t address, std::size_t bytes) noexcept {
  return (address + bytes - 1) / bytes * bytes;
}

/// Of the pages that mmap() maps.
std::size_t page_of(int flags) noexcept {
  constexpr unsigned size_mask = 0x3f;
  constexpr std::size_t huge = std::size_t{2} << 20;
  if ((flags & MAP_HUGETLB) == 0) return page_bytes();
  const unsigned size = static_cast<unsigned>(flags) >> MAP_HUGE_SHIFT & size_mask;
  return size != 0 ? std::size_t{1} << size : huge;
}

/// mmap() at an address that the program has chosen. What another cell has there stays: with MAP_FIXED, the program
/// ends with words.
void* map_at_choice(Instance& instance, void* address, std::size_t bytes, int protection, int flags, int descriptor,
                    std::int64_t offset) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = page_up(begin + bytes, page_of(flags));
  const bool is_careful = (flags & MAP_FIXED_NOREPLACE) == MAP_FIXED_NOREPLACE;
  const bool replaces = (flags & MAP_FIXED) != 0 && !is_careful && end > begin;
  void* const got = put_at(instance, "mmap(MAP_FIXED)", begin, end, replaces,
                           [=] { return ::mmap64(address, bytes, protection, flags, descriptor, offset); });
  if (is_careful && got == MAP_FAILED && errno_now() == EEXIST)
    warn_of_place(instance, "mmap(MAP_FIXED_NOREPLACE)", begin, end);
  return got;
}

void* own_mmap(void* address, std::size_t bytes, int protection, int flags, int descriptor, off64_t offset) {
  const void* const caller = __builtin_return_address(0);
  const int file = (flags & MAP_ANONYMOUS) != 0 ? descriptor : redirected(caller, descriptor);
  Instance* const instance = address != nullptr ? calling(caller) : nullptr;
  return instance != nullptr ? map_at_choice(*instance, address, bytes, protection, flags, file, offset)
                             : ::mmap64(address, bytes, protection, flags, file, offset);
}

// What another cell has chosen is not there for this program, as nothing of another process is.

int own_munmap(Instance& instance, void* address, std::size_t bytes) {
  ChosenRanges& ranges = chosen_ranges();
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = page_up(begin + bytes, page_bytes());
  if (ranges.count() == 0 || begin % page_bytes() != 0 || end <= begin) return ::munmap(address, bytes);
  const std::lock_guard lock(ranges.mutex);
  const std::uint32_t owner = instance.libc().number;
  for (std::uintptr_t low = begin; low < end;) {
    const auto [high, next] = ranges.gap(low, end, owner);
    if (high > low && ::munmap(reinterpret_cast<void*>(low), high - low) != 0) return -1;  // NOLINT: the program's
    if (high > low) ranges.erase(low, high);
    low = next;
  }
  return 0;
}

int own_mprotect(Instance& instance, void* address, std::size_t bytes, int protection) {
  return is_of_another(instance, address, bytes) ? failed(ENOMEM) : ::mprotect(address, bytes, protection);
}

int own_madvise(Instance& instance, void* address, std::size_t bytes, int advice) {
  return is_of_another(instance, address, bytes) ? failed(ENOMEM) : ::madvise(address, bytes, advice);
}

void* remap(Instance& instance, void* old, std::size_t old_bytes, std::size_t bytes, int flags, void* wanted) {
  const auto begin = reinterpret_cast<std::uintptr_t>(wanted);
  const std::uintptr_t end = page_up(begin + bytes, page_bytes());
  const auto old_begin = reinterpret_cast<std::uintptr_t>(old);
  const bool replaces = (flags & MREMAP_FIXED) != 0 && end > begin;
  ChosenRanges& ranges = chosen_ranges();
  if (!replaces && ranges.count() == 0) return ::mremap(old, old_bytes, bytes, flags, wanted);
  bool is_refused = false;
  void* got = MAP_FAILED;
  {
    const std::uint32_t owner = places_of(instance).owner;
    const std::lock_guard lock(ranges.mutex);
    if (ranges.is_of_another(old_begin, old_begin + old_bytes, owner)) {
      failed(EFAULT);
      return MAP_FAILED;
    }
    std::optional<Replacement> replacement;
    if (replaces) replacement.emplace(instance, begin, end);
    is_refused = replacement && replacement->is_refused();
    if (!is_refused) got = ::mremap(old, old_bytes, bytes, flags, wanted);
    if (got != MAP_FAILED) {
      const bool is_chosen = replacement ? replacement->was_free() : ranges.is_of(old_begin, owner) && got == old;
      if (replacement) replacement->done();
      if (old_bytes != 0 && (flags & MREMAP_DONTUNMAP) == 0)
        ranges.erase(old_begin, page_up(old_begin + old_bytes, page_bytes()));
      const auto at = reinterpret_cast<std::uintptr_t>(got);
      if (is_chosen) ranges.take(at, page_up(at + bytes, page_bytes()), owner);
    }
  }
  if (is_refused) refuse_place(instance, "mremap(MREMAP_FIXED)", begin, end);
  return got;
}

void* own_mremap(void* old, std::size_t old_bytes, std::size_t bytes, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  void* const wanted = va_arg(arguments, void*);  // libc reads it so whatever the flags say
  va_end(arguments);
  Instance* const instance = calling(__builtin_return_address(0));
  return instance != nullptr ? remap(*instance, old, old_bytes, bytes, flags, wanted)
                             : ::mremap(old, old_bytes, bytes, flags, wanted);
}

void* own_shmat(Instance& instance, int segment, const void* address, int flags) {
  shmid_ds about{};
  if (address == nullptr || ::shmctl(segment, IPC_STAT, &about) != 0) return ::shmat(segment, address, flags);
  auto begin = reinterpret_cast<std::uintptr_t>(address);
  if ((flags & SHM_RND) != 0) begin -= begin % page_bytes();
  const std::uintptr_t end = page_up(begin + about.shm_segsz, page_bytes());
  ChosenPlaces& own = places_of(instance);
  void* const got = put_at(instance, "shmat(SHM_REMAP)", begin, end, (flags & SHM_REMAP) != 0, [&] {
    void* const attached = ::shmat(segment, address, flags);
    if (attached != MAP_FAILED) own.attached.insert_or_assign(attached, end - begin);
    return attached;
  });
  if (got == MAP_FAILED && errno_now() == EINVAL) warn_of_place(instance, "shmat", begin, end);
  return got;
}

int own_shmdt(Instance& instance, const void* address) {
  if (std::atomic_ref(instance.libc().places.part).load(std::memory_order_acquire) == nullptr) return ::shmdt(address);
  ChosenPlaces& own = places_of(instance);
  ChosenRanges& ranges = chosen_ranges();
  const std::lock_guard lock(ranges.mutex);
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const auto found = own.attached.find(address);
  if (found == own.attached.end() && ranges.is_of_another(begin, begin + 1, own.owner)) return failed(EINVAL);
  const int result = ::shmdt(address);
  if (result == 0 && found != own.attached.end()) {
    ranges.erase(begin, begin + found->second);
    own.attached.erase(found);
  }
  return result;
}

// --- the break
// Libc's malloc has the process's break. Each program has one of its own, in a range that is reserved when it first
// asks.

void* move_break(ChosenPlaces& own, std::intptr_t change) {
  constexpr std::size_t wanted = std::size_t{4} << 30;
  constexpr std::size_t least = std::size_t{1} << 20;
  void* const none = MAP_FAILED;  // what sbrk() returns, too
  for (own.reserved = own.begin != nullptr ? own.reserved : wanted; own.begin == nullptr; own.reserved /= 4) {
    if (own.reserved < least) return failed(ENOMEM), none;
    void* const got = ::mmap(nullptr, own.reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) continue;
    own.begin = own.end = static_cast<char*>(got);
    const auto place = reinterpret_cast<std::uintptr_t>(got);
    const std::lock_guard lock(chosen_ranges().mutex);
    chosen_ranges().take(place, place + own.reserved, own.owner);
    break;
  }
  const std::intptr_t used = own.end - own.begin;
  if (change < -used || change > static_cast<std::intptr_t>(own.reserved) - used) return failed(ENOMEM), none;
  char* const before = own.end;
  char* const after = before + change;
  const std::size_t had = page_up(static_cast<std::size_t>(used), page_bytes());
  const std::size_t has = page_up(static_cast<std::size_t>(used + change), page_bytes());
  if (has > had && ::mprotect(own.begin + had, has - had, PROT_READ | PROT_WRITE) != 0) return none;
  if (has < had) {
    ::madvise(own.begin + has, had - has, MADV_DONTNEED);
    if (::mprotect(own.begin + has, had - has, PROT_NONE) != 0) return none;
  }
  own.end = after;
  return before;
}

void* own_sbrk(Instance& instance, std::intptr_t change) {
  ChosenPlaces& own = places_of(instance);
  const std::lock_guard lock(own.mutex);
  return move_break(own, change);
}

int own_brk(Instance& instance, void* end) {
  ChosenPlaces& own = places_of(instance);
  const std::lock_guard lock(own.mutex);
  if (move_break(own, 0) == MAP_FAILED) return -1;
  return move_break(own, static_cast<char*>(end) - own.end) == MAP_FAILED ? -1 : 0;
}

}  // namespace

std::span<const Binding> mappings_bindings() {
  static const std::array table{
      Binding::of("mmap", &own_mmap),
      Binding::of("mmap64", &own_mmap),
      bound<::munmap, own_munmap>("munmap"),
      bound<::mprotect, own_mprotect>("mprotect"),
      bound<::mprotect, own_mprotect>("__mprotect"),
      bound<::madvise, own_madvise>("madvise"),
      bound<::madvise, own_madvise>("__madvise"),
      Binding::of("mremap", &own_mremap),
      Binding::of("__mremap", &own_mremap),
      bound<::shmat, own_shmat>("shmat"),
      bound<::shmdt, own_shmdt>("shmdt"),
      bound<::brk, own_brk>("brk"),
      bound<::sbrk, own_sbrk>("sbrk"),
      bound<::sbrk, own_sbrk>("__sbrk"),
  };
  return table;
}

}  // namespace aplib::loader::libc
