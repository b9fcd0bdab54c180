// SPDX-License-Identifier: MIT
// The scripts of batch jobs that have the hosts of a pool, what these scripts write, and what batch systems say.
#include "launch/pool/batch_job.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "aplib/error.hpp"

namespace aplib::launch::pool {
namespace {

BatchPlan plan_of(BatchSystem system) {
  return {.system = system,
          .pool = "lab",
          .keepers = "0123",
          .keeper = {"/o'x/apkeeper", "--idle", "60"},
          .folder = "/shared/lab-0123"};
}

TEST(BatchScript, OfSlurm) {
  EXPECT_EQ(batch_script(plan_of(BatchSystem::slurm)), R"(#!/bin/sh
#SBATCH --job-name=aplib-lab
#SBATCH --output=/shared/lab-0123/output
# Pool lab of APlib: a keeper on each host of this job, which ends with the last of them (apctl down lab).
# The folders of this user, and addresses, are those of the computer from which it was submitted.
unset XDG_RUNTIME_DIR SSH_CONNECTION
cd /shared/lab-0123 || exit 1
echo "$SLURM_JOB_NODELIST" > hosts
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --overlap \
  --overcommit --cpu-bind=none --mpi=none --kill-on-bad-exit=0 --wait=0 --input=all --unbuffered \
  sh -c ''\''/o'\''\'\'''\''x/apkeeper'\'' --idle 60 --step 0123-$SLURM_NODEID; echo "aplib-keeper ended $SLURM_NODEID" >&2' \
  < key 2>&1 |
while IFS= read -r line; do
  case $line in
  'aplib-keeper '*) printf '%s\n' "${line#aplib-keeper }" >> hosts ;;
  *) printf '%s\n' "$line" ;;
  esac
done
# apctl down may have removed this folder.
{ echo over >> hosts; } 2> /dev/null || true
)");
}

TEST(BatchScript, OfGridEngine) {
  EXPECT_EQ(batch_script(plan_of(BatchSystem::sge)), R"(#!/bin/sh
#$ -N aplib-lab
#$ -S /bin/sh
#$ -j y
#$ -o /shared/lab-0123/output
# Pool lab of APlib: a keeper on each host of this job, which ends with the last of them (apctl down lab).
# The folders of this user, and addresses, are those of the computer from which it was submitted.
unset XDG_RUNTIME_DIR SSH_CONNECTION
cd /shared/lab-0123 || exit 1
if [ -r "$PE_HOSTFILE" ]; then names=$(cut -d ' ' -f 1 "$PE_HOSTFILE" | uniq); else names=$(hostname); fi
echo $names | tr ' ' , > hosts
unset PE_HOSTFILE
{
  number=0 clean="env -u XDG_RUNTIME_DIR -u SSH_CONNECTION"
  for name in $names; do
    if [ $number = 0 ]; then start=; else start="qrsh -inherit $name $clean"; fi
    { $start '/o'\''x/apkeeper' --idle 60 --step 0123-$number; echo "aplib-keeper ended $number" >&2; } < key &
    number=$((number + 1))
  done
  wait
} 2>&1 |
while IFS= read -r line; do
  case $line in
  'aplib-keeper '*) printf '%s\n' "${line#aplib-keeper }" >> hosts ;;
  *) printf '%s\n' "$line" ;;
  esac
done
# apctl down may have removed this folder.
{ echo over >> hosts; } 2> /dev/null || true
)");
}

TEST(BatchScript, TheShellReadsIt) {
  for (const BatchSystem system : {BatchSystem::slurm, BatchSystem::sge}) {
    const std::string file = testing::TempDir() + "/script";
    FILE* const script = std::fopen(file.c_str(), "w");
    ASSERT_NE(script, nullptr);
    std::fputs(batch_script(plan_of(system)).c_str(), script);
    std::fclose(script);
    EXPECT_EQ(std::system(("sh -n " + file).c_str()), 0) << batch_text(system);
  }
}

