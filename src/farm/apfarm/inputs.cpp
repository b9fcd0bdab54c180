// SPDX-License-Identifier: MIT
#include "farm/apfarm/inputs.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstring>
#include <random>
#include <regex>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::farm {
namespace {

/// What one value may have: a longer one is no list of values.
constexpr std::size_t value_bytes_max = std::size_t{16} << 20;
/// std::regex takes stack for each byte of a match.
constexpr std::size_t regex_line_max = 8192;

constexpr std::string_view blanks = " \t\n\r\f\v";

}  // namespace

/// Cuts lines at what a regular expression matches, as Perl's split does. Perl's and ECMAScript's expressions mean the
/// same, but for what is refused here.
class Inputs::Columns {
 public:
  explicit Columns(const std::string& pattern) : pattern_(pattern) {
    refuse_what_differs();
    try {
      regex_.assign(pattern);
      // One character, or a run of such ones, needs no search.
      static const std::regex simple(R"((\\[^A-Za-z0-9]|\\[sdwtnrf]|[^\\^$.|?*+()[\]{}]|\[[^\]\[\\]*\])(\+?))");
      std::smatch parts;
      if (!std::regex_match(pattern, parts, simple)) return;
      const std::regex one(parts[1].str());
      is_one_.emplace();
      for (int c = 0; c <= UCHAR_MAX; ++c)
        (*is_one_)[static_cast<std::size_t>(c)] = std::regex_match(std::string(1, static_cast<char>(c)), one);
      runs_ = parts[2].length() != 0;
    } catch (const std::regex_error&) {
      refuse("it is no regular expression");
    }
  }

  void cut(const std::string& line, Values& values) const {
    if (is_one_) return cut_at_characters(line, values);
    if (line.size() > regex_line_max)
      refuse(
          fmt::format("a line has more than {} bytes, which only one character, or a run of such ones, as in ',' or "
                      "'\\s+', can cut",
                      regex_line_max));
    auto begin = line.begin();
    auto search_from = begin;
    std::smatch match;
    while (std::regex_search(
        search_from, line.end(), match, regex_,
        search_from == line.begin() ? std::regex_constants::match_default : std::regex_constants::match_prev_avail)) {
      // Nothing is cut off at a place without width.
      if (match[0].second == begin) {
        if (begin == line.end()) break;
        search_from = begin + 1;
        continue;
      }
      values.emplace_back(begin, match[0].first);
      for (std::size_t i = 1; i < match.size(); ++i) values.push_back(match[i].str());
      begin = search_from = match[0].second;
    }
    values.emplace_back(begin, line.end());
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Errc::bad_option, fmt::format("--colsep '{}': {}", pattern_, why));
  }

  void refuse_what_differs() const {
    bool in_class = false;
    for (std::size_t i = 0; i < pattern_.size(); ++i) {
      const char c = pattern_[i];
      const char next = i + 1 < pattern_.size() ? pattern_[i + 1] : '\0';
      if (c == '\\') {
        if (std::isalpha(static_cast<unsigned char>(next)) != 0 && std::strchr("sSdDwWbBtnrfx", next) == nullptr)
          refuse(fmt::format("\\{} is not there; use \\s, \\d, \\w, \\t or characters in brackets", next));
        ++i;
      } else if (c == '[') {
        in_class = true;
      } else if (c == ']') {
        in_class = false;
      } else if (!in_class && c == '(' && next == '?' && std::strchr(":=!", pattern_.c_str()[i + 2]) == nullptr) {
        refuse("of (?...) there are (?:...), (?=...) and (?!...)");
      } else if (!in_class && next == '+' && std::strchr("+*?}", c) != nullptr) {
        refuse(fmt::format("{}+ is not there; use {}", c, c));
      }
    }
  }

  void cut_at_characters(const std::string& line, Values& values) const {
    const auto is_one = [this](char c) { return (*is_one_)[static_cast<unsigned char>(c)]; };
    for (auto begin = line.begin();;) {
      const auto end = std::find_if(begin, line.end(), is_one);
      values.emplace_back(begin, end);
      if (end == line.end()) return;
      begin = runs_ ? std::find_if_not(end, line.end(), is_one) : end + 1;
    }
  }

  std::string pattern_;
  std::regex regex_;
  std::optional<std::array<bool, UCHAR_MAX + 1>> is_one_;
  bool runs_ = false;
};

ValueReader::ValueReader(os::UniqueFd descriptor, std::string name, std::string separator)
    : descriptor_(std::move(descriptor)), name_(std::move(name)), separator_(std::move(separator)) {}

