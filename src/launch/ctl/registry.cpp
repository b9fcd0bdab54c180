// SPDX-License-Identifier: MIT
#include "launch/ctl/registry.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "base/text.hpp"

namespace aplib::launch::ctl {

namespace {

constexpr char escape = '%';

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> decode(std::string_view text) {
  if (text.empty()) return std::nullopt;
  std::string word;
  if (text.size() == 1 && text.front() == escape) return word;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != escape) {
      word += text[at];
      continue;
    }
    const int high = at + 2 < text.size() ? digit(text[at + 1]) : -1;
    const int low = at + 2 < text.size() ? digit(text[at + 2]) : -1;
    if (high < 0 || low < 0) return std::nullopt;
    word += static_cast<char>(high * 16 + low);
    at += 2;
  }
  return word;
}

}  // namespace

std::string join_words(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (word.empty()) line += escape;
    for (const char c : word) {
      const auto code = static_cast<unsigned char>(c);
      if (code <= ' ' || code >= 0x7f || c == escape) {
        line += fmt::format("{}{:02X}", escape, code);
      } else {
        line += c;
      }
    }
  }
  return line;
}

std::optional<std::vector<std::string>> split_words(std::string_view line) {
  std::vector<std::string> words;
  if (line.empty()) return words;
  for (std::size_t at = 0; at <= line.size();) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    auto word = decode(line.substr(at, end - at));
    if (!word) return std::nullopt;
    words.push_back(std::move(*word));
    at = end + 1;
  }
  return words;
}

namespace {

/// False: too long.
bool fill(sockaddr_un& address, const std::string& path) {
  address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return false;
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return true;
}

const sockaddr* plain(const sockaddr_un& address) { return reinterpret_cast<const sockaddr*>(&address); }

}  // namespace

RegistrySocket::~RegistrySocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

