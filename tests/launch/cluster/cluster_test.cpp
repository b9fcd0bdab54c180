// SPDX-License-Identifier: MIT
// What cluster files say, and the messages for invalid ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "checks.hpp"
#include "launch/cluster/cluster.hpp"

namespace aplib::launch {
namespace {

cluster::Cluster parse(const std::string& text) { return cluster::parse_cluster(text, "c.toml"); }

std::string parse_error(const std::string& text) {
  return testing_support::error_text([&] { (void)parse(text); }, Errc::bad_option);
}

std::vector<std::string> names(const cluster::Cluster& cluster) {
  std::vector<std::string> names;
  for (const cluster::ClusterHost& host : cluster.hosts) names.push_back(host.name);
  return names;
}

using Strings = std::vector<std::string>;

TEST(ClusterFile, EverythingTogether) {
  const cluster::Cluster cluster = parse(R"(
[machine]
grid = "4x2"
program = "./scg"
args = ["--grid", 300]
poll-time = "5us"
bind = false
stack-size = 65536
private-libraries = ["liba.so", "libb.so*"]
[[host]]
name = "ws1"
address = "10.0.0.1"
cells = 2
threads = 2
[[host]]
name = "ws2"
launch = "command"
command = "rsh {host} {quoted-cmd}"
cells = "auto"
threads = "per-cell"
speed = 2.5
aprun = "/opt/aplib/bin/aprun"
folder = "/scratch"
[[host]]
name = "ws3"
ssh = "alice@login"
ssh-options = ["-p", "2222"]
speed-command = "./measure"
[comm]
module = "tcp"
ports = "5100-5120"
secure = "tls"
)");
  EXPECT_EQ(cluster.file, "c.toml");
  EXPECT_EQ(cluster.grid, (Grid{4, 2}));
  EXPECT_EQ(cluster.grid_place, "c.toml:3:8: [machine]: grid");
  EXPECT_EQ(cluster.program, "./scg");
  EXPECT_EQ(cluster.args, (Strings{"--grid", "300"}));
  EXPECT_EQ(cluster.options.get("poll-time"), "5us");
  EXPECT_FALSE(cluster.options.bind);
  EXPECT_EQ(cluster.options.stack_bytes, 65536U);
  EXPECT_EQ(cluster.options.private_libraries, (Strings{"liba.so", "libb.so*"}));
  EXPECT_EQ(cluster.options.module, "tcp");
  EXPECT_EQ(cluster.options.ports, "5100-5120");
  EXPECT_EQ(cluster.options.secure, "tls");
  ASSERT_EQ(names(cluster), (Strings{"ws1", "ws2", "ws3"}));
  const cluster::ClusterHost& first = cluster.hosts[0];
  EXPECT_EQ(first.launch, cluster::LaunchKind::ssh);
  EXPECT_EQ(first.ssh_destination(), "10.0.0.1");
  EXPECT_EQ(first.cells, 2U);
  EXPECT_EQ(first.threads, "2");
  EXPECT_EQ(first.line, 10);
  const cluster::ClusterHost& second = cluster.hosts[1];
  EXPECT_EQ(second.launch, cluster::LaunchKind::command);
  EXPECT_EQ(second.command, "rsh {host} {quoted-cmd}");
  EXPECT_EQ(second.cells, std::nullopt);
  EXPECT_EQ(second.threads, "per-cell");
  EXPECT_EQ(second.speed.kind, cluster::Speed::Kind::number);
  EXPECT_EQ(second.speed.number, 2.5);
  EXPECT_EQ(second.aprun, "/opt/aplib/bin/aprun");
  EXPECT_EQ(second.folder, "/scratch");
  EXPECT_EQ(second.ssh_destination(), "ws2");
  const cluster::ClusterHost& third = cluster.hosts[2];
  EXPECT_EQ(third.ssh_destination(), "alice@login");
  EXPECT_EQ(third.ssh_options, (Strings{"-p", "2222"}));
  EXPECT_EQ(third.speed.kind, cluster::Speed::Kind::command);
  EXPECT_EQ(third.speed.command, "./measure");
}

TEST(ClusterFile, NothingIsOneHostHere) {
  for (const char* text : {"", "# nothing\n", "[machine]\n", "[comm]\nsecure = \"off\"\n"}) {
    const cluster::Cluster cluster = parse(text);
    ASSERT_EQ(names(cluster), Strings{"local"}) << text;
    EXPECT_EQ(cluster.hosts[0].launch, cluster::LaunchKind::local);
    EXPECT_EQ(cluster.hosts[0].cells, std::nullopt);
    EXPECT_EQ(cluster.grid, std::nullopt);
  }
}

TEST(ClusterFile, GridsAsPeopleWriteThem) {
  EXPECT_EQ(parse("[machine]\ncells = 8").grid, (Grid{8, 1}));
  EXPECT_EQ(parse("[machine]\ncells = \"4X2\"").grid, (Grid{4, 2}));
  EXPECT_EQ(parse("[machine]\ngrid = \"Auto\"").grid, std::nullopt);
}

TEST(ClusterFile, HostsByCountAndByRange) {
  EXPECT_EQ(names(parse("[[host]]\nlaunch = \"local\"\ncount = 3")), (Strings{"local-1", "local-2", "local-3"}));
  EXPECT_EQ(names(parse("[[host]]\nname = \"ws[08-10,3]x\"")), (Strings{"ws08x", "ws09x", "ws10x", "ws3x"}));
  const cluster::Cluster cluster = parse("[[host]]\nname = \"n[1-2]\"\ncount = 2\ncells = 7\n[[host]]\ncount=1");
  EXPECT_EQ(names(cluster), (Strings{"n1-1", "n1-2", "n2-1", "n2-2", "local"}));
  EXPECT_EQ(cluster.hosts[3].ssh_destination(), "n2");
  EXPECT_EQ(cluster.hosts[3].cells, 7U);
  EXPECT_EQ(cluster.hosts[4].launch, cluster::LaunchKind::local);
}

TEST(ClusterFile, MachineSpeaksForAllHosts) {
  const cluster::Cluster cluster = parse(R"(
[[host]]
name = "a"
[[host]]
name = "b"
launch = "ssh"
speed = "memory"
cells = 3
[machine]
command = "in {host} {cmd}"
speed = "compute"
folder = "/tmp"
)");
  EXPECT_EQ(cluster.hosts[0].launch, cluster::LaunchKind::command);
  EXPECT_EQ(cluster.hosts[0].command, "in {host} {cmd}");
  EXPECT_EQ(cluster.hosts[0].speed.kind, cluster::Speed::Kind::compute);
  EXPECT_EQ(cluster.hosts[0].folder, "/tmp");
  EXPECT_EQ(cluster.hosts[1].launch, cluster::LaunchKind::ssh);
  EXPECT_EQ(cluster.hosts[1].command, "");
}

TEST(ClusterFile, AnAllocationNamesItsHostsItself) {
  const cluster::Cluster cluster = parse("[machine]\nlaunch = \"slurm\"\nfolder = \"/x\"");
  EXPECT_TRUE(cluster.hosts.empty());
  EXPECT_EQ(cluster.defaults.launch, cluster::LaunchKind::slurm);
  EXPECT_EQ(cluster.defaults.folder, "/x");
}

TEST(ClusterFile, WhatIsLeftOpenComesFromOutside) {
  Options open;
  open.set("poll-time", "7us");
  open.set("secure", "tls");
  const cluster::Cluster cluster = cluster::parse_cluster("[comm]\nsecure = \"off\"", "c.toml", open);
  EXPECT_EQ(cluster.options.get("poll-time"), "7us");
  EXPECT_EQ(cluster.options.secure, "off");
}

struct Wrong {
  const char* text;
  const char* error;
};

void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.text; }

class WrongClusterFile : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongClusterFile, IsAnErrorInWords) { EXPECT_EQ(parse_error(GetParam().text), GetParam().error); }

