// SPDX-License-Identifier: MIT
// mpiexec's options, one by one: what of them reaches aprun.
#include "launch/mpiexec.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>
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

std::string hosts_of(std::vector<const char*> words) {
  words.push_back("prog");
  return understood(words).hosts;
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
  EXPECT_EQ(for_aprun({"-wdir", "/tmp"}), "--wd /tmp --cells 1");
  for (const char* option : {"-l", "--tag-output", "-prepend-rank"})
    EXPECT_EQ(for_aprun({option}), "--tag-output --cells 1");
  EXPECT_EQ(for_aprun({"--timeout", "9"}), "--timeout 9 --cells 1");
  EXPECT_EQ(for_aprun({"--bind-to", "none"}), "--bind off --cells 1");
  EXPECT_EQ(for_aprun({"--bind-to", "core"}), "--bind on --cells 1");
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
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(understood({"-x", "MPIEXEC_TEST", "-x", "A=b=c", "-env", "D", "e", "-genv", "F", "", "prog"}).variables,
            (Pairs{{"MPIEXEC_TEST", "seven"}, {"A", "b=c"}, {"D", "e"}, {"F", ""}}));
  EXPECT_NE(refusal({"-x", "MPIEXEC_NO_TEST", "prog"}).find("no such variable"), std::string::npos);
  EXPECT_NE(refusal({"-env", "A=B", "c", "prog"}).find("not the name of a variable"), std::string::npos);
}

TEST(MpiexecOptions, WithoutEffectAreTold) {
  EXPECT_EQ(understood({"--mca", "btl", "self", "--map-by", "core", "prog"}).note,
            "without effect here: --mca btl self, --map-by core");
  EXPECT_EQ(understood({"-q", "--mca", "btl", "self", "prog"}).note, "");
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

TEST(MpiexecHosts, ComeFromFiles) {
  const std::string path = testing::TempDir() + "/mpiexec-hosts";
  std::ofstream(path) << "# comment\na slots=2 max_slots=4\n\nb\r\n";
  EXPECT_EQ(hosts_of({"-f", path.c_str()}), hosts_of({"-host", "a:2,b"}));
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
      {{"-oversubscribe=1", "prog"}, "unknown option"},
      {{"--oversubscribe=1", "prog"}, "takes 0 values, not 1"},
      {{"-host", "a b", "prog"}, "is not a host's name"},
      {{"-host", "a,,b", "prog"}, "is not a host's name"},
      {{"-host", "a\"]", "prog"}, "is not a host's name"},
      {{"-host", "a:16384,b:16384", "prog"}, "say how many: -n N"},
      {{"-host", "a", "-x", "A=b", "prog"}, "on those hosts"},
      {{"-n", "1", "prog", ":", "-n", "2", "other"}, "\":\" between programs"},
      {{"-configfile", "file"}, "on the command line"},
      {{"-path", "/bin", "prog"}, "set PATH"},
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
