// SPDX-License-Identifier: MIT
#include "launch/files/receiver.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch::files {
namespace {

constexpr std::size_t answers_of_frame = 1000;
constexpr std::uint64_t told_parts = 8;  // of the window: how often the sender hears what is taken

bool write_at(int descriptor, std::span<const std::byte> bytes, std::uint64_t at) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    at += static_cast<std::uint64_t>(written);
  }
  return true;
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kilo = 1000;
  if (bytes < kilo) return fmt::format("{} bytes", bytes);
  const bool small = bytes < kilo * kilo;
  return fmt::format("{:.1f} {}", static_cast<double>(bytes) / static_cast<double>(small ? kilo : kilo * kilo),
                     small ? "kB" : "MB");
}

bool is_sound(const Entry& entry) {
  constexpr auto bytes_max = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const bool has_link =
      !entry.link.empty() && entry.link.size() <= Entry::path_bytes_max && entry.link.find('\0') == entry.link.npos;
  return is_safe_path(entry.path) && entry.bytes <= bytes_max && has_link == (entry.kind == EntryKind::link);
}

}  // namespace

void Receiver::take(std::span<const std::byte> bytes) {
  if (ended_) return;
  heard_.add(bytes);
  taken_ += bytes.size();
  bool good = true;
  while (good && !ended_) {
    const auto frame = heard_.next();
    if (!frame) break;
    good = take_frame(*frame);
  }
  if (!good || heard_.bad())
    decline("what the sender of the files says makes no sense: are all installations the same?");
  if (!ended_ && begun_ && taken_ - told_ >= window_ / told_parts) {
    told_ = taken_;
    append_frame(replies_, Taken{taken_});
  }
}

/// Returns false if it makes no sense now.
bool Receiver::take_frame(const Frame& frame) {
  if (frame.type == FrameType::begin) {
    auto begin = wire::decode<Begin>(frame.body);
    if (!begin || begun_ || (begin->pushes && settings_.waits)) return false;
    begun_ = true;
    pushes_ = begin->pushes;
    window_ = begin->window;
    manifest_->host = std::move(begin->host);
    return true;
  }
  if (frame.type == FrameType::entries) {
    auto entries = wire::decode<Entries>(frame.body);
    return entries && begun_ && !offered_ && take_entries(std::move(*entries));
  }
  if (!target_) return false;  // nothing was asked for yet
  switch (frame.type) {
    case FrameType::file_begin:
      if (const auto begin = wire::decode<FileBegin>(frame.body)) return take_begin(*begin);
      return false;
    case FrameType::data:
      return take_data(frame.body);
    case FrameType::hole:
      if (const auto hole = wire::decode<Hole>(frame.body)) return take_hole(hole->bytes);
      return false;
    case FrameType::file_end:
      if (const auto end = wire::decode<FileEnd>(frame.body)) return take_end(*end);
      return false;
    case FrameType::done:
      if (auto done = wire::decode<Done>(frame.body)) return take_done(std::move(done->outcome));
      return false;
    default:
      return false;
  }
}

bool Receiver::take_entries(Entries entries) {
  for (Entry& entry : entries.entries) {
    path_bytes_ += entry.path.size() + entry.link.size();
    if (!is_sound(entry) || manifest_->entries.size() >= Manifest::entries_max ||
        path_bytes_ > 2 * Manifest::path_bytes_max)
      return false;
    manifest_->entries.push_back(std::move(entry));
  }
  offered_ = entries.last;
  if (offered_ && !settings_.waits) accept(settings_.folder);
  return true;
}

void Receiver::accept(std::string folder) {
  if (ended_ || target_) return;
  try {
    target_.emplace(std::move(folder));
  } catch (const Error& error) {
    return decline(error.what());
  }
  if (settings_.arrivals != nullptr && !settings_.arrivals->offer(manifest_, target_->folder()))
    return decline("the files are not those that began to come: send them again");
  answer_all();
}

std::vector<Entry> Receiver::new_entries() const {
  std::vector<Entry> found;
  for (std::size_t i = 0; i < were_there_.size(); ++i) {
    if (!were_there_[i]) found.push_back(manifest_->entries[i]);
  }
  return found;
}

void Receiver::decline(const std::string& why) {
  if (ended_) return;
  coming_.reset();
  if (!why.empty()) outcome_.add(why);
  finish();
}

void Receiver::finish() {
  ended_ = true;
  append_frame(replies_, Finished{outcome_});
}

