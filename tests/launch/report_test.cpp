// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "launch/report.hpp"

namespace aplib::launch {
namespace {

TEST(ClusterPlan, SaysWhoRunsWhatAndWhere) {
  ClusterPlan plan;
  plan.file = "cluster.toml";
  plan.program = "/opt/scg";
  plan.build_id = "3f2a";
  plan.args = {"--grid", "300", "two words", ""};
  plan.grid = {7, 2};
  plan.cells = CellMap::of(2, std::vector<std::uint32_t>{1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  plan.grid_auto = true;
  plan.efficiency = 0.99237;
  plan.ports = "5100-5120";
  plan.secure = "tls";
  plan.hosts = {{.name = "ws1",
                 .launch = cluster::LaunchKind::ssh,
                 .address = "10.0.0.1",
                 .address_why = "by which ssh reached it",
                 .threads = 1,
                 .speed = 2.44,
                 .modules = {"shm", "tcp"},
                 .left_out = {"rdma: no RDMA device is there", "fast: its library is missing"}},
                {.name = "fast-host",
                 .launch = cluster::LaunchKind::local,
                 .address = "fe80::1",
                 .address_why = "the cluster file",
                 .threads = 12,
                 .speed = 4.30,
                 .modules = {"shm", "fast", "tcp"},
                 .left_out = {"rdma: no RDMA device is there"}}};
  EXPECT_EQ(cluster_plan_text(plan),
            R"(file         cluster.toml
program      /opt/scg
build-id     3f2a
arguments    --grid 300 "two words" ""
grid         7x2 (auto): 14 cells on 2 hosts; cells of equal work use 99.2 % of the sum of the speeds
messages     the best of shm, fast, tcp for each pair, ports 5100-5120
without      rdma: no RDMA device is there
without      fast: its library is missing (ws1)
security     tls: encrypted, and both ends prove that they know the job's key

process  host       launch  cells           threads  speed   address   because
0        ws1        ssh     3               1        36.2 %  10.0.0.1  by which ssh reached it
1        fast-host  local   0-2, 4-13 (13)  12       63.8 %  fe80::1   the cluster file
)");
}

TEST(ClusterPlan, LeavesOutWhatIsNotKnown) {
  ClusterPlan plan;
  plan.program = "p";
  plan.secure = "auth";
  plan.cells = CellMap(1);
  plan.hosts = {{.name = "local", .address = "127.0.0.1", .address_why = "one computer", .modules = {"tcp"}}};
  EXPECT_EQ(cluster_plan_text(plan),
            R"(program      p
build-id     none
grid         1x1: 1 cell on 1 host
messages     tcp, ports chosen by the system
security     auth: both ends of a connection prove that they know the job's key

process  host   launch  cells  threads  address    because
0        local  local   0               127.0.0.1  one computer
)");
}

}  // namespace
}  // namespace aplib::launch
