// SPDX-License-Identifier: MIT
#include "launch/files/sender.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "launch/files/target.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch::files {
namespace {

constexpr std::size_t entries_bytes = std::size_t{32} << 10;  // of a frame of them, about
constexpr int attempts_max = 2;

}  // namespace

Sender::Sender(std::shared_ptr<const Manifest> manifest, Settings settings)
    : manifest_(std::move(manifest)), settings_(settings) {
  for (const std::string& problem : manifest_->problems) outcome_.add(problem);
}

wire::Bytes Sender::next() {
  wire::Bytes bytes;
  if (ended_ || stage_ == Stage::done || sent_ - taken_ + 2 * chunk_bytes > settings_.window) return bytes;
  bytes.reserve(chunk_bytes + frame_head_bytes);
  if (!begun_)
    append_frame(bytes, Begin{.host = manifest_->host, .pushes = settings_.pushes, .window = settings_.window});
  begun_ = true;
  if (stage_ == Stage::manifest) add_entries(bytes);
  const bool all_answered = settings_.pushes || (is_answered_ && answered_ == manifest_->entries.size());
  if (stage_ == Stage::files && all_answered) add_files(bytes);
  sent_ += bytes.size();
  return bytes;
}

void Sender::add_entries(wire::Bytes& to) {
  while (to.size() < chunk_bytes && stage_ == Stage::manifest) {
    Entries some;
    for (std::size_t bytes = 0; bytes < entries_bytes && entries_sent_ < manifest_->entries.size(); ++entries_sent_) {
      const Entry& entry = manifest_->entries[entries_sent_];
      bytes += entry.path.size() + entry.link.size() + sizeof entry;
      if (settings_.pushes && entry.kind == EntryKind::file)
        wanted_.emplace_back(static_cast<std::uint32_t>(entries_sent_), Answer{.kind = Answer::Kind::whole});
      some.entries.push_back(entry);
    }
    some.last = entries_sent_ == manifest_->entries.size();
    append_frame(to, some);
    if (some.last) stage_ = Stage::files;
  }
}

void Sender::add_files(wire::Bytes& to) {
  while (to.size() < chunk_bytes) {
    if (!open_ && wanted_.empty()) {
      append_frame(to, Done{outcome_});
      stage_ = Stage::done;
      return;
    }
    if (!(open_ ? add_data(to) : begin_next(to))) return;
  }
}

bool Sender::begin_next(wire::Bytes& to) {
  if (settings_.arrivals != nullptr && !has_come(wanted_.front().first, wanted_.front().second)) return false;
  const auto [entry, answer] = std::move(wanted_.front());
  wanted_.pop_front();
  begin_file(to, entry, answer, 1);
  return true;
}

/// As much of a file as its beginning takes.
bool Sender::has_come(std::uint32_t entry, const Answer& answer) {
  using State = Arrivals::State;
  const Arrivals::File file = settings_.arrivals->look(entry);
  if (file.state == State::lost) give_up(fmt::format("{} did not come", shown(manifest_->entries[entry].path)));
  if (file.state == State::coming)
    return answer.kind == Answer::Kind::whole || (answer.kind == Answer::Kind::rest && answer.bytes <= file.ready);
  return file.state == State::whole || file.state == State::kept;
}

/// Finds out what it is. False: errno says why.
bool Sender::open_file(Open& open) {
  const std::string place = manifest_->place(open.entry);
  const auto file = settings_.arrivals == nullptr ? Arrivals::File() : settings_.arrivals->look(open.entry);
  // A pipe may have taken the file's place, and must not hold us up.
  open.file = settings_.arrivals == nullptr ? os::UniqueFd(::open(place.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC))
                                            : settings_.arrivals->open(open.entry);
  struct stat status {};
  if (!open.file || ::fstat(open.file.get(), &status) != 0) return false;
  if (!S_ISREG(status.st_mode)) {
    errno = 0;
    return false;
  }
  constexpr std::uint64_t block = 512;
  const Entry& entry = manifest_->entries[open.entry];
  open.changes = file.changes;
  open.comes = file.state == Arrivals::State::coming;
  open.bytes = open.comes ? file.bytes : static_cast<std::uint64_t>(status.st_size);
  open.time = open.comes ? file.time : time_of(status);
  open.sparse =
      open.comes ? entry.stored < entry.bytes : static_cast<std::uint64_t>(status.st_blocks) * block < open.bytes;
  return true;
}