ValueReader::State ValueReader::next(std::string& value) {
  for (bool read = false;; read = true) {
    const std::size_t end = buffer_.find(separator_, begin_);
    if (end != std::string::npos) {
      value.assign(buffer_, begin_, end - begin_);
      begin_ = end + separator_.size();
      return State::value;
    }
    if (ended_) {
      if (begin_ == buffer_.size()) return State::ended;
      value = buffer_.substr(std::exchange(begin_, buffer_.size()));
      return State::value;
    }
    if (read) return State::waits;
    buffer_.erase(0, std::exchange(begin_, 0));
    if (buffer_.size() > value_bytes_max)
      throw Error(Errc::failed,
                  fmt::format("{}: a value has more than {} bytes: is it a list, with a separator that -d "
                              "or -0 names?",
                              name_, value_bytes_max));
    std::array<char, 65536> bytes;
    const ssize_t count = ::read(descriptor_.get(), bytes.data(), bytes.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return State::waits;
    if (count < 0) throw Error(Errc::failed, fmt::format("cannot read {}: {}", name_, os::text_of(errno)));
    ended_ = count == 0;
    buffer_.append(bytes.data(), static_cast<std::size_t>(count));
  }
}

Inputs::~Inputs() = default;

ValueReader Inputs::open(const std::string& file) {
  if (file == "-") {
    if (std::exchange(reads_standard_input_, true))
      throw Error(Errc::bad_option, "standard input (-) is two sources of values; it can be one");
    os::UniqueFd copy(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
    return {std::move(copy), "standard input", style_.separator};
  }
  os::UniqueFd descriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor) throw Error(Errc::bad_option, fmt::format("cannot open {}: {}", file, os::text_of(errno)));
  return {std::move(descriptor), file, style_.separator};
}

/// The next value of what `read` gives.
Inputs::State Inputs::filtered(const std::function<State(std::string&)>& read, Filter& filter,
                               std::string& value) const {
  while (!filter.ended) {
    std::string piece;
    const State state = read(piece);
    if (state == State::waits) return state;
    if (state == State::ended || (style_.last && piece == *style_.last)) {
      filter.ended = true;
      value = std::exchange(filter.begun, "");
      return value.empty() ? State::ended : State::value;
    }
    if (style_.skips_blank && piece.find_first_not_of(blanks) == std::string::npos) continue;
    filter.begun += piece;
    if (style_.lines && (piece.ends_with(' ') || piece.ends_with('\t'))) continue;
    value = std::exchange(filter.begun, "");
    return State::value;
  }
  return State::ended;
}

Inputs::Values Inputs::all_of(const InputSource& source) {
  Filter filter;
  Values pieces;  // a word may have several values
  for (const std::string& word : source.words) {
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = word.find(style_.separator, begin)) != word.npos;
         begin = end + style_.separator.size())
      pieces.push_back(word.substr(begin, end - begin));
    pieces.push_back(word.substr(begin));
  }
  std::optional<ValueReader> reader;
  if (!source.file.empty()) reader.emplace(open(source.file));
  auto piece = pieces.begin();
  const auto read = [&](std::string& value) {
    if (reader) return reader->next(value);
    if (piece == pieces.end()) return State::ended;
    value = *piece++;
    return State::value;
  };
  Values all;
  std::string value;
  for (State state = filtered(read, filter, value); state != State::ended; state = filtered(read, filter, value)) {
    if (state == State::value) all.push_back(value);
  }
  note_names(all);
  return all;
}

/// The first one names what follows.
void Inputs::note_names(Values& values) {
  if (!style_.named || values.empty()) return;
  if (values[0].ends_with('\r')) values[0].pop_back();  // of a file from Windows
  if (columns_)
    columns_->cut(values[0], names_);
  else
    names_.push_back(values[0]);
  values.erase(values.begin());
}

/// A record for each value of the shortest column, or of the longest one, when others begin `again`.
std::vector<Inputs::Values> Inputs::side_by_side(const std::vector<Values>& columns, bool again) {
  const auto by_size = [](const Values& column) { return column.size(); };
  std::size_t count = std::ranges::min(columns, {}, by_size).size();
  if (again && count != 0) count = std::ranges::max(columns, {}, by_size).size();
  std::vector<Values> rows(count);
  for (std::size_t i = 0; i < count; ++i) {
    for (const Values& column : columns) rows[i].push_back(column[i % column.size()]);
  }
  return rows;
}

