// SPDX-License-Identifier: MIT
#include "farm/journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/crc.hpp>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::farm {
namespace {

constexpr std::size_t record_head_bytes = 12;

std::uint32_t checksum_of(std::span<const std::byte> bytes) {
  boost::crc_32_type sum;
  sum.process_bytes(bytes.data(), bytes.size());
  return sum.checksum();
}

/// Of a record's head. Without it, a length that is damaged would make all behind it the rest of one torn record.
std::uint32_t checksum_of(std::uint32_t length) { return checksum_of(std::as_bytes(std::span(&length, 1))); }

std::size_t hash_of(std::string_view function, std::span<const std::byte> arguments) {
  const std::string_view text(reinterpret_cast<const char*>(arguments.data()), arguments.size());
  return std::hash<std::string_view>()(function) * 31 + std::hash<std::string_view>()(text);
}

[[noreturn]] void refuse_journal(const std::string& file, const char* what) {
  throw Error(Errc::failed, fmt::format("journal {}: cannot {} it: {}", file, what, os::text_of(errno)));
}

}  // namespace

void append_record(launch::wire::Bytes& to, const JournalRecord& record) {
  const launch::wire::Bytes body = launch::wire::encode(record);
  ByteWriter head;
  const auto length = static_cast<std::uint32_t>(body.size());
  head.number(length);
  head.number(checksum_of(length));
  head.number(checksum_of(body));
  to.insert(to.end(), head.bytes().begin(), head.bytes().end());
  to.insert(to.end(), body.begin(), body.end());
}

JournalScan scan_journal(std::span<const std::byte> bytes) {
  JournalScan scan;
  for (;;) {
    const std::span<const std::byte> rest = bytes.subspan(scan.whole);
    if (rest.size() < record_head_bytes) return scan;
    ByteReader head(rest);
    const auto size = head.number<std::uint32_t>();
    const bool is_sound = size != 0 && head.number<std::uint32_t>() == checksum_of(size);
    const auto sum = head.number<std::uint32_t>();
    if (is_sound && size > rest.size() - record_head_bytes) return scan;  // it was being written
    const auto body = is_sound ? rest.subspan(record_head_bytes, size) : std::span<const std::byte>();
    if (!is_sound || checksum_of(body) != sum || !launch::wire::decode<JournalRecord>(body)) {
      // Room that a system which has crashed had made, and not filled: zeros. Of the last record, any part may lack.
      const bool is_last = is_sound && body.size() == rest.size() - record_head_bytes;
      const bool is_empty = std::ranges::all_of(rest, [](std::byte byte) { return byte == std::byte{0}; });
      scan.damaged = !is_empty && !is_last;
      return scan;
    }
    scan.records.push_back(scan.whole);
    scan.whole += record_head_bytes + size;
  }
}

JournalRecord record_at(std::span<const std::byte> bytes, std::size_t begin) {
  const auto size = ByteReader(bytes.subspan(begin)).number<std::uint32_t>();
  return *launch::wire::decode<JournalRecord>(bytes.subspan(begin + record_head_bytes, size));
}

Journal::Journal(const std::string& file)
    : file_(file), descriptor_(::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (!descriptor_) refuse_journal(file, "open");
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0 || !S_ISREG(status.st_mode))
    throw Error(Errc::bad_option, fmt::format("journal {}: it is no regular file; name another one", file));
  // A lock of this process alone: workers that are forked may outlive it for a moment.
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(descriptor_.get(), F_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES) refuse_journal(file, "lock");
    throw Error(Errc::bad_option, fmt::format("journal {}: another program uses it; name another file", file));
  }
  if (::fstat(descriptor_.get(), &status) != 0) refuse_journal(file, "look at");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size != 0) {
    void* const place = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor_.get(), 0);
    if (place == MAP_FAILED) refuse_journal(file, "map");
    map_ = {static_cast<std::byte*>(place), size};
  }
  const std::string_view text(reinterpret_cast<const char*>(map_.data()), map_.size());
  const std::string_view title = text.substr(0, std::min(text.size(), journal_title.size()));
  const bool is_ours = journal_title.starts_with(title);  // the title itself may be torn
  JournalScan scan;
  if (is_ours && title.size() == journal_title.size()) {
    past_ = std::span<const std::byte>(map_).subspan(title.size());
    scan = scan_journal(past_);
  }
  if (!is_ours || scan.damaged) {
    ::munmap(map_.data(), map_.size());
    throw Error(Errc::bad_option,
                is_ours ? fmt::format("journal {}: it is damaged from byte {} on: cut it there (truncate -s {}), and "
                                      "what was behind runs again, or name another file",
                                      file, title.size() + scan.whole, title.size() + scan.whole)
                        : fmt::format("journal {}: it is no journal of a farm; name another file", file));
  }
  for (const std::size_t begin : scan.records) {
    const JournalRecord record = record_at(past_, begin);
    left_[hash_of(record.function, record.arguments)].push_back(begin);
  }
  const std::size_t whole = past_.empty() && title != journal_title ? 0 : title.size() + scan.whole;
  if (whole != size && ::ftruncate(descriptor_.get(), static_cast<off_t>(whole)) != 0) {
    ::munmap(map_.data(), map_.size());
    refuse_journal(file, "cut");
  }
  if (whole == 0) {
    const auto title_bytes = std::as_bytes(std::span(journal_title));
    added_.assign(title_bytes.begin(), title_bytes.end());
    flush();
  }
}

Journal::~Journal() {
  flush();
  // submit() tells it. Behind the last one, nobody else does.
  if (!problem_.empty() && !is_told_)
    std::fprintf(stderr, "aplib: farm: %s; tasks whose results are missing there run again\n", problem_text().c_str());
  if (!map_.empty()) ::munmap(map_.data(), map_.size());
}

std::optional<launch::wire::Bytes> Journal::take(std::string_view function, std::span<const std::byte> arguments) {
  const std::lock_guard lock(mutex_);
  const auto found = left_.find(hash_of(function, arguments));
  if (found == left_.end()) return std::nullopt;
  std::deque<std::size_t>& records = found->second;
  for (auto each = records.begin(); each != records.end(); ++each) {
    const JournalRecord record = record_at(past_, *each);
    if (record.function != function || !std::ranges::equal(record.arguments, arguments)) continue;
    launch::wire::Bytes result(record.result.begin(), record.result.end());
    records.erase(each);
    if (records.empty()) left_.erase(found);
    return result;
  }
  return std::nullopt;
}

void Journal::add(const JournalRecord& record) {
  const std::lock_guard lock(mutex_);
  append_record(added_, record);
}

void Journal::flush() noexcept {
  const std::lock_guard lock(mutex_);
  if (added_.empty()) return;
  const std::string_view text(reinterpret_cast<const char*>(added_.data()), added_.size());
  // Behind a record that is not whole nothing must come.
  if (problem_.empty() && !os::write_all(descriptor_.get(), text)) problem_ = os::text_of(errno);
  added_.clear();
}

void Journal::check() {
  const std::lock_guard lock(mutex_);
  if (problem_.empty()) return;
  is_told_ = true;
  throw Error(Errc::failed, problem_text());
}

std::string Journal::problem_text() const { return fmt::format("journal {}: cannot write it: {}", file_, problem_); }

}  // namespace aplib::farm
