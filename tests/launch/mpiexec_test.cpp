// SPDX-License-Identifier: MIT
// mpiexec's options, one by one: what of them reaches aprun.
#include "launch/mpiexec.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "aplib/error.hpp"

namespace aplib::launch {
namespace {

Mpiexec understood(const std::vector<const char*>& words) { return read_mpiexec(words, "here"); }

/// aprun's arguments, without the program's.
std::string for_aprun(std::vector<const char*> words) {
  words.push_back("prog");
  std::string text;
  for (const std::string& word : understood(words).words) text += text.empty() ? word : " " + word;
  EXPECT_TRUE(text.ends_with("-- prog")) << text;
  return text.substr(0, text.size() - std::string(" -- prog").size());
}

/// Of this process's own: the same test of other builds may run beside it.
std::string file_named(const std::string& name) {
  return testing::TempDir() + "/" + name + "-" + std::to_string(::getpid());
}

std::string hosts_of(std::vector<const char*> words) {
  words.push_back("prog");
  return understood(words).hosts;
}

std::string text_of(const std::vector<wire::NamedValue>& variables) {
  std::string text;
  for (const auto& [name, value] : variables) text += name + "=" + value + " ";
  return text;
}

/// "cell name arguments" of each program but the first.
std::string others_of(const std::vector<const char*>& words) {
  std::string text;
  for (const wire::ProgramText& program : understood(words).others) {
    text += (text.empty() ? "" : "; ") + std::to_string(program.first_cell) + " " + program.name;
    for (const std::string& argument : program.arguments) text += " " + argument;
    if (!program.folder.empty()) text += " in " + program.folder;
  }
  return text;
}

/// The message; empty: it is not refused.
std::string refusal(const std::vector<const char*>& words) {
  try {
    (void)understood(words);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(MpiexecOptions, BecomeAprunsOptions) {
  EXPECT_EQ(for_aprun({}), "--cells 1");
  for (const char* option : {"-n", "-np", "--np", "-c"}) EXPECT_EQ(for_aprun({option, "4"}), "--cells 4");
  EXPECT_EQ(for_aprun({"--np=4"}), "--cells 4");
  EXPECT_EQ(for_aprun({"-ppn", "3"}), "--cells 3");
  EXPECT_EQ(for_aprun({"-wdir", "/tmp"}), "--cells 1 --wd /tmp");
  for (const char* option : {"-l", "--tag-output", "-prepend-rank"})
    EXPECT_EQ(for_aprun({option}), "--tag-output --cells 1");
  EXPECT_EQ(for_aprun({"--timeout", "9"}), "--timeout 9 --cells 1");
  EXPECT_EQ(for_aprun({"--bind-to", "none"}), "--bind off --cells 1");
  EXPECT_EQ(for_aprun({"--bind-to", "core"}), "--bind on --cells 1");
  EXPECT_EQ(for_aprun({"-pernode"}), "--cells 1");
  EXPECT_EQ(for_aprun({"-outfile-pattern", "o.%r", "-errfile-pattern", "%r/e.%r"}),
            "--output o.{cid} --error {cid}/e.{cid} --cells 1");
  EXPECT_EQ(for_aprun({"--stdin", "none"}), "--input /dev/null --cells 1");
  EXPECT_EQ(for_aprun({"--stdin", "0"}), "--cells 1");
  EXPECT_EQ(for_aprun({"--oversubscribe", "--allow-run-as-root", "-genvall"}), "--cells 1");
  ASSERT_EQ(setenv("MPIEXEC_TIMEOUT", "7", 1), 0);
  EXPECT_EQ(for_aprun({}), "--timeout 7 --cells 1");
  EXPECT_EQ(for_aprun({"-timeout", "8"}), "--timeout 8 --cells 1");
  ASSERT_EQ(unsetenv("MPIEXEC_TIMEOUT"), 0);
}

TEST(MpiexecOptions, EndAtTheProgram) {
  const Mpiexec asked = understood({"-n", "2", "--", "-prog", "-n", "3"});
  EXPECT_EQ(asked.words, (std::vector<std::string>{"--cells", "2", "--", "-prog", "-n", "3"}));
}

TEST(MpiexecOptions, SetVariables) {
  ASSERT_EQ(setenv("MPIEXEC_TEST", "seven", 1), 0);
  const Mpiexec asked = understood({"-x", "MPIEXEC_TEST", "-x", "A=b=c", "-env", "D", "e", "-genv", "F", "", "prog"});
  EXPECT_EQ(text_of(asked.variables), "F= MPIEXEC_TEST=seven A=b=c D=e ");
  // Those of one program among several are its own.
  const Mpiexec two = understood({"-genv", "F", "f", "-x", "A=b", "prog", ":", "-env", "A", "c", "other"});
  EXPECT_EQ(text_of(two.variables), "F=f ");
  EXPECT_EQ(text_of(two.own), "F=f A=b ");
  EXPECT_EQ(text_of(two.others.at(0).variables), "F=f A=c ");
  EXPECT_NE(refusal({"-x", "MPIEXEC_NO_TEST", "prog"}).find("no such variable"), std::string::npos);
  EXPECT_NE(refusal({"-env", "A=B", "c", "prog"}).find("not the name of a variable"), std::string::npos);
}

TEST(MpiexecPrograms, StandBehindColons) {
  const std::vector<const char*> words{"-n", "2", "a", "x", ":", "-n", "3", "-wdir", "/d", "b", "-n", "9", ":", "c"};
  EXPECT_EQ(understood(words).words, (std::vector<std::string>{"--cells", "6", "--", "a", "x"}));
  EXPECT_EQ(others_of(words), "2 b -n 9 in /d; 5 c");
}

TEST(MpiexecPrograms, AreProcessesEachForItself) {
  const Mpiexec asked = understood({"--processes", "-n", "2", "a", ":", "b", ":", "-processes", "c"});
  EXPECT_TRUE(asked.processes);
  EXPECT_FALSE(asked.others.at(0).is_process);
  EXPECT_TRUE(asked.others.at(1).is_process);
}

TEST(MpiexecPrograms, ShareHostsOrHaveTheirOwn) {
  EXPECT_EQ(understood({"-host", "a:2,b:2", "-n", "3", "x", ":", "-n", "1", "y"}).hosts,
            understood({"-host", "a:2,b:2", "x"}).hosts);
  EXPECT_EQ(understood({"-host", "a", "-n", "2", "x", ":", "-host", "b:3", "y"}).hosts,
            "[machine]\ncells = 5\n[[host]]\nname = \"a\"\ncells = 2\n[[host]]\nname = \"b\"\ncells = 3\n");
  EXPECT_EQ(understood({"-n", "2", "x", ":", "-host", "b", "y"}).hosts,
            "[machine]\ncells = 3\n[[host]]\nname = \"localhost\"\ncells = 2\nlaunch = \"local\"\n"
            "[[host]]\nname = \"b\"\ncells = 1\n");
  EXPECT_EQ(others_of({"-host", "a", "-n", "2", "x", ":", "-host", "b:3", "y"}), "2 y");
  EXPECT_EQ(understood({"-host", "a", "x", ":", "-host", "b", "y", ":", "-host", "a:2", "z"}).hosts,
            "[machine]\ncells = 4\n[[host]]\nname = \"a\"\ncells = 1\n[[host]]\nname = \"b\"\ncells = 1\n"
            "[[host]]\nname = \"a-2\"\nssh = \"a\"\ncells = 2\n");
  EXPECT_EQ(understood({"-host", "a,a-2", "x", ":", "-host", "b", "y", ":", "-host", "a", "z"}).hosts,
            "[machine]\ncells = 4\n[[host]]\nname = \"a\"\ncells = 1\n[[host]]\nname = \"a-2\"\ncells = 1\n"
            "[[host]]\nname = \"b\"\ncells = 1\n[[host]]\nname = \"a-3\"\nssh = \"a\"\ncells = 1\n");
}

TEST(MpiexecPrograms, ComeFromFiles) {
  const std::string path = file_named("mpiexec-programs");
  std::ofstream(path) << "# comment\n-n 2 a 'x y'\n\n-n 3 \\\n b\\";
  for (const char* option : {"-configfile", "--app"}) {
    const std::vector<const char*> words{"-l", option, path.c_str()};
    EXPECT_EQ(understood(words).words, (std::vector<std::string>{"--tag-output", "--cells", "5", "--", "a", "x y"}));
    EXPECT_EQ(others_of(words), "2 b");
  }
  EXPECT_NE(refusal({"-n", "2", "-configfile", path.c_str()}).find("write them there"), std::string::npos);
  std::ofstream(path) << "-n 2 a\n-n many b\n";
  EXPECT_NE(refusal({"-configfile", path.c_str()}).find(path + ":2: -n: \"many\""), std::string::npos);
  std::ofstream(path) << "-configfile " << path << "\n";
  EXPECT_NE(refusal({"-configfile", path.c_str()}).find("cannot name another one"), std::string::npos);
  std::remove(path.c_str());
}

TEST(MpiexecOptions, WithoutEffectAreTold) {
  EXPECT_EQ(understood({"--mca", "btl", "self", "--map-by", "core", "prog"}).note,
            "without effect here: --mca btl self, --map-by core");
  EXPECT_EQ(understood({"-q", "--mca", "btl", "self", "prog"}).note, "");
}

// Options of Open MPI 4 and MPICH 4 that once ended the run.
TEST(MpiexecOptions, OfOthersEndNoRun) {
  for (const std::vector<const char*>& words : std::vector<std::vector<const char*>>{{"--use-hwthread-cpus"},
                                                                                     {"-usize", "4"},
                                                                                     {"--tune", "f"},
                                                                                     {"-prepend-pattern", "x"},
                                                                                     {"--nolocal"},
                                                                                     {"-disable-auto-cleanup"},
                                                                                     {"--merge-stderr-to-stdout"},
                                                                                     {"--personality", "ompi"},
                                                                                     {"--report-pid", "-"},
                                                                                     {"--xterm", "1"},
                                                                                     {"--prefix", "/usr"},
                                                                                     {"--timestamp-output"},
                                                                                     {"--enable-recovery"},
                                                                                     {"-demux", "poll"},
                                                                                     {"-binding", "user:0"},
                                                                                     {"-topolib", "hwloc"},
                                                                                     {"-print-rank-map"},
                                                                                     {"-info"},
                                                                                     {"-skip-launch-node"},
                                                                                     {"--display", "bind"},
                                                                                     {"--bind-to-socket"}}) {
    std::vector<const char*> line = words;
    line.push_back("prog");
    EXPECT_EQ(refusal(line), "");
    std::string text;
    for (const char* const word : words) text += std::string(text.empty() ? "" : " ") + word;
    EXPECT_EQ(understood(line).note, "without effect here: " + text);
  }
  EXPECT_EQ(understood({"-print-all-exitcodes", "-ordered-output", "--bind-to-core", "prog"}).note, "");
}

// As for ranks that enter their folder before they execute the program.
TEST(MpiexecPrograms, AreLookedForInTheirFolder) {
  const std::string folder = std::filesystem::path(file_named("mpiexec-folder")).lexically_normal();
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  std::ofstream(folder + "/there") << "";
  EXPECT_EQ(understood({"-wdir", folder.c_str(), "./there"}).words.back(), folder + "/there");
  EXPECT_EQ(understood({"-wdir", folder.c_str(), "./here"}).words.back(), "./here");
  EXPECT_EQ(understood({"-wdir", folder.c_str(), "there"}).words.back(), "there") << "it is one of PATH";
  EXPECT_EQ(understood({"a", ":", "-wdir", folder.c_str(), "./there"}).others.at(0).name, folder + "/there");
  std::filesystem::remove_all(folder);
}

TEST(MpiexecHosts, OfThisComputerNeedNoOtherProcess) {
  EXPECT_EQ(for_aprun({"-host", "localhost:4"}), "--cells 4");
  EXPECT_EQ(for_aprun({"-host", "localhost,here", "-n", "5"}), "--cells 5");
  EXPECT_EQ(hosts_of({"-host", "localhost:4"}), "");
}

TEST(MpiexecHosts, AreFilledInTheirOrder) {
  EXPECT_EQ(hosts_of({"-host", "a:2,b"}),
            "[machine]\ncells = 3\n[[host]]\nname = \"a\"\ncells = 2\n[[host]]\nname = \"b\"\ncells = 1\n");
  EXPECT_EQ(hosts_of({"-host", "a:4,b:4", "-n", "3"}), "[machine]\ncells = 3\n[[host]]\nname = \"a\"\ncells = 3\n");
  EXPECT_EQ(hosts_of({"-hosts", "a,here", "-n", "5"}),
            "[machine]\ncells = 5\n[[host]]\nname = \"a\"\ncells = 3\n[[host]]\nname = \"here\"\ncells = 2\n"
            "launch = \"local\"\n");
  EXPECT_EQ(hosts_of({"-host", "a,b,a"}), hosts_of({"-host", "a:2,b"}));
  EXPECT_EQ(hosts_of({"-host", "a,b", "-ppn", "2", "-n", "3"}), hosts_of({"-host", "a:2,b:1"}));
}

/// A variable of the environment, while it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(MpiexecOptions, PassVariablesOn) {
  const Variable one("MPIEXEC_ONE", "1");  // begins as those that stay here
  const Variable two("TWO", "2 2");
  EXPECT_EQ(text_of(understood({"-genvlist", "MPIEXEC_ONE,TWO", "prog"}).variables), "MPIEXEC_ONE=1 TWO=2 2 ");
  EXPECT_EQ(text_of(understood({"-envlist", "TWO", "a", ":", "b"}).own), "TWO=2 2 ");
  EXPECT_NE(refusal({"-genvlist", "TWO,THREE", "prog"}).find("-genvlist THREE: there is no such variable"),
            std::string::npos);
  EXPECT_EQ(text_of(understood({"-genvall", "prog"}).variables), "") << "all ranks are here";
  for (const char* const option : {"-genvall", "-envall"}) {
    const std::string all = text_of(understood({option, "-host", "a", "-genv", "TWO", "3", "prog"}).own);
    EXPECT_NE(all.find("TWO=2 2 "), std::string::npos) << all;
    EXPECT_GT(all.find("TWO=3 "), all.find("TWO=2 2 ")) << "the later one counts";
    EXPECT_EQ(all.find("HOME="), std::string::npos) << all;
    EXPECT_EQ(all.find("MPIEXEC_ONE="), std::string::npos) << all;
  }
}

TEST(MpiexecHosts, AreThoseOfTheSlurmJob) {
  const Variable job("SLURM_JOB_ID", "7");
  const Variable list("SLURM_JOB_NODELIST", "here,n[1-2]");
  const Variable tasks("SLURM_TASKS_PER_NODE", "2(x2),1");
  EXPECT_EQ(hosts_of({}),
            "[machine]\ncells = 5\n[[host]]\nname = \"here\"\ncells = 2\nlaunch = \"local\"\n"
            "[[host]]\nname = \"n1\"\ncells = 2\nlaunch = \"slurm\"\n"
            "[[host]]\nname = \"n2\"\ncells = 1\nlaunch = \"slurm\"\n");
  EXPECT_EQ(for_aprun({"-n", "2"}), "--cells 2") << "they fit on the first host";
  EXPECT_EQ(hosts_of({"-host", "n1"}), "[machine]\ncells = 1\n[[host]]\nname = \"n1\"\ncells = 1\n");
  const Variable step("SLURM_STEP_ID", "0");
  EXPECT_EQ(for_aprun({}), "--cells 1") << "srun has started it, and has other plans with the hosts";
  const Variable interactive("SLURM_STEP_ID", "4294967290");
  EXPECT_NE(hosts_of({}), "");
}

TEST(MpiexecHosts, AreThoseOfOtherBatchJobs) {
  const std::string path = file_named("mpiexec-job");
  for (const char* const name : {"PBS_NODEFILE", "LSB_DJOB_HOSTFILE"}) {
    const Variable file(name, path);
    std::ofstream(path) << "here\na\na\n";
    EXPECT_EQ(hosts_of({}), hosts_of({"-host", "here,a:2"})) << name;
  }
  const Variable file("PE_HOSTFILE", path);
  std::ofstream(path) << "here 1 all.q@here UNDEFINED\na 2 all.q@a <NULL>\n";
  EXPECT_EQ(hosts_of({}), hosts_of({"-host", "here,a:2"}));
  std::remove(path.c_str());
  EXPECT_EQ(hosts_of({}), "") << "the file is on another host";
}

TEST(MpiexecHosts, ComeFromFiles) {
  const std::string path = file_named("mpiexec-hosts");
  std::ofstream(path) << "# comment\na slots=2 max_slots=4\n\nb\r\n";
  EXPECT_EQ(hosts_of({"-f", path.c_str()}), hosts_of({"-host", "a:2,b"}));
  std::ofstream(path) << "a count=2 user_name=me boards=1\nb cpu=3 binding=user:0,1 ifname=eth0\n";
  EXPECT_EQ(hosts_of({"-f", path.c_str()}), hosts_of({"-host", "a:2,b:3"}));
  for (const auto& [line, problem] : {std::pair("a slot=2", "unknown key \"slot\": did you mean slots?"),
                                      std::pair("a foo=1 slots=2", "unknown key \"foo\": write slots=N")}) {
    std::ofstream(path) << "b\n" << line << "\n";
    EXPECT_NE(refusal({"-f", path.c_str(), "prog"}).find(path + ":2: " + problem), std::string::npos) << line;
  }
  std::ofstream(path) << "a:2\nb 3\n";
  EXPECT_NE(refusal({"--hostfile", path.c_str(), "prog"}).find(path + ":2: \"3\""), std::string::npos);
  std::ofstream(path) << "# none\n";
  EXPECT_NE(refusal({"--hostfile", path.c_str(), "prog"}).find("names no host"), std::string::npos);
  std::remove(path.c_str());
  EXPECT_NE(refusal({"--hostfile", path.c_str(), "prog"}).find("cannot read the host file"), std::string::npos);
}

TEST(MpiexecOptions, AreRefusedWithAReason) {
  const struct {
    std::vector<const char*> words;
    const char* part;
  } rows[] = {
      {{}, "no program is given"},
      {{"-n", "2"}, "no program is given"},
      {{"-n"}, "takes 1 value"},
      {{"-n", "0", "prog"}, "use 1 .. 16384"},
      {{"-n", "many", "prog"}, "\"many\" is not a number"},
      {{"--nq", "2", "prog"}, "unknown option --nq; did you mean"},
      {{"--cpu_bind=none", "prog"}, "unknown option --cpu_bind=none; --help lists"},
      {{"-oversubscribe=1", "prog"}, "unknown option"},
      {{"--oversubscribe=1", "prog"}, "takes 0 values, not 1"},
      {{"-host", "a b", "prog"}, "is not a host's name"},
      {{"-host", "a,,b", "prog"}, "is not a host's name"},
      {{"-host", "a\"]", "prog"}, "is not a host's name"},
      {{"-host", "a:16384,b:16384", "prog"}, "say how many: -n N"},
      {{"prog", ":"}, "on one side of \":\""},
      {{":", "prog"}, "on one side of \":\""},
      {{"prog", ":", "-n", "2"}, "on one side of \":\""},
      {{"-n", "16384", "prog", ":", "other"}, "at most 16384 can run"},
      {{"-configfile", "/no/such/file"}, "cannot read the file of programs /no/such/file: No such file"},
      {{"-file", "file", "prog"}, "on the command line"},
      {{"-path", "/bin", "prog"}, "set PATH"},
      {{"-gpath", "/bin", "prog"}, "set PATH"},
      {{"--rankfile", "file", "prog"}, "-host a:4,b:4"},
      {{"--output-filename", "o", "prog"}, "-outfile-pattern out.%r"},
      {{"-tv", "prog"}, "put the debugger before the program"},
      {{"--stdin", "all", "prog"}, "use 0, or none"},
      {{"-envnone", "prog"}, "env -i"},
      {{"-initial-errhandler", "mpi_errors_return", "prog"}, "MPI_Comm_set_errhandler"},
  };
  for (const auto& row : rows) {
    const std::string text = refusal(row.words);
    EXPECT_NE(text.find(row.part), std::string::npos) << row.part << ": " << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST(MpiexecOptions, AreInTheManual) {
  std::ostringstream manual;
  manual << std::ifstream(MPI_MANUAL).rdbuf();
  std::istringstream help(mpiexec_help());
  int options = 0;
  for (std::string line; std::getline(help, line);) {
    if (!line.starts_with("  -") || line.starts_with("  --")) continue;
    std::istringstream names(line);
    for (std::string name; names >> name; ++options) {
      EXPECT_NE(manual.str().find("`" + name + "`"), std::string::npos) << name;
    }
  }
  EXPECT_GT(options, 40);
}

TEST(MpiexecName, IsThatOfTheCommand) {
  EXPECT_EQ(mpiexec_name("/x/mpiexec"), "mpiexec");
  EXPECT_EQ(mpiexec_name("mpirun.aplib"), "mpirun");
  EXPECT_EQ(mpiexec_name("/mpiexec/aprun"), "");
}

}  // namespace
}  // namespace aplib::launch