INSTANTIATE_TEST_SUITE_P(
    Addresses, WrongClusterFile,
    ::testing::Values(
        Wrong{
            "[[host]]\nname = \"a\"\naddress = \"0.0.0.0\"",
            R"(c.toml:3:11: [[host]] a: address = "0.0.0.0": not an address of one host: use one by which the other hosts reach it, or its name)"},
        Wrong{
            "[[host]]\nname = \"a\"\naddress = \"::\"",
            R"(c.toml:3:11: [[host]] a: address = "::": not an address of one host: use one by which the other hosts reach it, or its name)"},
        Wrong{
            "[[host]]\nname = \"a\"\naddress = \"255.255.255.255\"",
            R"(c.toml:3:11: [[host]] a: address = "255.255.255.255": not an address of one host: use one by which the other hosts reach it, or its name)"},
        Wrong{
            "[[host]]\nname = \"a\"\naddress = \"999.1.1.1\"",
            R"(c.toml:3:11: [[host]] a: address = "999.1.1.1": not an address: use one of the host's, without a port, or its name)"},
        Wrong{
            "[[host]]\nname = \"a\"\naddress = \"127.0.0.1:22\"",
            R"(c.toml:3:11: [[host]] a: address = "127.0.0.1:22": not an address: use one of the host's, without a port, or its name)"}));

