// SPDX-License-Identifier: MIT
#include "launch/pool/pool.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "base/text.hpp"
#include "launch/ctl/registry.hpp"
#include "launch/start/ssh_master.hpp"

namespace aplib::launch::pool {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view folder_ending = ".pool";
constexpr std::string_view lock_ending = ".pool-lock";
constexpr const char* state_name = "/pool";  // the key, the id, the cluster file's path
constexpr const char* known_name = "/known";
constexpr const char* file_name = "/cluster.toml";
constexpr const char* job_name = "/job";
constexpr const char* led_name = "/led";
constexpr std::size_t name_bytes_max = 32;  // names of sockets are short
constexpr int start_silences = 3;           // peer-timeout: a busy host takes longer to start than to give a sign

std::string folder_of(const std::string& name) {
  return fmt::format("{}/{}{}", ctl::registry_folder(), name, folder_ending);
}

[[noreturn]] void refuse(const std::string& subject) {
  throw Error(Errc::failed, fmt::format("{}: {}", subject, os::text_of(errno)));
}

/// Nobody else can read it, also before it is written.
void write_file(const std::string& path, std::string_view text) {
  const os::UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file || !os::write_all(file.get(), text)) refuse(fmt::format("cannot write {}", path));
}

bool same_computer(const cluster::ClusterHost& a, const cluster::ClusterHost& b) {
  if (a.launch != b.launch || a.aprun != b.aprun) return false;
  if (a.standing_keeper != b.standing_keeper) return false;
  return a.launch == cluster::LaunchKind::local ||
         (a.ssh_destination() == b.ssh_destination() && a.gateway == b.gateway && a.ssh_options == b.ssh_options);
}

void check_kinds(const cluster::Cluster& cluster) {
  using Kind = cluster::LaunchKind;
  for (const cluster::ClusterHost& host : cluster.hosts) {
    if (host.launch == Kind::ssh || host.launch == Kind::local) continue;
    throw Error(
        Errc::bad_option,
        fmt::format("{}:{}: [[host]] {}: launch = \"{}\": hosts of a pool are reached by \"ssh\", or \"local\"; "
                    "take it out, or use aprun -f without a pool{}",
                    cluster.file, host.line, host.name, cluster::launch_text(host.launch),
                    host.launch == Kind::slurm ? "; for all hosts of an allocation of Slurm's, write launch = "
                                                 "\"slurm\" in [machine], and no [[host]]"
                                               : ""));
  }
  if (cluster.hosts.empty())
    throw Error(Errc::bad_option, fmt::format("{}: it names no host for a pool: add [[host]]", cluster.file));
}

void check_of_job(const cluster::Cluster& cluster) {
  if (is_of_allocation(cluster)) return;
  throw Error(Errc::bad_option,
              fmt::format("{}:{}: [[host]] {}: the batch system gives the hosts of this pool: take all [[host]] out, "
                          "and write what is true of all hosts into [machine]",
                          cluster.file, cluster.hosts[0].line, cluster.hosts[0].name));
}

/// apkeeper where aprun stands at that path.
std::string beside(const std::string& aprun, const std::string& own_folder) {
  const std::size_t slash = aprun.rfind('/');
  if (aprun.empty()) return own_folder + "/apkeeper";
  return slash == aprun.npos ? "apkeeper" : aprun.substr(0, slash) + "/apkeeper";
}

/// By the name that a batch system has for it, with or without its domain.
bool is_this_computer(const std::string& name) {
  std::array<char, 256> own{};
  if (::gethostname(own.data(), own.size() - 1) != 0) return false;
  const std::string_view text(own.data());
  return text.substr(0, text.find('.')) == std::string_view(name).substr(0, name.find('.'));
}

}  // namespace

bool is_of_allocation(const cluster::Cluster& cluster) {
  return std::ranges::all_of(cluster.hosts, [](const cluster::ClusterHost& host) { return host.line == 0; });
}

PoolLock::PoolLock(const std::string& name) {
  if (const std::string problem = Pool::name_problem(name); !problem.empty()) throw Error(Errc::bad_option, problem);
  path_ = fmt::format("{}/{}{}", ctl::registry_folder(), name, lock_ending);
  for (;;) {
    file_.reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file_) refuse(fmt::format("cannot make {}", path_));
    while (::flock(file_.get(), LOCK_EX) != 0)
      if (errno != EINTR) refuse(fmt::format("cannot lock {}", path_));
    struct stat locked {
    }, there{};
    if (::fstat(file_.get(), &locked) != 0) refuse(fmt::format("cannot look at {}", path_));
    if (::stat(path_.c_str(), &there) == 0 && there.st_ino == locked.st_ino) return;
    // Who had it has removed it.
  }
}

PoolLock::~PoolLock() { ::unlink(path_.c_str()); }

