// SPDX-License-Identifier: MIT
// Servers that die, hang, or are none; clients that die.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "client.hpp"

namespace aplib::gridrpc::test {
namespace {

using Trouble = Grid;

const std::string here = std::string(" at server test (") + TEST_SERVER + "): ";

/// It does not run; perhaps nobody has waited for it.
bool is_gone(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string number, name, state;
  return !(file >> number >> name >> state) || state == "Z" || state == "X";
}

TEST_F(Trouble, OfAServerThatDiesIsTheSessions) {
  initialize("processes = 1");
  Function crash("crash");
  EXPECT_EQ(grpc_call(crash, SIGTERM), GRPC_SESSION_FAILED);
  EXPECT_EQ(error(), "crash" + here +
                         "it was killed by signal 15 (Terminated) (the connection ended) in the "
                         "call: its standard error may say why");
  EXPECT_EQ(grpc_call(crash, SIGKILL), GRPC_SESSION_FAILED) << "in another process";
  EXPECT_EQ(grpc_call(Function("leave"), 3), GRPC_SESSION_FAILED);
  EXPECT_EQ(error(), "leave" + here +
                         "it ended with status 3 (the connection ended) in the call: its standard error "
                         "may say why");
  Function count("count");
  int number = 0;
  EXPECT_EQ(grpc_call(count, &number), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_call(count, &number), GRPC_NO_ERROR);
  EXPECT_EQ(number, 2) << "the process stays for the next call";
}

TEST_F(Trouble, OfAnIdleServerIsNobodys) {
  initialize("processes = 1");
  Function process("process");
  int first = 0;
  int second = 0;
  ASSERT_EQ(grpc_call(process, &first), GRPC_NO_ERROR);
  ::kill(first, SIGKILL);
  siginfo_t about{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(first), &about, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(grpc_call(process, &second), GRPC_NO_ERROR) << error();
  EXPECT_NE(first, second);
}

TEST_F(Trouble, OfAFunctionIsToldInItsWords) {
  initialize("processes = 1");
  Function fail("fail");
  EXPECT_EQ(grpc_call(fail, "the file of rates is empty"), GRPC_SESSION_FAILED);
  EXPECT_EQ(error(), "fail" + here + "the file of rates is empty");
  EXPECT_EQ(grpc_call(fail, ""), GRPC_SESSION_FAILED);
  EXPECT_EQ(error(), "fail" + here + "the function failed");
  EXPECT_EQ(grpc_call(fail, "two\nlines"), GRPC_SESSION_FAILED);
  EXPECT_EQ(error(), "fail" + here + "two lines");
}

TEST_F(Trouble, EndsWithTheTimeout) {
  initialize("timeout = \"100ms\"\nprocesses = 1");
  Function doze("doze");
  int result = 0;
  EXPECT_EQ(grpc_call(doze, 60'000, &result), GRPC_TIMEOUT_NP);
  EXPECT_EQ(error(), "doze" + here + "not done within 0.1 s, and killed: raise timeout in the file of servers");
  EXPECT_EQ(grpc_call(Function("twice"), 4, &result), GRPC_NO_ERROR) << error();
  int id = 0;
  ASSERT_EQ(grpc_call_async(doze, &id, 60'000, &result), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_wait(id), GRPC_SESSION_FAILED);
  EXPECT_EQ(grpc_get_error(id), GRPC_TIMEOUT_NP);
}

TEST_F(Trouble, OfProgramsThatAreNoServersIsToldAtOnce) {
  const auto refusal = [](const std::string& command, int code) {
    const ServersFile file(
        "[[server]]\nname = \"sh\"\nprogram = \"/bin/sh\"\nstart-timeout = \"200ms\"\narguments = [\"-c\", '''" +
        command + "''']\n");
    EXPECT_EQ(grpc_initialize(file.name()), GRPC_NO_ERROR) << error();
    grpc_function_handle_t handle;
    EXPECT_EQ(grpc_function_handle_default(&handle, "twice"), code) << command;
    const std::string text = error();
    EXPECT_EQ(grpc_finalize(), GRPC_NO_ERROR);
    return text;
  };
  EXPECT_EQ(refusal("exit 3", GRPC_COMMUNICATION_FAILED),
            "server sh (/bin/sh): it ended with status 3 before it had said what it offers: its standard error may say "
            "why, and /bin/sh --interface may show more");
  EXPECT_EQ(refusal("sleep 60 & sleep 60", GRPC_RPC_REFUSED),
            "server sh (/bin/sh): it said nothing within 0.2 s, as servers do: is it a program that apgen has written "
            "the main part of? A slow one needs start-timeout");
  EXPECT_EQ(refusal("echo This is no greeting of a server at all >&0; sleep 60", GRPC_RPC_REFUSED),
            "server sh (/bin/sh): it is no server of GridRPC: name a program that apgen has written the main part of");
  EXPECT_EQ(refusal(R"(printf 'APGRPC1\n\002\000\000\000\000\000\000\000' >&0; sleep 60)", GRPC_RPC_REFUSED),
            "server sh (/bin/sh): it speaks version 2, and this program 1: compile both with the same APlib");
  EXPECT_EQ(refusal(R"(printf 'APGRPC1\n\001\000\000\000\377\377\377\377' >&0; sleep 60)", GRPC_RPC_REFUSED),
            "server sh (/bin/sh): its interface has 4294967295 bytes, which is too much: split the module");
  EXPECT_EQ(
      refusal(R"(printf 'APGRPC1\n\001\000\000\000\011\000\000\000Module m.' >&0; sleep 60)", GRPC_RPC_REFUSED),
      "server sh (/bin/sh): what it offers cannot be read: sh:1:9: \".\": no ; follows the module's name: end the "
      "line with ;");
}

/// A server by hand: its interface, then these answers, whatever it is asked.
std::string impostor(const std::string& interface, const std::string& answers) {
  std::string greeting = "APGRPC1\\n\\001\\000\\000\\000";
  char bytes[32];
  std::snprintf(bytes, sizeof bytes, "\\%03o\\000\\000\\000", static_cast<unsigned>(interface.size()));
  return "[[server]]\nname = \"sh\"\nprogram = \"/bin/sh\"\narguments = [\"-c\", '''printf \"" + greeting + bytes +
         interface + "\" >&0; head -c 1 >/dev/null; printf \"" + answers + "\" >&0; sleep 60''']\n";
}

TEST_F(Trouble, OfAServerThatAnswersNonsenseEndsItsProcess) {
  const std::string interface = "Module m; Define f(OUT int *a, OUT string s);";
  const auto refusal = [&](const std::string& answer) {
    const ServersFile file(impostor(interface, answer));
    EXPECT_EQ(grpc_initialize(file.name()), GRPC_NO_ERROR) << error();
    grpc_function_handle_t handle;
    int a = 0;
    char* s = nullptr;
    EXPECT_EQ(grpc_function_handle_default(&handle, "f"), GRPC_NO_ERROR) << error();
    EXPECT_EQ(grpc_call(&handle, &a, &s), GRPC_SESSION_FAILED) << answer;
    const std::string text = error();
    std::free(s);
    EXPECT_EQ(grpc_finalize(), GRPC_NO_ERROR);
    return text;
  };
  const std::string reply = R"(repl\000\000\000\000)";
  const std::string four = R"(\004\000\000\000\000\000\000\000)";
  EXPECT_EQ(refusal("what is this and so on"), "f at server sh (/bin/sh): what came back is no answer");
  EXPECT_EQ(refusal(reply + four + "abcd"), "f at server sh (/bin/sh): what came is shorter than its arguments");
  EXPECT_EQ(refusal(reply + R"(\014\000\000\000\000\000\000\000abcd\377\377\377\000\000\000\000\000)"),
            "f at server sh (/bin/sh): a text or file is said to have 16777215 bytes, which do not come");
  EXPECT_EQ(refusal(reply + R"(\016\000\000\000\000\000\000\000abcd\001\000\000\000\000\000\000\000xyz)"),
            "f at server sh (/bin/sh): what came back is longer than the results");
}

TEST_F(Trouble, OfTheClientEndsTheCallsThatRun) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    initialize("processes = 1");
    Function process("process");
    int ids[2] = {};
    Function doze("doze");
    int session = 0;
    int result = 0;
    grpc_call(process, &ids[0]);
    grpc_call_async(Function("twice"), &session, 1, &result);
    grpc_call_async(doze, &session, 0, &result);
    grpc_wait(session);
    grpc_call_async(doze, &session, 600'000, &result);
    static_cast<void>(::write(ends[1], ids, sizeof ids[0]) == 4);
    ::pause();
    ::_exit(0);
  }
  pid_t server = 0;
  ASSERT_EQ(::read(ends[0], &server, sizeof server), static_cast<ssize_t>(sizeof server));
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  while (!is_gone(server)) std::this_thread::sleep_for(std::chrono::milliseconds(5));  // ctest has a limit
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(Trouble, IsNoneOfTheCallersDescriptors) {
  initialize("processes = 1");
  const auto open = [] {
    int count = 0;
    for (int i = 0; i < 1000; ++i) count += ::fcntl(i, F_GETFD) >= 0 ? 1 : 0;
    return count;
  };
  const int before = open();
  for (int i = 0; i < 5; ++i) {
    Function reverse("reverse");
    std::vector<double> a(100'000);
    EXPECT_EQ(grpc_call(reverse, 100'000L, a.data(), nullptr), GRPC_NO_ERROR);
    EXPECT_EQ(grpc_call(Function("crash"), SIGKILL), GRPC_SESSION_FAILED);
  }
  EXPECT_EQ(open(), before);
}

}  // namespace
}  // namespace aplib::gridrpc::test