TEST(BatchHosts, AreThoseThatTheScriptHasWritten) {
  EXPECT_TRUE(read_batch_hosts("").hosts.empty());
  EXPECT_TRUE(read_batch_hosts("n[1-").hosts.empty());  // the rest of the line is on its way
  const BatchHosts read = read_batch_hosts(
      "n[1-3],m\nstands /tmp/aplib-7/ab-2.keeper\nstands /tmp/a b/ab-0.keeper\nended 2\nstands /tmp/ab-9.keeper\n"
      "stands nothing\nended x\nanything\nstands /tmp/ab-1.keep");
  ASSERT_EQ(read.hosts.size(), 4U);
  EXPECT_EQ(read.hosts[3].name, "m");
  EXPECT_EQ(read.hosts[0].socket, "/tmp/a b/ab-0.keeper");
  EXPECT_EQ(read.hosts[1].socket, "");
  EXPECT_EQ(read.hosts[2].socket, "/tmp/aplib-7/ab-2.keeper");
  EXPECT_TRUE(read.hosts[2].ended);
  EXPECT_FALSE(read.hosts[0].ended);
  EXPECT_FALSE(read.over);
  EXPECT_TRUE(read_batch_hosts("n1\nended 0\nover\n").over);
}

TEST(BatchState, OfSlurm) {
  using Kind = BatchState::Kind;
  const auto read = [](std::string_view answer) { return read_batch_state(BatchSystem::slurm, answer, "7"); };
  EXPECT_EQ(read("PENDING|Resources\n").kind, Kind::waits);
  EXPECT_EQ(read("PENDING|Resources\n").words, "PENDING, Resources");
  EXPECT_EQ(read("RUNNING|None\n").kind, Kind::runs);
  EXPECT_EQ(read("RUNNING|None\n").words, "RUNNING");
  EXPECT_EQ(read("COMPLETING|None\n").kind, Kind::ended);  // its processes are killed just now
  EXPECT_EQ(read("TIMEOUT|TimeLimit\n").kind, Kind::ended);
  EXPECT_EQ(read("").kind, Kind::ended);
  EXPECT_EQ(read("").words, "");
}

TEST(BatchState, OfGridEngine) {
  using Kind = BatchState::Kind;
  const std::string table =
      "job-ID  prior   name       user         state submit/start at     queue      slots ja-task-ID\n"
      "-------------------------------------------------------------------------------------------\n"
      "     17 0.55500 aplib-lab  u            qw    11/26/2026 03:00:00                2\n"
      "      7 0.55500 aplib-lab  u            r     11/26/2026 03:00:00 main.q@n1      2\n"
      "      8 0.55500 aplib-lab  u            Eqw   11/26/2026 03:00:00                2\n";
  const auto read = [&](std::string_view number) { return read_batch_state(BatchSystem::sge, table, number); };
  EXPECT_EQ(read("17").kind, Kind::waits);
  EXPECT_EQ(read("17").words, "qw");
  EXPECT_EQ(read("7").kind, Kind::runs);
  EXPECT_EQ(read("8").kind, Kind::waits);
  EXPECT_EQ(read("8").words, "Eqw");
  EXPECT_EQ(read("1").kind, Kind::ended);
}

TEST(BatchJob, AsText) {
  const BatchJob job{.system = BatchSystem::sge, .number = "12", .folder = "/shared/a b", .submitted = true};
  const auto read = read_batch_job(print_batch_job(job));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->text(), "job 12 of Grid Engine");
  EXPECT_EQ(read->file("hosts"), "/shared/a b/hosts");
  EXPECT_TRUE(read->submitted);
  EXPECT_FALSE(read_batch_job("pbs\n1\nhere\n/x\n").has_value());
  EXPECT_FALSE(read_batch_job("slurm\n1\n").has_value());
}

TEST(BatchJob, SystemByName) {
  EXPECT_EQ(batch_system("sge"), BatchSystem::sge);
  EXPECT_THROW(static_cast<void>(batch_system("pbs")), Error);
}

}  // namespace
}  // namespace aplib::launch::pool
