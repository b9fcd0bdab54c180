// SPDX-License-Identifier: MIT
#include "farm/apfarm/inputs.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::farm {
namespace {

/// What one value may have: a longer one is no list of values.
constexpr std::size_t value_bytes_max = std::size_t{16} << 20;

std::vector<std::string> split(const std::vector<std::string>& lines, const std::string& separator) {
  std::vector<std::string> values;
  for (const std::string& line : lines) {
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = line.find(separator, begin)) != line.npos; begin = end + separator.size())
      values.push_back(line.substr(begin, end - begin));
    values.push_back(line.substr(begin));
  }
  return values;
}

}  // namespace

ValueReader::ValueReader(os::UniqueFd descriptor, std::string name, char separator)
    : descriptor_(std::move(descriptor)), name_(std::move(name)), separator_(separator) {}

ValueReader::State ValueReader::next(std::string& value) {
  for (bool read = false;; read = true) {
    const std::size_t end = buffer_.find(separator_, begin_);
    if (end != std::string::npos) {
      value.assign(buffer_, begin_, end - begin_);
      begin_ = end + 1;
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
    if (count < 0) throw Error(Errc::failed, fmt::format("cannot read {}: {}", name_, std::strerror(errno)));
    ended_ = count == 0;
    buffer_.append(bytes.data(), static_cast<std::size_t>(count));
  }
}

ValueReader Inputs::open(const std::string& file, char separator) {
  if (file == "-") {
    if (std::exchange(reads_standard_input_, true))
      throw Error(Errc::bad_option, "standard input (-) is two sources of values; it can be one");
    os::UniqueFd copy(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
    return {std::move(copy), "standard input", separator};
  }
  os::UniqueFd descriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor) throw Error(Errc::bad_option, fmt::format("cannot open {}: {}", file, std::strerror(errno)));
  return {std::move(descriptor), file, separator};
}

Inputs::Row Inputs::all_of(const InputSource& source, char separator) {
  if (source.file.empty()) return source.words;
  ValueReader reader = open(source.file, separator);
  Row all;
  std::string value;
  for (auto state = reader.next(value); state != ValueReader::State::ended; state = reader.next(value)) {
    if (state == ValueReader::State::value) all.push_back(value);
  }
  return all;
}

Inputs::Inputs(std::vector<InputSource> sources, const Style& style) : group_(style.group), columns_(style.columns) {
  if (sources.empty()) sources.push_back({.file = "-"});
  if (group_ > 1 && sources.size() > 1)
    throw Error(Errc::bad_option, "-N takes several values of one source for a job; there are several sources");
  const bool streams = !sources[0].file.empty() && (sources.size() == 1 || !sources[1].linked);
  std::size_t next = 0;
  if (streams) first_.emplace(open(sources[next++].file, style.separator));
  for (bool first = !streams; next < sources.size(); first = false) {
    // One source with those that are linked to it. The shorter ones begin again from their first value.
    std::vector<Row> columns{all_of(sources[next++], style.separator)};
    while (next < sources.size() && sources[next].linked) columns.push_back(all_of(sources[next++], style.separator));
    std::size_t most = 0;
    for (const Row& column : columns) most = std::max(most, column.size());
    if (std::ranges::any_of(columns, [](const Row& column) { return column.empty(); })) most = 0;
    std::vector<Row> rows(most);
    for (std::size_t i = 0; i < most; ++i) {
      for (const Row& column : columns) rows[i].push_back(column[i % column.size()]);
    }
    first ? first_rows_ = std::move(rows) : others_.emplace_back(std::move(rows));
  }
  place_.resize(others_.size());
  std::uint64_t count = (first_rows_.size() + group_ - 1) / group_;
  for (const auto& rows : others_) count *= rows.size();
  if (!first_) count_ = count;
  ended_ = std::ranges::any_of(others_, [](const auto& rows) { return rows.empty(); });
}

ValueReader::State Inputs::next_first(Row& row) {
  if (!first_) {
    if (next_first_row_ == first_rows_.size()) return ValueReader::State::ended;
    row = first_rows_[next_first_row_++];
    return ValueReader::State::value;
  }
  row.resize(1);
  return first_->next(row[0]);
}

ValueReader::State Inputs::next(std::vector<std::string>& values) {
  if (ended_) return ValueReader::State::ended;
  if (!current_) {
    while (gathered_.size() < group_) {
      Row row;
      const auto state = next_first(row);
      if (state == ValueReader::State::waits) return state;
      if (state == ValueReader::State::ended) {
        ended_ = true;
        if (gathered_.empty()) return state;
        break;
      }
      if (group_ == 1) {
        gathered_ = std::move(row);
        break;
      }
      gathered_.push_back(std::move(row[0]));
    }
    current_ = std::exchange(gathered_, {});
  }
  values = *current_;
  for (std::size_t i = 0; i < others_.size(); ++i) {
    const Row& row = others_[i][place_[i]];
    values.insert(values.end(), row.begin(), row.end());
  }
  std::size_t turn = others_.size();
  while (turn > 0 && ++place_[turn - 1] == others_[turn - 1].size()) place_[--turn] = 0;
  if (turn == 0) current_.reset();
  if (!columns_.empty()) values = split(values, columns_);
  return ValueReader::State::value;
}

}  // namespace aplib::farm