Pool::Pool(std::string name, std::string text, std::string id, comm::JobKey key, const std::string& file,
           std::optional<BatchJob> job)
    : name_(std::move(name)),
      text_(std::move(text)),
      id_(std::move(id)),
      key_(key),
      cluster_(cluster::parse_cluster(text_, file, Options::from_environment())),
      job_(std::move(job)) {
  if (job_) take_hosts_of_job();
  if (!job_) check_kinds(cluster_);
  for (std::size_t i = 0; i < cluster_.hosts.size(); ++i) {
    const cluster::ClusterHost& host = cluster_.hosts[i];
    auto known = std::ranges::find_if(hosts_, [&](const PoolHost& each) { return same_computer(each.host, host); });
    if (known == hosts_.end()) known = hosts_.insert(hosts_.end(), {host.name, host, {}});
    known->members.push_back(i);
  }
}

void Pool::take_hosts_of_job() {
  check_of_job(cluster_);
  cluster_.hosts.clear();
  for (BatchHosts::Host& each : job_->hosts().hosts) {
    cluster::ClusterHost host = cluster_.defaults;
    host.launch = is_this_computer(each.name) ? cluster::LaunchKind::local : cluster::LaunchKind::ssh;
    host.name = std::move(each.name);
    if (!each.ended) host.standing_keeper = std::move(each.socket);
    cluster_.hosts.push_back(std::move(host));
  }
}

std::string Pool::name_problem(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  };
  if (!name.empty() && name.size() <= name_bytes_max && name.front() != '.' && name.front() != '-' &&
      std::ranges::all_of(name, fits))
    return {};
  return fmt::format("\"{}\" is not a name of a pool: use letters, digits, _, . and -, at most {}", name,
                     name_bytes_max);
}

bool Pool::exists(const std::string& name) {
  return name_problem(name).empty() && ::access((folder_of(name) + state_name).c_str(), F_OK) == 0;
}

std::vector<std::string> Pool::names() {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(ctl::registry_folder(), error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!name.ends_with(folder_ending)) continue;
    name.resize(name.size() - folder_ending.size());
    if (exists(name)) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

Pool Pool::open(const std::string& name) {
  if (const std::string problem = name_problem(name); !problem.empty()) throw Error(Errc::bad_option, problem);
  const std::string folder = folder_of(name);
  const auto state = os::read_file(folder + state_name);
  const auto text = os::read_file(folder + file_name);
  if ((!state || !text) && errno != ENOENT && errno != ENOTDIR) refuse(fmt::format("cannot read {}", folder));
  if (!state || !text) {
    const std::vector<std::string> all = names();
    const std::vector<std::string_view> views(all.begin(), all.end());
    const auto meant = text::nearest(name, views);
    throw Error(Errc::bad_option,
                fmt::format("there is no pool {}: {}", name,
                            meant         ? fmt::format("did you mean {}?", *meant)
                            : all.empty() ? std::string("apctl up -f FILE makes one of a cluster file")
                                          : fmt::format("there is {}", fmt::join(all, ", "))));
  }
  const std::size_t key_end = state->find('\n');
  const std::size_t id_end = key_end == state->npos ? state->npos : state->find('\n', key_end + 1);
  const auto key = comm::JobKey::from_hex(std::string_view(*state).substr(0, key_end));
  if (!key || id_end == state->npos) {
    throw Error(Errc::failed, fmt::format("pool {}: {}{} is damaged: remove {} and use apctl up again", name, folder,
                                          state_name, folder));
  }
  std::string file = state->substr(id_end + 1);
  if (file.ends_with('\n')) file.pop_back();
  const auto job = os::read_file(folder + job_name);
  return Pool(name, *text, state->substr(key_end + 1, id_end - key_end - 1), *key, file,
              job ? read_batch_job(*job) : std::nullopt);
}

namespace {

std::string new_id() {
  std::array<std::byte, 6> random{};
  comm::fill_random(random);
  std::string id;
  for (const std::byte byte : random) id += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return id;
}

void make_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) refuse(fmt::format("cannot make the folder {}", folder));
}

}  // namespace

Pool Pool::make(const std::string& name, const std::string& text, const std::string& file) {
  Pool pool(name, text, new_id(), comm::JobKey::make(), file);
  if (const std::string& key_file = pool.cluster_.keeper_key; !key_file.empty()) {
    std::string digits = os::read_file(key_file).value_or("");
    const auto key = comm::JobKey::from_hex(std::string_view(digits).substr(0, digits.find('\n')));
    comm::wipe(std::as_writable_bytes(std::span(digits)));
    if (!key) {
      throw Error(Errc::bad_option, fmt::format("{}: [machine]: keeper-key: no key can be read from {}: write 64 "
                                                "hexadecimal digits there, as of `openssl rand -hex 32`",
                                                file, key_file));
    }
    pool.key_ = *key;
  }
  pool.save(file);
  return pool;
}