void Sender::begin_file(wire::Bytes& to, std::uint32_t entry, const Answer& answer, int attempt) {
  Open open{.entry = entry, .attempt = attempt};
  if (!open_file(open)) {
    outcome_.add(
        errno != 0 ? fmt::format("cannot read {}: {}", place_of(entry), os::text_of(errno))
                   : fmt::format("{} was replaced by something else while it was sent: start again", place_of(entry)));
    return append_frame(to, FileEnd{.entry = entry, .verdict = FileEnd::Verdict::dropped});
  }
  using Kind = Answer::Kind;
  if (answer.kind == Kind::compare || answer.kind == Kind::compare_only) {
    const bool same = answer.bytes == open.bytes && has_same(open, answer);
    if (same || answer.kind == Kind::compare_only) {
      return append_frame(
          to, FileEnd{.entry = entry, .verdict = same ? FileEnd::Verdict::same : FileEnd::Verdict::differs});
    }
  }
  if (answer.kind == Kind::rest && answer.bytes <= open.bytes) {
    auto sum = sum_of(open.file.get(), answer.bytes);
    const auto theirs = digest_of(answer.digest);
    if (sum && theirs && sum->digest() == *theirs) {
      open.sum = std::move(*sum);
      open.at = answer.bytes;
    }
  }
  append_frame(to, FileBegin{.entry = entry, .from = open.at, .bytes = open.bytes, .time = open.time});
  open.data_end = open.at;
  open_.emplace(std::move(open));
}

/// The sum of a file that came to this host and was verified. Null: it was not.
const comm::Digest* Sender::known_sum(std::uint32_t entry) const {
  return settings_.arrivals == nullptr ? nullptr : settings_.arrivals->look(entry).sum;
}

bool Sender::has_same(const Open& open, const Answer& answer) const {
  const auto theirs = digest_of(answer.digest);
  if (const comm::Digest* const known = known_sum(open.entry)) return theirs == *known;
  const auto sum = sum_of(open.file.get(), open.bytes);
  return sum && theirs && sum->digest() == *theirs;
}

/// How much of the open file has come. Nothing: it ends no more, or may not end yet.
std::optional<std::uint64_t> Sender::come_of(const Open& open) {
  const Arrivals::File file = settings_.arrivals->look(open.entry);
  if (file.state == Arrivals::State::lost) {
    give_up(fmt::format("{} did not come", shown(manifest_->entries[open.entry].path)));
    return std::nullopt;
  }
  if (file.state == Arrivals::State::unknown) return std::nullopt;
  if (file.state != Arrivals::State::coming) return open.bytes;
  if (file.ready <= open.at) return std::nullopt;  // also if all has come: it is not verified
  return std::min(file.ready, open.bytes);
}

/// Of a file that comes: the receiver may have begun it anew where another one was cut off.
ssize_t Sender::read_some(Open& open, std::span<std::byte> into) const {
  ssize_t got = 0;
  for (int attempt = 1; attempt <= 2; ++attempt) {
    do {
      got = ::pread(open.file.get(), into.data(), into.size(), static_cast<off_t>(open.at));
    } while (got < 0 && errno == EINTR);
    if (got != 0 || settings_.arrivals == nullptr) return got;
    open.file = settings_.arrivals->open(open.entry);
  }
  return got;
}

/// Adds the next data of the open file, or ends it. False: nothing more of it has come yet.
bool Sender::add_data(wire::Bytes& to) {
  Open& open = *open_;
  std::uint64_t come = open.bytes;
  if (settings_.arrivals != nullptr) {
    if (settings_.arrivals->look(open.entry).changes != open.changes) {
      append_frame(to, FileEnd{.entry = open.entry, .verdict = FileEnd::Verdict::dropped});
      wanted_.emplace_front(open.entry, Answer{.kind = Answer::Kind::whole});
      open_.reset();
      return true;
    }
    const auto some = come_of(open);
    if (!some) return false;
    come = *some;
  }
  if (open.at == open.bytes) {
    end_file(to);
    return true;
  }
  if (open.sparse && open.at == open.data_end && add_hole(to, come)) return true;
  const std::uint64_t end = open.sparse ? open.data_end : come;
  const std::size_t room = to.size() < chunk_bytes ? chunk_bytes - to.size() : 0;
  const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(std::max<std::size_t>(room, 1), end - open.at));
  const std::size_t head = to.size();
  append_head(to, FrameType::data, 0);
  const std::size_t begin = to.size();
  to.resize(begin + wanted);
  const ssize_t got = read_some(open, std::span(to).subspan(begin));
  if (got <= 0) {
    to.resize(head);
    if (got < 0) {
      drop_file(to, fmt::format("cannot read {}: {}", place_of(open.entry), os::text_of(errno)));
    } else {
      end_file(to);  // it has become shorter
    }
    return true;
  }
  to.resize(begin + static_cast<std::size_t>(got));
  const auto length = static_cast<std::uint32_t>(got);
  std::memcpy(to.data() + head, &length, sizeof length);
  if (!open.comes) open.sum.add(std::span(to).subspan(begin));
  open.at += static_cast<std::uint64_t>(got);
  open.data_end = std::max(open.data_end, open.at);
  return true;
}

