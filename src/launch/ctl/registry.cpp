// SPDX-License-Identifier: MIT
#include "launch/ctl/registry.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/local_socket.hpp"
#include "base/text.hpp"

namespace aplib::launch::ctl {

namespace {

/// Returns false if the path is too long.
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

constexpr std::string_view unready = ".new";  // ends the name of a socket that does not listen yet

}  // namespace

bool RegistrySocket::is_made() const noexcept {
  if (descriptor_) return true;
  errno = error_;
  return false;
}

RegistrySocket RegistrySocket::make() { return RegistrySocket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

void RegistrySocket::limit_waits(std::chrono::microseconds time) const {
  const timeval limit{.tv_sec = time.count() / 1'000'000, .tv_usec = time.count() % 1'000'000};
  ::setsockopt(descriptor_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

int RegistrySocket::connect(const std::string& path) const {
  sockaddr_un address;
  if (!is_made() || !fill(address, path)) return -1;
  int result = 0;
  do {  // a connection that waits for its turn is not restarted after a stop where its wait is limited
    result = ::connect(descriptor_.get(), plain(address), sizeof address);
  } while (result < 0 && errno == EINTR);
  return result;
}

int RegistrySocket::listen(const std::string& path) const {
  constexpr int waiting_max = 16;
  const std::string before = path + std::string(unready);
  sockaddr_un address;
  if (!is_made() || !fill(address, before)) return -1;
  // One that was killed may have left it. Anything else of that name is somebody's.
  struct stat there {};
  if (::lstat(before.c_str(), &there) == 0 && S_ISSOCK(there.st_mode) && make().connect(before) != 0)
    ::unlink(before.c_str());
  if (::bind(descriptor_.get(), plain(address), sizeof address) != 0) return -1;
  if (::listen(descriptor_.get(), waiting_max) == 0 && ::rename(before.c_str(), path.c_str()) == 0) return 0;
  const int error = errno;
  ::unlink(before.c_str());
  errno = error;
  return -1;
}

bool RegistrySocket::send(std::span<const std::byte> bytes) const {
  ByteWriter whole;
  whole.number(static_cast<std::uint32_t>(bytes.size()));
  whole.raw(bytes);
  return os::send_all(descriptor_.get(), whole.bytes());
}

std::optional<wire::Bytes> RegistrySocket::receive(std::size_t bytes_max, const std::function<bool()>& readable) const {
  constexpr std::size_t head_bytes = sizeof(std::uint32_t);
  wire::Bytes got;
  std::size_t wanted = head_bytes;
  std::array<std::byte, 16384> piece{};
  while (got.size() < wanted) {
    if (!readable()) return std::nullopt;
    const ssize_t count = ::recv(descriptor_.get(), piece.data(), std::min(piece.size(), wanted - got.size()), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    got.insert(got.end(), piece.begin(), piece.begin() + count);
    if (got.size() != head_bytes || wanted != head_bytes) continue;
    const auto bytes = ByteReader(got).number<std::uint32_t>();
    if (bytes > bytes_max) return std::nullopt;
    wanted += bytes;
  }
  got.erase(got.begin(), got.begin() + head_bytes);
  return got;
}

uid_t RegistrySocket::peer_user() const {
  const auto who = os::peer_of(descriptor_.get());
  return who ? who->uid : static_cast<uid_t>(-1);
}

namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".job";
constexpr std::string_view end_suffix = ".end";  // behind the whole name of the socket
constexpr std::chrono::seconds end_stays{60};
constexpr std::string_view folder_suffix = ".sockets";
constexpr std::string_view keeper_suffix = ".keeper";
constexpr std::size_t answer_bytes_max = std::size_t{64} << 20;

[[noreturn]] void refuse(const std::string& text) { throw Error(Errc::failed, text); }

std::optional<std::uint32_t> small(const std::string& text) {
  const auto value = text::parse_number(text);
  if (!value || *value > 0xffff'ffffU) return std::nullopt;
  return static_cast<std::uint32_t>(*value);
}

/// The job number of "123.job". Nothing for other names.
std::optional<std::uint32_t> job_of(std::string_view name, std::string_view ending = suffix) {
  if (!name.ends_with(ending)) return std::nullopt;
  return small(std::string(name.substr(0, name.size() - ending.size())));
}

/// Whether a process of this number is on this computer.
bool lives(std::uint32_t job) { return ::kill(static_cast<pid_t>(job), 0) == 0 || errno != ESRCH; }

/// No process has that socket any more. One that has it does not notice the question, because of the socket's type.
bool is_dead(const std::string& path) {
  const RegistrySocket asking(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return asking.descriptor() >= 0 && asking.connect(path) != 0 && errno == ECONNREFUSED;
}

/// Whether an aprun listens there. If its process has gone, removes the name.
bool answers(const std::string& folder, std::uint32_t job) {
  const std::string path = job_socket(folder, job);
  const RegistrySocket socket = RegistrySocket::make();
  socket.limit_waits(std::chrono::milliseconds(1));
  if (socket.connect(path) == 0 || errno == EAGAIN) return true;  // a stopped one does not accept
  if (errno == EMFILE || errno == ENFILE) return true;            // who asks it something is told
  // A socket gets this name after it listens, so the process of this one has gone.
  if (errno == ECONNREFUSED) ::unlink(path.c_str());
  return false;
}

}  // namespace

Reply text_reply(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {{}, wire::Bytes(bytes.begin(), bytes.end())};
}

std::string text_of(const wire::Bytes& content) {
  return {reinterpret_cast<const char*>(content.data()), content.size()};
}

std::string job_socket(const std::string& folder, std::uint32_t job) {
  return fmt::format("{}/{}{}", folder, job, suffix);
}

std::vector<std::uint32_t> found_jobs(const std::string& folder) {
  std::vector<std::uint32_t> jobs;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (const auto job = job_of(name)) {
      jobs.push_back(*job);
    } else if (name.ends_with(unready)) {  // perhaps of one that was killed before it listened
      const auto begun = job_of(std::string_view(name).substr(0, name.size() - unready.size()));
      if (begun && !lives(*begun)) ::unlink(entry->path().c_str());
    } else if (name.ends_with(end_suffix)) {
      const auto written = entry->last_write_time(error);
      if (error || fs::file_time_type::clock::now() - written > end_stays) ::unlink(entry->path().c_str());
      error.clear();
    }
  }
  std::ranges::sort(jobs);
  return jobs;
}

std::vector<std::uint32_t> registered_jobs(const std::string& folder) {
  std::vector<std::uint32_t> jobs;
  for (const std::uint32_t job : found_jobs(folder)) {
    if (answers(folder, job)) jobs.push_back(job);
  }
  return jobs;
}

void leave_end(const std::string& job_socket, const wire::MachineEnd& end) noexcept {
  try {
    const wire::Bytes bytes = wire::encode(end);
    const std::string path = job_socket + std::string(end_suffix);
    const std::string before = path + std::string(unready);
    const os::UniqueFd file(::open(before.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!file || !os::write_all(file.get(), text) || ::rename(before.c_str(), path.c_str()) != 0)
      ::unlink(before.c_str());
  } catch (const std::exception&) {  // without memory there is no file
  }
}

std::optional<wire::MachineEnd> read_end(const std::string& folder, std::uint32_t job) {
  const auto text = os::read_file(job_socket(folder, job) + std::string(end_suffix));
  return text ? wire::decode<wire::MachineEnd>(std::as_bytes(std::span(*text))) : std::nullopt;
}

std::string job_folder(const std::string& folder, std::uint32_t job) {
  return fmt::format("{}/{}{}", folder, job, folder_suffix);
}

void forget_dead_jobs(const std::string& folder) {
  for (const std::uint32_t job : found_jobs(folder)) {
    // Living processes are left alone. A number without a process here may belong to a container with the same folder.
    if (!lives(job)) (void)answers(folder, job);
  }
  std::vector<fs::path> dead;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto job = job_of(name, folder_suffix);
    if (job && !lives(*job) && !answers(folder, *job)) dead.push_back(entry->path());
    if (name.ends_with(keeper_suffix) && entry->is_socket(error) && is_dead(entry->path().string()))
      dead.push_back(entry->path());
  }
  for (const fs::path& each : dead) fs::remove_all(each, error);
}

wire::Bytes ask_job(const std::string& folder, std::uint32_t job, const std::vector<std::string>& request,
                    int seconds_max) {
  const auto refuse_silence = [&] {
    refuse(fmt::format("job {} has not answered for {} s; is its aprun stopped?", job, seconds_max));
  };
  const RegistrySocket socket = RegistrySocket::make();
  socket.limit_waits(std::chrono::seconds(seconds_max));
  if (socket.connect(job_socket(folder, job)) != 0) {
    const int error = errno;
    if (error == ENOENT || error == ECONNREFUSED) refuse(fmt::format("there is no job {}: see apctl list", job));
    if (error == EAGAIN) refuse_silence();
    refuse(fmt::format("job {} cannot be reached: {}", job, os::text_of(error)));
  }
  if (socket.peer_user() != ::getuid()) refuse(fmt::format("job {} belongs to another user", job));
  if (!socket.send(wire::encode(Request{request}))) refuse(fmt::format("job {} has ended meanwhile", job));

  // The limit holds for the whole answer, however slowly it comes.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds_max);
  bool in_time = true;
  const std::optional<wire::Bytes> bytes = socket.receive(answer_bytes_max, [&] {
    pollfd entry{socket.descriptor(), POLLIN, 0};
    int ready = 0;
    do {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
      ready = ::poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    } while (ready < 0 && errno == EINTR);
    in_time = ready > 0;
    return in_time;
  });
  if (!in_time) refuse_silence();
  if (!bytes) refuse(fmt::format("job {} has ended meanwhile", job));
  auto reply = wire::decode<Reply>(*bytes);
  if (!reply) refuse(fmt::format("job {} speaks another language: are apctl and aprun of the same installation?", job));
  if (!reply->problem.empty()) refuse(reply->problem);
  return std::move(reply->content);
}

}  // namespace aplib::launch::ctl