Pool Pool::make_in_job(const std::string& name, const std::string& text, const std::string& file, BatchJob job,
                       const std::vector<std::string>& options, const std::string& own_folder) {
  const std::string id = new_id();
  job.folder = job.folder.empty() ? folder_of(name) : fmt::format("{}/{}-{}", job.folder, name, id);
  Pool pool(name, text, id, comm::JobKey::make(), file, job);
  make_folder(folder_of(name));
  make_folder(job.folder);
  try {
    write_file(job.file("key"), pool.key_.reveal_hex() + "\n");
    write_file(
        job.file("script"),
        batch_script(
            {.system = job.system,
             .pool = name,
             .keepers = pool.id_,
             .keeper = {beside(pool.cluster_.defaults.aprun, own_folder), "--idle",
                        fmt::format("{}", std::chrono::ceil<std::chrono::seconds>(pool.cluster_.keeper_idle).count())},
             .folder = job.folder}));
    if (job.number.empty()) job.submit(options);
    write_file(folder_of(name) + job_name, print_batch_job(job));
    pool.save(file);
    if (!job.submitted) job.begin_here();
    return Pool(name, text, pool.id_, pool.key_, file, job);
  } catch (const Error&) {
    pool.remove();
    throw;
  }
}

void Pool::save(const std::string& file) const {
  const std::string folder = folder_of(name_);
  const bool is_new = !fs::exists(folder);
  try {
    make_folder(folder);
    write_file(folder + file_name, text_);
    write_file(folder + state_name, fmt::format("{}\n{}\n{}\n", key_.reveal_hex(), id_, file));
  } catch (const Error&) {
    std::error_code ignored;
    if (is_new) fs::remove_all(folder, ignored);
    throw;
  }
}

cluster::Cluster Pool::standing_cluster() const {
  cluster::Cluster standing = cluster_;
  const std::vector<Known> known = this->known();
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    for (const std::size_t member : hosts_[i].members) {
      cluster::ClusterHost& host = standing.hosts[member];
      host.is_here = host.launch == cluster::LaunchKind::local;
      host.launch = cluster::LaunchKind::keeper;
      host.keeper = way(i).socket;
      host.keeper_key = key_.reveal_hex();
      host.keeper_patience = start_silences * cluster_.options.peer_timeout;
      host.reached = known[i].reached;
    }
  }
  return standing;
}

std::vector<KeeperAddress> Pool::ways() const {
  std::vector<KeeperAddress> ways;
  for (std::size_t i = 0; i < hosts_.size(); ++i) ways.push_back(way(i));
  return ways;
}

std::string Pool::id(std::size_t i) const { return fmt::format("{}-{}", id_, i); }

std::string Pool::path(std::size_t i, const char* what, std::size_t way) const {
  return fmt::format("{}/{}.{}{}", folder_of(name_), i, what, way == 0 ? "" : fmt::format("{}", way));
}

void Pool::end_masters(std::size_t i) const {
  if (hosts_[i].host.launch != cluster::LaunchKind::ssh) return;
  for (std::size_t way = 0; way < ways_max; ++way) {
    const std::string socket = control(i, way);
    if (way != 0 && ::access(socket.c_str(), F_OK) != 0) continue;
    start::SshMaster(hosts_[i].host, socket).end();
    ::unlink(socket.c_str());
    if (way != 0) ::unlink(this->way(i, way).socket.c_str());
  }
}

std::string Pool::keeper_program(std::size_t i, const std::string& own_folder) const {
  return beside(hosts_[i].host.aprun, own_folder);
}

namespace {

struct KnownHosts {
  std::vector<Pool::Known> hosts{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.hosts);
  }
};

}  // namespace

std::vector<Pool::Known> Pool::known() const {
  std::optional<KnownHosts> read;
  if (const auto text = os::read_file(folder_of(name_) + known_name))
    read = wire::decode<KnownHosts>(std::as_bytes(std::span(*text)));
  std::vector<Known> known = read ? std::move(read->hosts) : std::vector<Known>();
  known.resize(hosts_.size());
  return known;
}

void Pool::keep(const std::vector<Known>& known) const {
  const wire::Bytes bytes = wire::encode(KnownHosts{known});
  const std::string path = folder_of(name_) + known_name;
  const std::string before = fmt::format("{}.{}", path, ::getpid());
  try {
    write_file(before, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    if (::rename(before.c_str(), path.c_str()) != 0) ::unlink(before.c_str());
  } catch (const Error&) {
    ::unlink(before.c_str());
  }
}

std::string Pool::led() const { return os::read_file(folder_of(name_) + led_name).value_or(""); }

void Pool::keep_led(const std::string& keepers) const { write_file(folder_of(name_) + led_name, keepers); }

void Pool::remove() const {
  std::error_code ignored;
  if (job_) fs::remove_all(job_->folder, ignored);
  fs::remove_all(folder_of(name_), ignored);
}

}  // namespace aplib::launch::pool