INSTANTIATE_TEST_SUITE_P(
    All, WrongClusterFile,
    ::testing::Values(
        Wrong{"[[host]]\nname = \"ws1\"\n  cells = \"many\"",
              R"(c.toml:3:11: [[host]] ws1: cells = "many": not a number of cells: use 1 .. 16384 or "auto")"},
        Wrong{"[[host]]\nname = \"ws1\"\ncels = 3",
              R"(c.toml:3:1: [[host]] ws1: "cels": unknown key: did you mean cells?)"},
        Wrong{"[machine]\nhost_program = \"x\"",
              R"(c.toml:2:1: [machine]: "host_program": unknown key: did you mean host-program?)"},
        Wrong{
            "[machine]\nprogram = \"a\"\nhost-program = \"b\"",
            R"(c.toml:1:2: [machine]: program and host-program are both given: a host program starts the cells' programs itself; keep one of them)"},
        Wrong{"[machine]\nports = \"1-2\"", R"(c.toml:2:1: [machine]: "ports": this key belongs in [comm])"},
        Wrong{"[machine]\nsecur = \"tls\"",
              R"(c.toml:2:1: [machine]: "secur": unknown key: did you mean secure in [comm]?)"},
        Wrong{
            "[machine]\npoll-time = \"2 hours\"",
            R"(c.toml:2:13: [machine]: poll-time = "2 hours": not a time: use 0 .. 10s with a unit (ns, us, ms, s), for example 20us, or auto)"},
        Wrong{"[machine]\nthreads = 0",
              "c.toml:2:11: [machine]: threads = 0: out of range: use 1 .. 4096, auto or per-cell"},
        Wrong{
            "[machine]\ngrid = \"0x4\"",
            R"(c.toml:2:8: [machine]: grid = "0x4": not a grid: use NXxNY with at least 1 cell and at most 16384 in all, for example 4x2 or 8, or "auto")"},
        Wrong{"[machine]\ngrid = [4, 2]",
              R"(c.toml:2:8: [machine]: grid = ["4", "2"]: not a grid: use NXxNY, a number of cells, or "auto")"},
        Wrong{"[machine]\ngrid = 4\ncells = 4",
              "c.toml:3:1: [machine]: cells = 4: grid is given too: keep one of them"},
        Wrong{
            "[machine]\nargs = \"--grid 300\"",
            R"(c.toml:2:8: [machine]: args = "--grid 300": not a list of texts: use texts with commas between them, for example ["--grid", "300"])"},
        Wrong{"[machine]\nprogram = 3", "c.toml:2:11: [machine]: program = 3: not a file: use a text in double quotes"},
        Wrong{"[comm]\nsecure = true",
              "c.toml:2:10: [comm]: secure = true: not a kind of security: use auth, tls or off"},
        Wrong{"[comm]\nsecure = {a = 1}",
              "c.toml:2:10: [comm]: secure = {...}: not a value of an option: use a text, a number, true or false"},
        Wrong{
            "[[host]]\nname = \"-oProxyCommand=x\"",
            R"(c.toml:2:8: [[host]] -oProxyCommand=x: name = "-oProxyCommand=x": not a name of a host: use letters, digits and any of _.-@:%,[], and no dash at the beginning)"},
        Wrong{"[[host]]\nlaunch = \"ssh\"",
              R"(c.toml:1:1: [[host]] 1: a name is missing: add name = "ws1", or launch = "local" for this computer)"},
        Wrong{
            "[[host]]\nname = \"a\"\nlaunch = \"rsh\"",
            R"(c.toml:3:10: [[host]] a: launch = "rsh": not a way to start a process: use "ssh", "local", "slurm", "pmix" or "command")"},
        Wrong{"[[host]]\nname = \"a\"\nlaunch = \"command\"",
              R"(c.toml:1:1: [[host]] a: launch = "command": the command is missing: add command = "... {cmd} ...")"},
        Wrong{"[[host]]\nname = \"a\"\ncommand = \"{cmd}\"\nlaunch = \"ssh\"",
              R"(c.toml:1:1: [[host]] a: command and launch = "ssh" contradict each other: keep one of them)"},
        Wrong{
            "[[host]]\nname = \"a\"\ncommand = \"rsh a\"",
            R"(c.toml:3:11: [[host]] a: command = "rsh a": not a command: use a text with {cmd} where the command to run on the host belongs, for example "rsh {host} {quoted-cmd}")"},
        Wrong{"[[host]]\nname = \"a\"\nspeed = \"command\"",
              R"(c.toml:1:1: [[host]] a: speed = "command": the command is missing: add speed-command = "...")"},
        Wrong{"[[host]]\nname = \"a\"\nspeed = -1",
              "c.toml:3:9: [[host]] a: speed = -1: out of range: use 1e-06 .. 1e+15"},
        Wrong{"[[host]]\nname = \"a\"\n[[host]]\nname = \"a\"",
              "c.toml:3:1: [[host]] a: the host of line 1 has the name a too: names must differ; several processes on "
              "one host are written count = 2"},
        Wrong{
            "[[host]]\nname = \"a[2-1]\"",
            R"(c.toml:1:1: [[host]] a[2-1]: name = "a[2-1]": not a list of names: use numbers and ranges in one pair of brackets, as in ws[1-4,7], for at most 4096 hosts)"},
        Wrong{"[[host]]\nname = \"a[1-2]\"\naddress = \"::1\"",
              "c.toml:1:1: [[host]] a[1-2]: 2 hosts cannot have one address: leave address and ssh out, or give each "
              "host a table of its own"},
        Wrong{"[[host]]\nname = \"a[1-3000]\"\ncount = 2",
              "c.toml:1:1: [[host]] a[1-3000]: a machine has at most 4096 processes: take some out"},
        Wrong{"[[host]]\nname = \"a\"\nspeed = 2\n[[host]]\nname = \"b\"",
              "c.toml:4:1: [[host]] b: speed: a has another kind of speed, and the two cannot be compared: write speed "
              "once, in [machine]"},
        Wrong{
            "[[host]]\nname = \"a\"\nlaunch = \"pmix\"\n[[host]]\nname = \"b\"",
            R"(c.toml:4:1: [[host]] b: launch: "pmix" is for all hosts or for none, because the other launcher starts them all: write launch = "pmix" in [machine])"},
        Wrong{"[host]\nname = \"a\"", "c.toml:1:2: [host]: write [[host]]"},
        Wrong{"[[machine]]\ngrid = 4", "c.toml:1:1: [[machine]]: write [machine]"},
        Wrong{"[file]\nsource = \"a\"", "c.toml:1:2: [file]: write [[file]]"},
        Wrong{"[[file]]\ntarget = \"a\"", "c.toml:1:1: [[file]]: a source is missing: add source = \"input.dat\""},
        Wrong{"[[file]]\nsource = 7", "c.toml:2:10: [[file]]: source = 7: not a file: use a text in double quotes"},
        Wrong{
            "[[file]]\nsource = \"a\"\ntarget = \"../a\"",
            R"(c.toml:3:10: [[file]] "a": target = "../a": not in the working folder of the hosts: use a relative path without ..; folder = "..." of [[host]] chooses another working folder)"},
        Wrong{"[[file]]\nsource = \"a\"\nfetch = \"yes\"",
              "c.toml:3:9: [[file]] \"a\": fetch = \"yes\": neither true nor false: use one of them, without quotes"},
        Wrong{"[[file]]\nsource = \"a\"\nfetch = true\nreplace = true",
              "c.toml:1:1: [[file]] \"a\": replace and fetch contradict each other: what is fetched always replaces; "
              "take "
              "replace out"},
        Wrong{
            "[[file]]\nsource = \"a\"\nhosts = \"ws1\"",
            R"(c.toml:3:9: [[file]] "a": hosts = "ws1": not a list of hosts: use their names with commas between them, for example ["ws1", "ws2"])"},
        Wrong{"[[host]]\nname = \"ws1\"\n[[file]]\nsource = \"a\"\nhosts = [\"ws11\"]",
              R"(c.toml:5:9: [[file]]: hosts: "ws11": no such host: did you mean ws1?)"},
        Wrong{"[[file]]\nsource = \"a\"\nhost = [\"ws1\"]",
              R"(c.toml:3:1: [[file]] "a": "host": unknown key: did you mean hosts?)"},
        Wrong{
            "[[host]]\nname = \"ws1\"\n[[site]]\nhosts = [\"ws1\"]",
            "c.toml:3:1: [[site]] 1: a gateway is missing: add gateway = \"login1\", the host by which ssh gets to the "
            "hosts of the site"},
        Wrong{"[[host]]\nname = \"ws1\"\n[[site]]\ngateway = \"g h\"",
              "c.toml:4:11: [[site]] 1: gateway = \"g h\": not a destination of ssh: use letters, digits and any "
              "of _.-@:%[], and no dash at the beginning"},
        Wrong{"[[host]]\nname = \"ws1\"\n[[site]]\ngateway = \"g\"\nhosts = [\"ws[1-\"]",
              "c.toml:5:9: [[site]] 1: hosts: \"ws[1-\": not a list of names: use numbers and ranges in one pair of "
              "brackets, as in ws[1-4,7]"},
        Wrong{"[[host]]\nname = \"ws1\"\n[[site]]\ngateway = \"g\"\nhosts = [\"ws2\"]",
              R"(c.toml:5:9: [[site]] g: hosts: "ws2": no such host: did you mean ws1?)"},
        Wrong{
            "[[host]]\nname = \"ws1\"\n[[site]]\ngateway = \"g\"\n[[site]]\ngateway = \"h\"",
            "c.toml:5:1: [[site]] h: ws1 is a host of the site of g already: a host is in one site; name the hosts of "
            "each by hosts = [...]"},
        Wrong{"[hosts]\n", "c.toml:1:2: [hosts]: unknown table: did you mean [[host]]?"},
        Wrong{"[network]\n",
              "c.toml:1:2: [network]: unknown table: a cluster file has [machine], [[host]], [[site]], [[file]] and "
              "[comm]"},
        Wrong{
            "grid = 4",
            R"(c.toml:1:1: "grid": keys stand in tables: write [machine], [[host]], [[site]], [[file]] or [comm] before it, for this key [machine])"}));