/// Says what is lacking, if there is room for it, and makes what needs no bytes.
void Receiver::answer_all() {
  answers_.resize(manifest_->entries.size());
  if (settings_.notes_new) were_there_.assign(manifest_->entries.size(), true);
  for (std::size_t i = 0; i < were_there_.size(); ++i) {
    try {
      were_there_[i] = target_->look(manifest_->entries[i].path).has_value();
    } catch (const Error&) {  // it cannot be made either, which is told there
    }
  }
  for (std::size_t i = 0; i < manifest_->entries.size(); ++i) {
    if (manifest_->entries[i].kind != EntryKind::file) continue;
    const auto entry = static_cast<std::uint32_t>(i);
    try {
      answers_[i] = pushes_ ? Answer{.kind = Answer::Kind::whole} : answer_file(entry);
      if (answers_[i].kind == Answer::Kind::nothing) tell(&Arrivals::settle, entry, std::nullopt);
    } catch (const Error& error) {
      outcome_.add(error.what());
      tell(&Arrivals::lose, entry);
    }
  }
  if (!has_room()) return;
  for (std::uint32_t i = 0; i < manifest_->entries.size(); ++i) {
    try {
      make(i);
    } catch (const Error& error) {
      outcome_.add(error.what());
    }
  }
  if (pushes_) return;
  std::size_t end = 0;
  do {
    const std::size_t at = end;
    end = std::min(at + answers_of_frame, answers_.size());
    Answers some;
    some.answers.assign(answers_.begin() + static_cast<std::ptrdiff_t>(at),
                        answers_.begin() + static_cast<std::ptrdiff_t>(end));
    append_frame(replies_, some);
  } while (end < answers_.size());  // that there is no entry is an answer, too
}

/// A folder or a link.
void Receiver::make(std::uint32_t i) {
  const Entry& entry = manifest_->entries[i];
  if (entry.kind == EntryKind::link) {
    ++(target_->make_link(entry.path, entry.link, settings_.existing) ? outcome_.placed : outcome_.kept);
  } else if (entry.kind == EntryKind::folder) {
    const bool is_new = target_->make_folder(entry.path, entry.mode);
    if (is_new || (settings_.arrivals != nullptr && settings_.arrivals->has(i))) folders_.push_back(i);
    if (is_new) tell(&Arrivals::settle, i, std::nullopt);
    if (is_new) ++outcome_.placed;
  }
}

Answer Receiver::answer_file(std::uint32_t i) {
  using Kind = Answer::Kind;
  const Entry& entry = manifest_->entries[i];
  if (settings_.arrivals != nullptr && settings_.arrivals->has(i)) {
    ++outcome_.kept;
    return {};
  }
  const bool refuses = settings_.existing == Existing::refuse;
  if (const auto status = target_->look(entry.path)) {
    const bool is_it = !manifest_->host.empty() && manifest_->host == settings_.host &&
                       status->st_dev == entry.device && status->st_ino == entry.inode;
    if (is_it) {
      ++outcome_.kept;
      return {};
    }
    const bool may_be_same = S_ISREG(status->st_mode) && static_cast<std::uint64_t>(status->st_size) == entry.bytes &&
                             (refuses || (time_of(*status) == entry.time && (status->st_mode & 0777) == entry.mode));
    if (may_be_same) {
      if (const auto sum = target_->sum(entry.path))
        return {refuses ? Kind::compare_only : Kind::compare, entry.bytes, {sum->begin(), sum->end()}};
    }
    if (refuses || S_ISDIR(status->st_mode)) throw Error(Errc::failed, target_->differs(entry.path));
  }
  if (settings_.resume && entry.bytes >= resumed_bytes_min) {
    if (const auto left = target_->left(entry.path); left && left->first <= entry.bytes)
      return {Kind::rest, left->first, {left->second.begin(), left->second.end()}};
  }
  return {.kind = Kind::whole};
}

/// Ends the transfer if the disk cannot take what is to come.
bool Receiver::has_room() {
  std::uint64_t needed = 0;
  for (std::size_t i = 0; i < manifest_->entries.size(); ++i) {
    if (answers_[i].kind == Answer::Kind::whole)
      needed += std::min(manifest_->entries[i].stored, manifest_->entries[i].bytes);
  }
  const auto free = target_->free_bytes();
  if (!free || needed <= *free) return true;
  decline(fmt::format("cannot write {}: {}: {} are to come, and {} are free there; make room, or choose another folder",
                      shown(target_->folder()), std::strerror(ENOSPC), size_text(needed), size_text(*free)));
  return false;
}

bool Receiver::take_begin(const FileBegin& begin) {
  if (coming_ || begin.entry >= manifest_->entries.size()) return false;
  const Answer& asked = answers_[begin.entry];
  const bool is_asked = asked.kind != Answer::Kind::nothing && asked.kind != Answer::Kind::compare_only;
  const bool goes_on = asked.kind == Answer::Kind::rest && begin.from == asked.bytes;
  constexpr auto bytes_max = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!is_asked || (begin.from != 0 && !goes_on) || begin.from > begin.bytes || begin.bytes > bytes_max) return false;
  Coming coming{.entry = begin.entry, .bytes = begin.bytes, .time = begin.time, .at = begin.from};
  const std::string& path = manifest_->entries[begin.entry].path;
  try {
    if (!os::file_may_have(begin.bytes))
      throw Error(Errc::failed, fmt::format("cannot write {}: {}", shown(path), os::text_of(errno)));
    coming.part = target_->begin(path, settings_.resume && begin.bytes >= resumed_bytes_min, begin.from);
    if (begin.from != 0) {
      auto sum = sum_of(coming.part.descriptor(), begin.from);
      if (!sum) throw Error(Errc::failed, fmt::format("cannot read what is there of {}: send it again", shown(path)));
      coming.sum = std::move(*sum);
    }
    tell(&Arrivals::begin, begin.entry, coming.part.descriptor(), begin.bytes, begin.time, begin.from);
  } catch (const Error& error) {
    coming.part = {};
    outcome_.add(error.what());
    tell(&Arrivals::lose, begin.entry);
  }
  coming_.emplace(std::move(coming));
  return true;
}

