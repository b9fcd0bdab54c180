// SPDX-License-Identifier: MIT
// Pmix: what the other launcher that started this process (Open MPI's mpirun, Slurm's srun --mpi=pmix, PRRTE's prterun)
// offers to the processes of a job: their identities, and a store in which each may put texts for the others. The
// user's own PMIx servers keep the store; other users do not see it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace aplib::launch::start {

/// All functions throw Error(failed) with PMIx's reason. They may wait for the PMIx server of this host; fence()
/// and the destructor wait for the other processes. One thread at a time.
class Pmix {
 public:
  /// Whether another launcher with PMIx started this process.
  [[nodiscard]] static bool launched_us();

  /// Joins the job. Needs libpmix.so.2 at run time, and its headers when APlib was built. The error says which is
  /// missing.
  Pmix();
  /// Leaves the job: waits for the others unless abort() was called.
  ~Pmix();
  Pmix(const Pmix&) = delete;
  Pmix& operator=(const Pmix&) = delete;

  /// 0 .. size() - 1.
  [[nodiscard]] std::uint32_t rank() const noexcept;
  /// Processes in the job.
  [[nodiscard]] std::uint32_t size() const noexcept;
  /// The name of a process's host, or "" if the other launcher does not give it.
  [[nodiscard]] std::string host(std::uint32_t rank) const;
  /// Id of the job, the same in all its processes and in no other job that runs now.
  [[nodiscard]] std::string job() const;

  /// Puts a text into the store. Others see it after fence().
  void put(const std::string& key, const std::string& value);
  /// After this, everyone sees what all have put before. Every process calls it.
  void fence();
  /// What `rank` had put before the last fence. Nothing: there is no such text.
  [[nodiscard]] std::optional<std::string> get(std::uint32_t rank, const std::string& key) const;

  /// Ends the whole job with this status, by the other launcher, which may show the text or not (Open MPI 4.1 does
  /// not). Does not end this process at once.
  void abort(int status, const std::string& text) noexcept;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace aplib::launch::start
