// SPDX-License-Identifier: MIT
#include "launch/output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "launch/program_run.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch {

Destination::Destination(int descriptor, std::string name, bool owned)
    : descriptor_(descriptor),
      name_(std::move(name)),
      owned_(owned ? descriptor : -1),
      terminal_(::isatty(descriptor) == 1) {}

bool Destination::write(std::uint64_t writer, std::string_view text) {
  if (text.empty()) return true;
  const std::lock_guard lock(mutex_);
  if (error_ != 0) return true;
  if (open_ != nobody && open_ != writer) {
    error_ = write_all(descriptor_, fmt::format("\n{}", text));
  } else {
    error_ = write_all(descriptor_, text);
  }
  // A cleared line, as progress bars leave it, is as good as a new one.
  open_ = text.ends_with('\n') || text.ends_with("\r\033[K") ? nobody : writer;
  return error_ == 0;
}

bool Destination::is_open(std::uint64_t writer) {
  const std::lock_guard lock(mutex_);
  return open_ == writer;
}

std::string Destination::problem() {
  const std::lock_guard lock(mutex_);
  if (error_ == 0 || error_ == EPIPE) return {};
  return fmt::format("cannot write {}: {}", name_, std::strerror(error_));
}

namespace {

constexpr std::array channels{Channel::out, Channel::error};

/// Ends aprun by SIGPIPE, as every filter ends whose reader has gone. The calling thread may block this signal.
void take_pipe_signal() noexcept {
  sigset_t pipe;
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
}

bool same_file(int a, int b) {
  struct stat one {};
  struct stat other {};
  return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

int open_for_writing(int folder, const std::string& path, int more) {
  return ::openat(folder, path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | more, 0666);
}

}  // namespace

std::string cell_text(std::uint32_t cell) { return cell == Output::host ? "host" : std::to_string(cell); }

Output::Output(OutputPlan plan, int out, int error)
    : plan_(std::move(plan)), folder_(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  standard_[0] = std::make_shared<Destination>(out, "standard output", false);
  // If both are one terminal, an open line of one stream must be ended before the other stream goes on.
  standard_[1] = same_file(out, error) ? standard_[0] : std::make_shared<Destination>(error, "standard error", false);
}

bool Output::exclusive(Channel channel) const { return names_cell(pattern(channel)); }

void Output::prepare(std::uint32_t cells, bool with_host) {
  with_host_ = with_host;
  prepared_ = cells;
  const auto try_open = [](const std::string& path, const char* what, int descriptor) {
    const os::UniqueFd opened(descriptor);
    struct stat is {};
    const bool folder = opened && ::fstat(opened.get(), &is) == 0 && S_ISDIR(is.st_mode);
    if (opened && !folder) return;
    throw Error(Errc::failed, fmt::format("cannot {} {}: {}", what, path, os::text_of(folder ? EISDIR : errno)));
  };
  std::vector<std::uint32_t> all;
  for (std::uint32_t cell = 0; cell < cells; ++cell) all.push_back(cell);
  if (with_host) all.push_back(host);
  for (const Channel channel : channels) {
    if (pattern(channel).empty()) continue;
    for (const std::uint32_t cell : all) {
      const std::string path = expand_cell(pattern(channel), cell_text(cell));
      try_open(path, "write", open_for_writing(folder(), path, O_TRUNC));
      if (!exclusive(channel)) break;
    }
  }
  if (plan_.input.empty()) return;
  for (std::uint32_t cell = 0; cell < cells; ++cell) {
    const std::string path = expand_cell(plan_.input, cell_text(cell));
    try_open(path, "read", ::openat(folder(), path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!names_cell(plan_.input)) break;
  }
}

std::shared_ptr<Output::Cell> Output::cell_at(std::uint32_t cell) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Cell>& place = cells_[cell];
  if (place == nullptr) place = std::make_shared<Cell>();
  return place;
}

Destination& Output::destination(Cell& cell, std::uint32_t id, Channel channel) {
  std::shared_ptr<Destination>& place = cell.destinations[slot(channel)];
  if (place != nullptr) return *place;
  if (pattern(channel).empty()) {
    place = standard_[slot(channel)];
    return *place;
  }
  const std::string path = expand_cell(pattern(channel), cell_text(id));
  const std::lock_guard lock(mutex_);
  // A host program may have more cells than prepare() knew of.
  const bool first = id != host && id >= prepared_ && !files_.contains(path);
  place = files_[path].lock();
  if (place == nullptr) {
    const int descriptor = open_for_writing(folder(), path, first && exclusive(channel) ? O_TRUNC : 0);
    if (descriptor < 0) {
      if (problem_.empty()) problem_ = fmt::format("cannot write {}: {}", path, os::text_of(errno));
      place = std::make_shared<Destination>(::open("/dev/null", O_WRONLY | O_CLOEXEC), path, true);
    } else {
      place = std::make_shared<Destination>(descriptor, path, true);
    }
    files_[path] = place;
    if (!exclusive(channel)) shared_files_[path] = place;  // all cells' file stays open
  }
  return *place;
}

/// Passes `text`, which may begin and end within a line, and tags each line that starts in it.
void Output::pass(Cell& cell, std::uint32_t id, Channel channel, std::string_view text) {
  if (text.empty()) return;
  Line& line = cell.lines[slot(channel)];
  Destination& to = destination(cell, id, channel);
  if (!plan_.tags || exclusive(channel)) {
    put(to, writer(id, channel), text);
  } else {
    const std::string tag = fmt::format("[{}] ", cell_text(id));
    std::string tagged;
    // If another cell has written meanwhile, the rest of a line begins a new line.
    bool within = line.within && to.is_open(writer(id, channel));
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
      if (!within) tagged += tag;
      tagged += text.substr(at, end - at);
      within = false;
      at = end;
    }
    put(to, writer(id, channel), tagged);
  }
  line.within = !text.ends_with('\n');
}