bool Receiver::take_data(std::span<const std::byte> bytes) {
  if (!coming_ || bytes.size() > coming_->bytes - coming_->at) return false;
  if (coming_->part) {
    if (!write_at(coming_->part.descriptor(), bytes, coming_->at)) {
      const int error = errno;
      const std::string path = shown(manifest_->entries[coming_->entry].path);
      decline(fmt::format("cannot write {} in {}: {}; make room there, or choose another folder", path,
                          shown(target_->folder()), std::strerror(error)));
      return true;
    }
    coming_->sum.add(bytes);
  }
  coming_->at += bytes.size();
  if (coming_->part) tell(&Arrivals::grow, coming_->at);
  return true;
}

bool Receiver::take_hole(std::uint64_t bytes) {
  if (!coming_ || bytes > Hole::bytes_max || bytes > coming_->bytes - coming_->at) return false;
  coming_->at += bytes;
  if (coming_->part) coming_->sum.add_zeros(bytes);
  if (coming_->part) tell(&Arrivals::grow, coming_->at);
  return true;
}

bool Receiver::take_end(const FileEnd& end) {
  using Verdict = FileEnd::Verdict;
  using Kind = Answer::Kind;
  if (end.entry >= manifest_->entries.size() || (coming_ && coming_->entry != end.entry)) return false;
  Answer& asked = answers_[end.entry];
  const bool compares = asked.kind == Kind::compare || asked.kind == Kind::compare_only;
  switch (end.verdict) {
    case Verdict::good:
      if (!coming_) return false;
      place_coming(end);
      break;
    case Verdict::same:
      if (coming_ || !compares) return false;
      ++outcome_.kept;
      tell(&Arrivals::settle, end.entry, digest_of(asked.digest));
      break;
    case Verdict::differs:
      if (coming_ || asked.kind != Kind::compare_only) return false;
      outcome_.add(target_->differs(manifest_->entries[end.entry].path));
      tell(&Arrivals::lose, end.entry);
      break;
    case Verdict::dropped:
      if (asked.kind == Kind::nothing) return false;
      if (coming_) coming_->part.spoil();
      if (coming_) tell(&Arrivals::drop, end.entry);
      coming_.reset();
      if (asked.kind == Kind::rest) asked.kind = Kind::whole;
      return true;  // it may come again; why it does not, the sender says in the end
  }
  coming_.reset();
  asked.kind = Kind::nothing;
  return true;
}

void Receiver::place_coming(const FileEnd& end) {
  Coming& coming = *coming_;
  const Entry& entry = manifest_->entries[coming.entry];
  if (!coming.part) return;
  const comm::Digest sum = coming.sum.digest();
  if (coming.at != coming.bytes || digest_of(end.digest) != sum) {
    coming.part.spoil();
    tell(&Arrivals::lose, coming.entry);
    return outcome_.add(fmt::format("{} came damaged: {} of {} bytes, or with another sum; send it again",
                                    shown(entry.path), coming.at, coming.bytes));
  }
  try {
    if (::ftruncate(coming.part.descriptor(), static_cast<off_t>(coming.bytes)) != 0)
      throw Error(Errc::failed, fmt::format("cannot write {}: {}", shown(entry.path), os::text_of(errno)));
    const bool placed =
        target_->place(std::move(coming.part), entry.path, entry.mode, coming.time, settings_.existing, sum);
    ++(placed ? outcome_.placed : outcome_.kept);
    tell(&Arrivals::settle, coming.entry, sum);
  } catch (const Error& error) {
    outcome_.add(error.what());
    tell(&Arrivals::lose, coming.entry);
  }
}

bool Receiver::take_done(Outcome theirs) {
  if (coming_) return false;
  const bool all_well = theirs.problems.empty() && outcome_.good();
  for (const std::string& problem : theirs.problems) outcome_.add(one_line(problem));
  outcome_.more_problems += theirs.more_problems;
  for (std::size_t i = 0; i < answers_.size() && all_well; ++i) {
    if (answers_[i].kind != Answer::Kind::nothing)
      outcome_.add(fmt::format("{} did not come: send it again", shown(manifest_->entries[i].path)));
  }
  tell(&Arrivals::end);
  finish_folders();
  finish();
  return true;
}

/// From the inside out: times change, and permissions may be lost, with what is made in them.
void Receiver::finish_folders() {
  for (auto folder = folders_.rbegin(); folder != folders_.rend(); ++folder) {
    const Entry& entry = manifest_->entries[*folder];
    try {
      target_->finish_folder(entry.path, entry.mode, entry.time);
    } catch (const Error& error) {
      outcome_.add(error.what());
    }
  }
}

}  // namespace aplib::launch::files