TEST(ClusterFile, SitesHaveTheHostsThatTheyName) {
  const cluster::Cluster cluster = cluster::parse_cluster(R"(
[[host]]
launch = "local"
[[host]]
name = "ws[1-3]"
[[host]]
name = "g"
count = 2
[[host]]
name = "far"
[[site]]
gateway = "g"
hosts = ["ws[1-3]", "g"]
[[site]]
gateway = "me@h:2222"
hosts = ["far"]
)",
                                                          "c.toml");
  std::vector<std::string> found;
  for (const cluster::ClusterHost& host : cluster.hosts)
    found.push_back(fmt::format("{} {} {}", host.name, host.site, host.gateway));
  EXPECT_EQ(found, (std::vector<std::string>{"local 0 ", "ws1 1 g", "ws2 1 g", "ws3 1 g", "g-1 1 ", "g-2 1 ",
                                             "far 2 me@h:2222"}));
  const cluster::Cluster one = cluster::parse_cluster(
      "[[host]]\nlaunch = \"local\"\n[[host]]\nname = \"ws1\"\n[[site]]\ngateway = \"g\"", "c.toml");
  EXPECT_EQ(one.hosts[0].site, 0U);
  EXPECT_EQ(one.hosts[1].site, 1U);
}

TEST(ClusterFile, FilesAreForTheHostsThatTheyName) {
  const cluster::Cluster cluster = cluster::parse_cluster(R"(
[[file]]
source = "a"
hosts = ["ws1"]
[[file]]
source = "b*"
fetch = true
target = "/results"
[[host]]
name = "ws1"
count = 2
[[host]]
name = "ws10"
)",
                                                          "c.toml");
  ASSERT_EQ(cluster.files.size(), 2U);
  EXPECT_TRUE(cluster.files[0].is_for("ws1"));
  EXPECT_TRUE(cluster.files[0].is_for("ws1-2"));
  EXPECT_FALSE(cluster.files[0].is_for("ws10"));
  EXPECT_FALSE(cluster.files[0].is_for("ws1-a"));
  EXPECT_TRUE(cluster.files[1].is_for("ws10"));
  EXPECT_TRUE(cluster.files[1].fetch);
  EXPECT_EQ(cluster.files[1].target, "/results");
}