void Output::put(Destination& to, std::uint64_t writer, std::string_view text) {
  if (to.write(writer, text)) return;
  const std::string problem = to.problem();
  if (problem.empty()) return take_pipe_signal();
  note(problem);
  if (lost_) lost_(problem);
}

void Output::write(std::uint32_t id, Channel channel, std::string_view bytes) {
  const std::shared_ptr<Cell> cell = cell_at(id);
  const std::lock_guard lock(cell->mutex);
  Line& line = cell->lines[slot(channel)];
  if (exclusive(channel)) {
    pass(*cell, id, channel, bytes);  // the file is this cell's alone
    return;
  }
  const std::size_t end = bytes.rfind('\n');
  if (end != bytes.npos) {
    const std::string_view complete = bytes.substr(0, end + 1);
    if (line.text.empty()) {
      pass(*cell, id, channel, complete);
    } else {
      line.text += complete;
      pass(*cell, id, channel, line.text);
      line.text.clear();
    }
    bytes.remove_prefix(end + 1);
  }
  if (line.text.size() + bytes.size() < line_bytes_max) {
    line.text += bytes;
  } else {
    show(*cell, id, channel);
    pass(*cell, id, channel, bytes);
  }
}

void Output::show(Cell& cell, std::uint32_t id, Channel channel) {
  Line& line = cell.lines[slot(channel)];
  pass(cell, id, channel, line.text);
  line.text.clear();
  if (line.text.capacity() > line_bytes_max / 16) line.text.shrink_to_fit();
}

void Output::flush(std::uint32_t id, Channel channel) {
  const std::shared_ptr<Cell> cell = cell_at(id);
  const std::lock_guard lock(cell->mutex);
  const Line& line = cell->lines[slot(channel)];
  if (line.text.empty()) return;
  const bool asks = id == 0 && plan_.input.empty() && !with_host_;  // a prompt, perhaps
  const bool seen = (asks || line.text.front() == '\r') && destination(*cell, id, channel).is_terminal();
  if (id == host || (plan_.sole && !with_host_) || seen) show(*cell, id, channel);
}

void Output::end(std::uint32_t id) {
  const std::shared_ptr<Cell> cell = cell_at(id);
  {
    const std::lock_guard lock(cell->mutex);
    for (const Channel channel : channels) {
      show(*cell, id, channel);
      if (cell->destinations[slot(channel)] != nullptr) note(cell->destinations[slot(channel)]->problem());
    }
    cell->input.reset();
  }
  const std::lock_guard lock(mutex_);
  cells_.erase(id);
}

void Output::end_all() {
  std::vector<std::uint32_t> ids;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, cell] : cells_) ids.push_back(id);
  }
  std::ranges::sort(ids);
  for (const std::uint32_t id : ids) end(id);
}

int Output::input(std::uint32_t id) {
  if (id == host || (plan_.input.empty() && id == 0 && !with_host_)) return STDIN_FILENO;
  if (plan_.input.empty()) return -1;
  const std::shared_ptr<Cell> cell = cell_at(id);
  const std::lock_guard lock(cell->mutex);
  if (!cell->input) {
    const std::string path = expand_cell(plan_.input, cell_text(id));
    cell->input.emplace(::openat(folder(), path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!*cell->input) note(fmt::format("cannot read {}: {}", path, os::text_of(errno)));
  }
  return cell->input->get();
}

void Output::note(std::string problem) {
  const std::lock_guard lock(mutex_);
  if (problem_.empty()) problem_ = std::move(problem);
}

std::string Output::problem() {
  const std::lock_guard lock(mutex_);
  return problem_;
}

}  // namespace aplib::launch
