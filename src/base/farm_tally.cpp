// SPDX-License-Identifier: MIT
#include "base/farm_tally.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <system_error>
#include <type_traits>

#include "base/os/own_folder.hpp"

namespace aplib {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".farm";
constexpr std::uint64_t mark = 0x31'6d'72'61'66'70'61;  // "apfarm1"
constexpr std::chrono::seconds dead_stays{60};

std::uint64_t wall_nanoseconds() {
  return static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}
double seconds_of(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

template <std::size_t size>
using Text = std::array<char, size>;

/// Cut where it is too long.
template <std::size_t size>
void copy_text(Text<size>& to, std::string_view text) noexcept {
  const std::size_t bytes = std::min(text.size(), size - 1);
  std::memcpy(to.data(), text.data(), bytes);
  to[bytes] = '\0';
}
template <std::size_t size>
std::string text_of(const Text<size>& text) {
  return {text.data(), ::strnlen(text.data(), size)};
}

void store(std::uint64_t& to, std::uint64_t value) noexcept {
  // relaxed: each number is a word on its own
  std::atomic_ref(to).store(value, std::memory_order_relaxed);
}

}  // namespace

/// The whole file. Numbers are written at any time. Texts are written while `changes` is odd, so that a reader who has
/// seen the same even number before and after has them whole.
struct FarmTally::Sheet {
  struct Failure {
    std::uint64_t time;
    Text<504> text;
  };
  std::uint64_t mark;  // last of all at the beginning
  std::uint64_t changes;
  std::uint64_t begun;
  std::uint64_t ended;
  std::int64_t status;
  FarmCounts counts;
  std::uint64_t failures;  // so far; number n stands at place n % failures_kept
  Text<16> kind;
  Text<256> title;
  Text<256> reason;
  std::array<Failure, failures_kept> last_failures;

  /// Writes texts.
  template <class Write>
  void change(Write&& write) noexcept {
    const std::atomic_ref count(changes);
    const std::uint64_t before = changes;  // the only writer
    // relaxed, and a fence: what is written behind it is not seen before it
    count.store(before + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    write();
    count.store(before + 2, std::memory_order_release);  // after what was written
  }
};

FarmTally::FarmTally(std::string_view kind, std::string_view title) noexcept {
  static_assert(std::is_trivially_copyable_v<Sheet>);
  try {
    process_ = ::getpid();
    path_ = os::registry_folder() + "/" + std::to_string(process_) + "-XXXXXX" + std::string(suffix);
    file_ = os::UniqueFd(::mkostemps(path_.data(), static_cast<int>(suffix.size()), O_CLOEXEC));
    if (!file_) return;
    struct flock lock {};
    lock.l_type = F_WRLCK;
    // All of it is there from now on: a file system that is full is no signal later.
    void* mapped = MAP_FAILED;
    if (os::file_may_have(sizeof(Sheet)) && ::fcntl(file_.get(), F_SETLK, &lock) == 0 &&
        ::posix_fallocate(file_.get(), 0, sizeof(Sheet)) == 0)
      mapped = ::mmap(nullptr, sizeof(Sheet), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    if (mapped == MAP_FAILED) {
      ::unlink(path_.c_str());
      file_.reset();
      return;
    }
    sheet_ = static_cast<Sheet*>(mapped);
    sheet_->begun = wall_nanoseconds();
    copy_text(sheet_->kind, kind);
    copy_text(sheet_->title, title);
    std::atomic_ref(sheet_->mark).store(mark, std::memory_order_release);  // after all of the above
  } catch (const std::exception&) {                                        // there is no folder, or no memory
  }
}

FarmTally::~FarmTally() {
  if (sheet_ == nullptr || process_ != ::getpid()) return;
  if (sheet_->ended == 0) end(-1, "it could not go on");
  ::munmap(sheet_, sizeof(Sheet));
  ::unlink(path_.c_str());
}

void FarmTally::set(const FarmCounts& counts) noexcept {
  if (sheet_ == nullptr) return;
  FarmCounts& shown = sheet_->counts;
  store(shown.workers, counts.workers);
  store(shown.queued, counts.queued);
  store(shown.running, counts.running);
  store(shown.done, counts.done);
  store(shown.failed, counts.failed);
  store(shown.total, counts.total);
}

void FarmTally::note_failure(std::string_view text) noexcept {
  if (sheet_ == nullptr) return;
  sheet_->change([&] {
    Sheet::Failure& failure = sheet_->last_failures[sheet_->failures % failures_kept];
    failure.time = wall_nanoseconds();
    copy_text(failure.text, text);
    ++sheet_->failures;
  });
}

void FarmTally::end(int status, std::string_view reason) noexcept {
  if (sheet_ == nullptr) return;
  sheet_->change([&] {
    sheet_->ended = wall_nanoseconds();
    sheet_->status = status;
    copy_text(sheet_->reason, reason);
  });
}

std::vector<std::string> FarmWatch::find(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.ends_with(suffix)) continue;
    std::error_code of_entry;
    const auto written = entry->last_write_time(of_entry);
    const bool is_old = !of_entry && fs::file_time_type::clock::now() - written > dead_stays;
    if (is_old) {
      const auto report = FarmWatch(folder, name).read();
      if (!report || !report->lives) {
        ::unlink(entry->path().c_str());
        continue;
      }
    }
    names.push_back(name);
  }
  return names;
}

FarmWatch::FarmWatch(const std::string& folder, const std::string& name)
    : file_(::open((folder + "/" + name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) {}

std::optional<FarmReport> FarmWatch::read() const {
  using Sheet = FarmTally::Sheet;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  const bool lives = ::fcntl(file_.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  const auto read_changes = [this](std::uint64_t& changes) {
    return ::pread(file_.get(), &changes, sizeof changes, offsetof(Sheet, changes)) == sizeof changes;
  };
  Sheet sheet{};
  // Read by themselves: the system copies a file in what order it likes.
  std::uint64_t before = 0;
  std::uint64_t after = 1;
  for (int i = 0; i < 100 && (before != after || after % 2 != 0); ++i) {
    if (!read_changes(before)) return std::nullopt;
    if (::pread(file_.get(), &sheet, sizeof sheet, 0) != sizeof sheet || sheet.mark != mark) return std::nullopt;
    if (!read_changes(after)) return std::nullopt;
    if (!lives) break;  // whoever was writing does not go on
  }
  if (lives && (before != after || after % 2 != 0)) return std::nullopt;
  FarmReport report{.kind = text_of(sheet.kind),
                    .title = text_of(sheet.title),
                    .begun = seconds_of(sheet.begun),
                    .status = static_cast<int>(sheet.status),
                    .reason = text_of(sheet.reason),
                    .counts = sheet.counts,
                    .process = lives ? static_cast<int>(lock.l_pid) : 0,
                    .lives = lives};
  if (sheet.ended != 0) report.ended = seconds_of(sheet.ended);
  const std::uint64_t kept = std::min<std::uint64_t>(sheet.failures, FarmTally::failures_kept);
  for (std::uint64_t i = sheet.failures - kept; i < sheet.failures; ++i) {
    const Sheet::Failure& failure = sheet.last_failures[i % FarmTally::failures_kept];
    report.failures.push_back({seconds_of(failure.time), text_of(failure.text)});
  }
  return report;
}

}  // namespace aplib