/// Finds out where the next data of a file with holes lies, of what has come up to `end`. True: a hole comes first, and
/// was added.
bool Sender::add_hole(wire::Bytes& to, std::uint64_t end) {
  Open& open = *open_;
  const int file = open.file.get();
  const off_t data = ::lseek(file, static_cast<off_t>(open.at), SEEK_DATA);
  const bool rest_is_hole = data < 0 && errno == ENXIO;
  if (data < 0 && !rest_is_hole) {  // this file system does not tell
    open.sparse = false;
    return false;
  }
  const std::uint64_t next = rest_is_hole ? end : std::min(static_cast<std::uint64_t>(data), end);
  if (next == open.at) {
    const off_t hole = ::lseek(file, data, SEEK_HOLE);
    open.data_end = hole <= data ? end : std::min(static_cast<std::uint64_t>(hole), end);
    return false;
  }
  const std::uint64_t zeros = std::min(next - open.at, Hole::bytes_max);
  append_frame(to, Hole{zeros});
  if (!open.comes) open.sum.add_zeros(zeros);
  open.at = open.data_end = open.at + zeros;
  return true;
}

bool Sender::changed(const Open& open) {
  struct stat status {};
  return open.at != open.bytes || ::fstat(open.file.get(), &status) != 0 ||
         static_cast<std::uint64_t>(status.st_size) != open.bytes || time_of(status) != open.time;
}

void Sender::end_file(wire::Bytes& to) {
  Open open = std::move(*open_);
  open_.reset();
  if (const comm::Digest* const known = known_sum(open.entry); known != nullptr && open.at == open.bytes)
    return append_frame(to, FileEnd{.entry = open.entry, .digest = {known->begin(), known->end()}});
  if (!changed(open)) {
    const comm::Digest sum = open.sum.digest();
    return append_frame(to, FileEnd{.entry = open.entry, .digest = {sum.begin(), sum.end()}});
  }
  append_frame(to, FileEnd{.entry = open.entry, .verdict = FileEnd::Verdict::dropped});
  if (open.attempt < attempts_max)
    return begin_file(to, open.entry, Answer{.kind = Answer::Kind::whole}, open.attempt + 1);
  outcome_.add(
      fmt::format("{} changes while it is sent: send it again when nothing writes to it", place_of(open.entry)));
}

void Sender::drop_file(wire::Bytes& to, const std::string& why) {
  outcome_.add(why);
  append_frame(to, FileEnd{.entry = open_->entry, .verdict = FileEnd::Verdict::dropped});
  open_.reset();
}

void Sender::give_up(std::string why) {
  if (ended_) return;
  ended_ = true;
  open_.reset();
  outcome_.add(std::move(why));
}

void Sender::take(std::span<const std::byte> bytes) {
  said_.add(bytes);
  while (!ended_) {
    const auto frame = said_.next();
    if (!frame) break;
    take_frame(*frame);
  }
  if (said_.bad()) give_up("what the receiver of the files says makes no sense: are all installations the same?");
}

void Sender::take_frame(const Frame& frame) {
  switch (frame.type) {
    case FrameType::answers:
      if (auto answers = wire::decode<Answers>(frame.body)) return take_answers(std::move(*answers));
      break;
    case FrameType::taken:
      if (const auto taken = wire::decode<Taken>(frame.body);
          taken && taken->bytes >= taken_ && taken->bytes <= sent_) {
        taken_ = taken->bytes;
        return;
      }
      break;
    case FrameType::finished:
      if (auto finished = wire::decode<Finished>(frame.body)) {
        ended_ = true;
        open_.reset();
        for (std::string& problem : finished->outcome.problems) problem = one_line(problem);
        // It has heard our problems only if it has got to the end.
        Outcome ours = std::exchange(outcome_, std::move(finished->outcome));
        if (stage_ == Stage::done) return;
        for (std::string& problem : ours.problems) outcome_.add(std::move(problem));
        if (outcome_.good()) outcome_.add("the receiver of the files ends the transfer, and does not say why");
        return;
      }
      break;
    default:
      break;
  }
  give_up("what the receiver of the files says makes no sense: are all installations the same?");
}

void Sender::take_answers(Answers answers) {
  if (settings_.pushes || answers.answers.size() > entries_sent_ - answered_)
    return give_up("the receiver of the files answers what nobody asked: are all installations the same?");
  is_answered_ = true;
  for (Answer& answer : answers.answers) {
    const auto entry = static_cast<std::uint32_t>(answered_++);
    if (answer.kind == Answer::Kind::nothing || manifest_->entries[entry].kind != EntryKind::file) continue;
    wanted_.emplace_back(entry, std::move(answer));
  }
}

}  // namespace aplib::launch::files