struct NoToml {
  const char* text;
  const char* place;
  const char* remedy;
};

/// The TOML library's own message is between the two texts.
TEST(ClusterFile, WhatIsNoTomlIsRefusedWithARemedy) {
  for (const NoToml& wrong : {
           NoToml{"[machine]\ngrid = 4x2", "c.toml:2:9: \"grid = 4x2\": ",
                  ": texts stand in double quotes, as in program = \"./prog\" or grid = \"4x2\"; numbers, true and "
                  "false do not"},
           NoToml{"[machine]\nprogram = ./scg", "c.toml:2:", "; numbers, true and false do not"},
           NoToml{"[machine]\nprogram = \"a\nx = 1", "c.toml:2:13: \"program = \\\"a\": ",
                  ": a text ends with a double quote on its line; inside, a double quote is written \\\" and a "
                  "backslash \\\\"},
           NoToml{"[machine]\nprogram =\n", "c.toml:2:10: \"program =\": ", ": a value must follow ="},
           NoToml{"[machine\n",
                  "c.toml:1:9: \"[machine\": ", ": tables are [machine], [[host]] (once for each host) and [comm]"},
           NoToml{"[machine]\n[machine]", "c.toml:2:1: \"[machine]\": ", ": it is there twice: keep one"},
           NoToml{"machine:\n", "c.toml:1:8: \"machine:\": ",
                  ": a line is a table, as [machine], or key = value, or a comment that begins with #"},
           NoToml{"[machine]\nargs = [\"a\" \"b\"]", "c.toml:2:13: ", ": a list is written [\"a\", \"b\"]"},
           NoToml{"\xff\xfe", "c.toml:1:1: ", ": save the file as UTF-8"},
       }) {
    const std::string error = parse_error(wrong.text);
    EXPECT_TRUE(error.starts_with(wrong.place)) << error;
    EXPECT_TRUE(error.ends_with(wrong.remedy)) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(ClusterFile, AFileThatIsNotThere) {
  try {
    (void)cluster::read_cluster("/nowhere/c.toml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot read the cluster file /nowhere/c.toml: No such file or directory");
  }
  EXPECT_THROW((void)cluster::read_cluster("/"), Error);
  EXPECT_THROW((void)cluster::read_cluster("/dev/zero"), Error);
}

TEST(ClusterFile, ExamplesAreRight) {
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CLUSTER_EXAMPLES)) {
    if (entry.path().extension() != ".toml") continue;
    ++examples;
    EXPECT_NO_THROW((void)cluster::read_cluster(entry.path())) << entry.path();
  }
  EXPECT_GT(examples, 0);
}

