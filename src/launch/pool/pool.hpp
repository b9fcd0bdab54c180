// SPDX-License-Identifier: MIT
// Pool: hosts of a cluster file that stand ready for this user. A folder beside the user's sockets (registry.hpp) has
// all that is known of it: a copy of the cluster file, the key, and the ways to the keepers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/descriptor.hpp"
#include "comm/job_key.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/pool/batch_job.hpp"
#include "launch/pool/keeper_address.hpp"

namespace aplib::launch::pool {

/// Connections of ssh to a host, at most: the first is made when the pool comes up, others where files need them.
inline constexpr std::size_t ways_max = 4;

/// What `file` says of the pool of a job of a batch system, which gives the hosts.
[[nodiscard]] bool is_of_allocation(const cluster::Cluster& cluster);

/// Hosts of the cluster that are one computer by their names, and so have one keeper.
struct PoolHost {
  std::string name;                    ///< Of the first of them.
  cluster::ClusterHost host;           ///< The first of them, as the cluster file says.
  std::vector<std::size_t> members{};  ///< Which hosts of the cluster.
};

class Pool {
 public:
  /// Throws Error(bad_option) if there is none of that name; says which there are.
  [[nodiscard]] static Pool open(const std::string& name);
  /// The same, for who uses its hosts. Of a job of a batch system, leads the ways to those that have come.
  /// Throws Error(failed) where none has, or the job is over.
  [[nodiscard]] static Pool reach(const std::string& name);
  /// Makes one, with a new key, that no host has heard of yet. `text` is the cluster file's and `file` its path. Throws
  /// Error.
  [[nodiscard]] static Pool make(const std::string& name, const std::string& text, const std::string& file);
  /// The same with the hosts of a job. One without a number is submitted, with these options; its folder is made in
  /// the one that it names. One with a number has this process in it, and its script starts. `own_folder` is that of
  /// this program.
  [[nodiscard]] static Pool make_in_job(const std::string& name, const std::string& text, const std::string& file,
                                        BatchJob job, const std::vector<std::string>& options,
                                        const std::string& own_folder);
  [[nodiscard]] static bool exists(const std::string& name);
  /// The names of all pools, in order.
  [[nodiscard]] static std::vector<std::string> names();
  /// Why no pool can have that name, or "".
  [[nodiscard]] static std::string name_problem(std::string_view name);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  [[nodiscard]] const comm::JobKey& key() const noexcept { return key_; }
  /// The cluster, as its file says.
  [[nodiscard]] const cluster::Cluster& cluster() const noexcept { return cluster_; }
  /// The job that has its hosts, if any.
  [[nodiscard]] const std::optional<BatchJob>& job() const noexcept { return job_; }
  /// In the order of the cluster file, or of the job, of which there are none before it begins.
  [[nodiscard]] const std::vector<PoolHost>& hosts() const noexcept { return hosts_; }
  /// The cluster whose nodes the keepers start.
  [[nodiscard]] cluster::Cluster standing_cluster() const;

  // Of host `i` of hosts():
  [[nodiscard]] KeeperAddress way(std::size_t i, std::size_t way = 0) const { return {path(i, "way", way), key_}; }
  /// The first one of each.
  [[nodiscard]] std::vector<KeeperAddress> ways() const;
  /// Of the ssh master of a way.
  [[nodiscard]] std::string control(std::size_t i, std::size_t way = 0) const { return path(i, "ssh", way); }
  /// Ends the ssh masters of all its ways.
  void end_masters(std::size_t i) const;
  [[nodiscard]] std::string id(std::size_t i) const;  ///< Of its keeper.
  /// apkeeper on that host: it stands beside aprun.
  [[nodiscard]] std::string keeper_program(std::size_t i, const std::string& own_folder) const;

  /// What a host has said, and when.
  struct Known {
    std::int64_t at = 0;  ///< Seconds since 1970.
    HostFacts facts{};
    double speed = 0;           ///< As cells = "auto" measures it; 0: it was never measured.
    std::int64_t speed_at = 0;  ///< When.
    std::string reached{};      ///< The address by which ssh has reached it; empty: unknown.
    std::int64_t apart_at = 0;  ///< When it did not reach a host that files were to come from.
    template <class Self, class Fields>
    static void list(Self& self, Fields&& fields) {
      fields(self.at, self.facts, self.speed, self.speed_at, self.reached, self.apart_at);
    }
  };
  /// By host of hosts(); of a host that has never answered, `at` is 0.
  [[nodiscard]] std::vector<Known> known() const;
  /// Keeps it for the next time. What cannot be written is not kept.
  void keep(const std::vector<Known>& known) const;

  /// The keepers of its job to which ways have been led, as a text.
  [[nodiscard]] std::string led() const;
  void keep_led(const std::string& keepers) const;

  /// Removes all that is known of it here, and a submitted job's folder.
  void remove() const;

 private:
  Pool(std::string name, std::string text, std::string id, comm::JobKey key, const std::string& file,
       std::optional<BatchJob> job = std::nullopt);
  void save(const std::string& file) const;
  void take_hosts_of_job();
  [[nodiscard]] std::string path(std::size_t i, const char* what, std::size_t way) const;

  std::string name_;
  std::string text_;
  std::string id_;
  comm::JobKey key_;
  cluster::Cluster cluster_;
  std::optional<BatchJob> job_;
  std::vector<PoolHost> hosts_;
};

/// Who makes, repairs or ends the pool of that name has it; others that would wait until then, or until its process has
/// ended. Throws Error.
class PoolLock {
 public:
  explicit PoolLock(const std::string& name);
  ~PoolLock();
  PoolLock(const PoolLock&) = delete;
  PoolLock& operator=(const PoolLock&) = delete;

 private:
  std::string path_;
  os::UniqueFd file_;
};

struct Repair {
  std::size_t missing = 0;                        ///< Hosts that were not within reach before.
  std::map<std::size_t, std::string> problems{};  ///< Whole messages, by host of those that are not now.
};
/// Starts keepers where none stands, and leads the ways to them. Blocks: `who` tells the user for what, if it is not
/// empty. Throws Error. REQUIRES: the PoolLock.
[[nodiscard]] Repair repair(const Pool& pool, const std::string& who = {});

/// Throws Error(failed) where the pool has a job that does not run, which says whether it waits, or has ended.
void check_job(const Pool& pool);

/// Why a host is not within reach; "": it is.
[[nodiscard]] std::string problem_of(const FactsAnswer& answer);

/// As Pool::Known has it.
[[nodiscard]] std::int64_t now_in_seconds();
void note(Pool::Known& known, const HostFacts& facts);

}  // namespace aplib::launch::pool