Inputs::Inputs(std::vector<InputSource> sources, Style style) : style_(std::move(style)) {
  if (style_.columns) columns_ = std::make_unique<Columns>(*style_.columns);
  if (sources.empty()) sources.push_back({.file = "-"});
  values_in_record_ = sources.size();
  const bool alone = sources.size() == 1;
  if (style_.linked) {
    for (std::size_t i = 1; i < sources.size(); ++i) sources[i].linked = true;
  }
  const bool streams = !sources[0].file.empty() && (alone || !sources[1].linked);
  std::size_t next = 0;
  const auto read_next = [&] {
    Values values = all_of(sources[next++]);
    if (values.empty() && !alone) values.emplace_back();  // among several, an empty source has an empty value
    return values;
  };
  if (streams) {
    first_.emplace(open(sources[next++].file));
    first_had_any_ = alone;
    std::string name;
    State state = State::waits;
    while (style_.named && state == State::waits)
      state = filtered([&](std::string& value) { return first_->next(value); }, first_filter_, name);
    Values names;
    if (state == State::value) names.push_back(name);
    note_names(names);
  }
  for (bool first = !streams; next < sources.size(); first = false) {
    std::vector<Values> columns{read_next()};  // one source with those that are linked to it
    while (next < sources.size() && sources[next].linked) columns.push_back(read_next());
    std::vector<Values> rows = side_by_side(columns, style_.linked);
    first ? first_rows_ = std::move(rows) : others_.emplace_back(std::move(rows));
  }
  place_.resize(others_.size());
  std::uint64_t count = first_rows_.size();
  for (const auto& rows : others_) count *= rows.size();
  if (!first_ && style_.group != 0) count_ = (count + style_.group - 1) / style_.group;
}

Inputs::State Inputs::next_first(Values& row) {
  if (!first_) {
    if (next_first_row_ == first_rows_.size()) return State::ended;
    row = first_rows_[next_first_row_++];
    return State::value;
  }
  row.resize(1);
  const State state = filtered([this](std::string& value) { return first_->next(value); }, first_filter_, row[0]);
  if (state == State::waits || std::exchange(first_had_any_, true) || state == State::value) return state;
  row[0].clear();  // as of the other sources
  return State::value;
}

Inputs::State Inputs::next_record(Values& values) {
  if (!current_) {
    Values row;
    if (const State state = next_first(row); state != State::value) return state;
    current_ = std::move(row);
  }
  values = *current_;
  for (std::size_t i = 0; i < others_.size(); ++i) {
    const Values& row = others_[i][place_[i]];
    values.insert(values.end(), row.begin(), row.end());
  }
  std::size_t turn = others_.size();
  while (turn > 0 && ++place_[turn - 1] == others_[turn - 1].size()) place_[--turn] = 0;
  if (turn == 0) current_.reset();
  if (!columns_) return State::value;
  Values cut;
  for (const std::string& value : values) columns_->cut(value, cut);
  if (style_.trims) {
    for (std::string& value : cut) {
      value.erase(value.find_last_not_of(blanks) + 1);
      value.erase(0, std::min(value.find_first_not_of(blanks), value.size()));
    }
  }
  values = std::move(cut);
  return State::value;
}

/// Until a job's records are there, with the one that had no room, or the last ones.
Inputs::State Inputs::gather() {
  while (!ended_ && (style_.group == 0 || gathered_.size() < style_.group) && (room_ == 0 || gathered_size_ <= room_)) {
    Values record;
    const State state = next_record(record);
    if (state == State::waits) return state;
    ended_ = state == State::ended;
    if (ended_) break;
    if (room_ != 0) gathered_size_ += size_of_(record);
    gathered_.push_back(std::move(record));
  }
  return gathered_.empty() ? State::ended : State::value;
}

Inputs::State Inputs::next_job(Values& values) {
  if (const State state = gather(); state != State::value) return state;
  std::size_t count = gathered_.size();
  if (room_ != 0 && gathered_size_ > room_ && count > 1) --count;
  if (ended_ && spread_ != 0) {
    if (each_ == 0) each_ = (count + spread_ - 1) / spread_;
    count = std::min(count, each_);
  }
  values.clear();
  for (; count > 0; --count) {
    if (room_ != 0) gathered_size_ -= size_of_(gathered_.front());
    values.insert(values.end(), gathered_.front().begin(), gathered_.front().end());
    gathered_.pop_front();
  }
  return State::value;
}

Inputs::State Inputs::next(Values& values) {
  if (!style_.shuffled) return next_job(values);
  while (!shuffling_) {
    Values job;
    const State state = next_job(job);
    if (state == State::waits) return state;
    shuffling_ = state == State::ended;
    if (state == State::value) shuffled_.push_back(std::move(job));
    if (shuffling_) std::ranges::shuffle(shuffled_, std::mt19937_64(std::random_device()()));
  }
  if (shuffled_.empty()) return State::ended;
  values = std::move(shuffled_.back());
  shuffled_.pop_back();
  return State::value;
}

}  // namespace aplib::farm