TEST(ClusterProcesses, HaveAHostEach) {
  cluster::Cluster parted = cluster::parse_cluster(
      "[machine]\ncells = 6\n[[host]]\nname = \"a\"\ncells = 1\n[[host]]\nname = \"b\"\n", "c.toml");
  cluster::part_processes(parted, [](std::uint32_t cell) { return cell == 0 || cell == 3; });
  std::string text;
  for (const cluster::ClusterHost& host : parted.hosts)
    text += host.name + ":" + host.ssh_destination() + ":" + std::to_string(*host.cells) + (host.process ? "p " : " ");
  EXPECT_EQ(text, "a:a:1p b-1:b:2 b-2:b:1p b-3:b:2 ");
  cluster::Cluster open = cluster::parse_cluster("[[host]]\nname = \"a\"\n", "c.toml");
  EXPECT_THROW(cluster::part_processes(open, [](std::uint32_t) { return true; }), Error);
}

TEST(ClusterFile, SeveralProblemsAreReportedTogether) {
  EXPECT_EQ(
      parse_error("[comm]\nx = 1\n[machine]\ngrid = true\n[[host]]\nname = 3\n"),
      "c.toml:2:1: [comm]: \"x\": unknown key: [comm] has module, module-path, provider, ports, secure, streams, "
      "resume-time, send-limit, send-wait, "
      "unread-limit, peer-timeout\n"
      "c.toml:4:8: [machine]: grid = true: not a grid: use NXxNY with at least 1 cell and at most 16384 in all, for "
      "example 4x2 or 8, or \"auto\"\n"
      "c.toml:6:8: [[host]] 1: name = 3: not a name of a host: use letters, digits and any of _.-@:%,[], and no "
      "dash at the beginning");
  std::string many = "[machine]\n";
  for (int i = 0; i < 30; ++i) many += "unknown-" + std::to_string(i) + " = 1\n";
  const std::string error = parse_error(many);
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 20) << error;
  EXPECT_TRUE(error.ends_with("\nc.toml: and 10 more problems")) << error;
}

}  // namespace
}  // namespace aplib::launch