RegistrySocket::RegistrySocket(RegistrySocket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

RegistrySocket& RegistrySocket::operator=(RegistrySocket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

RegistrySocket RegistrySocket::make() { return RegistrySocket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

int RegistrySocket::connect(const std::string& path) const {
  sockaddr_un address;
  return fill(address, path) ? ::connect(descriptor_, plain(address), sizeof address) : -1;
}

int RegistrySocket::listen(const std::string& path) const {
  constexpr int waiting_max = 16;
  const std::string before = path + ".new";
  sockaddr_un address;
  if (!fill(address, before)) return -1;
  ::unlink(before.c_str());
  if (::bind(descriptor_, plain(address), sizeof address) != 0) return -1;
  if (::listen(descriptor_, waiting_max) == 0 && ::rename(before.c_str(), path.c_str()) == 0) return 0;
  const int error = errno;
  ::unlink(before.c_str());
  errno = error;
  return -1;
}

bool RegistrySocket::send(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

uid_t RegistrySocket::peer_user() const {
  ucred who{};
  socklen_t size = sizeof who;
  return ::getsockopt(descriptor_, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 ? who.uid : static_cast<uid_t>(-1);
}

namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".job";
constexpr std::size_t answer_bytes_max = std::size_t{64} << 20;

[[noreturn]] void refuse(const std::string& text) { throw Error(Errc::failed, text); }

std::string number(std::uint64_t value) { return fmt::format("{}", value); }

std::optional<std::uint32_t> small(const std::string& text) {
  const auto value = text::parse_number(text);
  if (!value || *value > 0xffff'ffffU) return std::nullopt;
  return static_cast<std::uint32_t>(*value);
}

/// Numbers from words, as long as they are some.
class Numbers {
 public:
  explicit Numbers(const std::vector<std::string>& words) : words_(words) {}
  template <class Number>
  void read(std::size_t index, Number& into) {
    const auto value = text::parse_number(words_[index]);
    good_ = good_ && value && *value <= std::numeric_limits<Number>::max();
    if (good_) into = static_cast<Number>(*value);
  }
  [[nodiscard]] bool good() const { return good_; }

 private:
  const std::vector<std::string>& words_;
  bool good_ = true;
};

bool read_job(const std::vector<std::string>& words, JobStatus& status) {
  if (words.size() < 7) return false;
  Numbers numbers(words);
  numbers.read(2, status.seconds);
  numbers.read(3, status.grid.nx);
  numbers.read(4, status.grid.ny);
  status.state = words[1];
  status.file = words[5];
  status.program = words[6];
  return numbers.good();
}

bool read_process(const std::vector<std::string>& words, JobStatus& status) {
  if (words.size() < 12) return false;
  JobProcess process;
  Numbers numbers(words);
  process.name = words[1];
  process.computer = words[2];
  numbers.read(3, process.pid);
  process.address = words[4];
  numbers.read(5, process.first_cell);
  numbers.read(6, process.cells);
  process.state = words[7];
  numbers.read(8, process.frames_sent);
  numbers.read(9, process.bytes_sent);
  numbers.read(10, process.frames_received);
  numbers.read(11, process.bytes_received);
  status.processes.push_back(std::move(process));
  return numbers.good();
}

/// Of the process whose line came last.
bool read_way(const std::vector<std::string>& words, JobStatus& status) {
  if (words.size() < 4 || status.processes.empty()) return false;
  status.processes.back().ways.push_back({words[1], words[2], words[3]});
  return true;
}

/// Of "123.job"; nothing: something else.
std::optional<std::uint32_t> job_of(const std::string& name) {
  if (!name.ends_with(suffix)) return std::nullopt;
  return small(name.substr(0, name.size() - suffix.size()));
}

/// Names in the folder, rising.
std::vector<std::uint32_t> found_jobs(const std::string& folder) {
  std::vector<std::uint32_t> jobs;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto job = job_of(entry->path().filename().string())) jobs.push_back(*job);
  }
  std::ranges::sort(jobs);
  return jobs;
}

/// Whether somebody listens there; else the name is removed.
bool answers(const std::string& folder, std::uint32_t job) {
  const std::string path = job_socket(folder, job);
  const RegistrySocket socket = RegistrySocket::make();
  if (socket.connect(path) == 0) return true;
  // It listened before it got this name: nobody is behind it any more.
  if (errno == ECONNREFUSED) ::unlink(path.c_str());
  return false;
}

}  // namespace

std::string status_lines(const JobStatus& status) {
  std::string lines = join_words({"job", status.state, number(status.seconds), number(status.grid.nx),
                                  number(status.grid.ny), status.file, status.program}) +
                      '\n';
  for (const JobProcess& process : status.processes) {
    lines += join_words({"process", process.name, process.computer, number(process.pid), process.address,
                         number(process.first_cell), number(process.cells), process.state, number(process.frames_sent),
                         number(process.bytes_sent), number(process.frames_received), number(process.bytes_received)}) +
             '\n';
    for (const JobWay& way : process.ways) lines += join_words({"way", way.module, way.peers, way.text}) + '\n';
  }
  return lines;
}

std::optional<JobStatus> read_status_lines(std::string_view lines) {
  JobStatus status;
  bool job = false;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const auto words = split_words(lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (!words || words->empty()) return std::nullopt;
    if (words->front() == "job") {
      if (job || !read_job(*words, status)) return std::nullopt;
      job = true;
    } else if (words->front() == "process") {
      if (!read_process(*words, status)) return std::nullopt;
    } else if (words->front() == "way") {
      if (!read_way(*words, status)) return std::nullopt;
    }  // what a later version adds is skipped
  }
  if (!job) return std::nullopt;
  return status;
}

std::string registry_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string folder = runtime != nullptr && runtime[0] == '/' ? fmt::format("{}/aplib", runtime)
                                                                     : fmt::format("/tmp/aplib-{}", ::getuid());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    refuse(fmt::format("cannot make the folder {}: {}", folder, std::generic_category().message(errno)));
  struct stat found {};
  if (::lstat(folder.c_str(), &found) != 0)
    refuse(fmt::format("cannot look at the folder {}: {}", folder, std::generic_category().message(errno)));
  if (!S_ISDIR(found.st_mode) || found.st_uid != ::getuid() || (found.st_mode & 0077U) != 0) {
    refuse(
        fmt::format("{} is not a folder of this user alone, so it cannot be trusted: remove it, or set "
                    "XDG_RUNTIME_DIR to a folder of yours",
                    folder));
  }
  return folder;
}

std::string job_socket(const std::string& folder, std::uint32_t job) {
  return fmt::format("{}/{}{}", folder, job, suffix);
}

std::vector<std::uint32_t> registered_jobs(const std::string& folder) {
  std::vector<std::uint32_t> jobs;
  for (const std::uint32_t job : found_jobs(folder)) {
    if (answers(folder, job)) jobs.push_back(job);
  }
  return jobs;
}

void forget_dead_jobs(const std::string& folder) {
  for (const std::uint32_t job : found_jobs(folder)) {
    // The living are left in peace. A number that is no process here may be one of a container with the same folder.
    if (::kill(static_cast<pid_t>(job), 0) != 0 && errno == ESRCH) (void)answers(folder, job);
  }
}

std::string ask_job(const std::string& folder, std::uint32_t job, const std::vector<std::string>& request,
                    int seconds_max) {
  const RegistrySocket socket = RegistrySocket::make();
  if (socket.connect(job_socket(folder, job)) != 0) {
    const int error = errno;
    if (error == ENOENT || error == ECONNREFUSED) refuse(fmt::format("there is no job {}: see apctl list", job));
    refuse(fmt::format("job {} cannot be reached: {}", job, std::generic_category().message(error)));
  }
  if (socket.peer_user() != ::getuid()) refuse(fmt::format("job {} belongs to another user", job));
  const timeval limit{.tv_sec = seconds_max, .tv_usec = 0};
  ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (!socket.send(join_words(request) + '\n')) refuse(fmt::format("job {} has ended meanwhile", job));

  std::string answer;
  std::array<char, 16384> piece{};
  ssize_t count = 0;
  do {
    count = ::recv(socket.descriptor(), piece.data(), piece.size(), 0);
    if (count > 0) answer.append(piece.data(), static_cast<std::size_t>(count));
  } while ((count > 0 && answer.size() < answer_bytes_max) || (count < 0 && errno == EINTR));
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
    refuse(fmt::format("job {} has not answered for {} s; is its aprun stopped?", job, seconds_max));

  // The last line says how it went: an answer without it is none.
  const std::size_t last = answer.size() < 2 ? answer.npos : answer.rfind('\n', answer.size() - 2);
  const std::size_t begin = last == answer.npos ? 0 : last + 1;
  const auto words =
      split_words(std::string_view(answer).substr(begin, answer.size() - begin - (answer.ends_with('\n') ? 1 : 0)));
  if (!answer.ends_with('\n') || !words || words->empty()) refuse(fmt::format("job {} has ended meanwhile", job));
  if (words->front() == "error") refuse(words->size() > 1 ? (*words)[1] : std::string("it refuses"));
  if (words->front() != "end") refuse(fmt::format("job {} has ended meanwhile", job));
  answer.resize(begin);
  return answer;
}

}  // namespace aplib::launch::ctl
