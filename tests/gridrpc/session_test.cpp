// SPDX-License-Identifier: MIT
// The calls and codes of GFD.52 that have no arguments of functions: life, handles, sessions, errors; and objects.
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client.hpp"

namespace aplib::gridrpc::test {
namespace {

using Life = Grid;

TEST_F(Life, BeginsAndEndsOnce) {
  grpc_function_handle_t handle{};
  grpc_function_handle_t* found = nullptr;
  int session = 0;
  int result = 0;
  EXPECT_EQ(grpc_finalize(), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(grpc_function_handle_default(&handle, "twice"), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(grpc_function_handle_init(&handle, "test", "twice"), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(grpc_function_handle_destruct(&handle), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(grpc_get_handle(&found, 0), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(grpc_call(&handle, 1, &result), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(grpc_call_async(&handle, &session, 1, &result), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(session, GRPC_SESSIONID_VOID);
  EXPECT_EQ(grpc_probe(0), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(grpc_probe_or(&session, 1, &session), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(grpc_cancel(0), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(grpc_cancel_all(), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(grpc_wait(0), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(grpc_wait_and(&session, 1), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(grpc_wait_or(&session, 1, &session), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(grpc_wait_all(), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(grpc_wait_any(&session), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(grpc_get_error(0), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(grpc_get_failed_sessionid(&session), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(error(), "GridRPC is not initialized: call grpc_initialize()");
  initialize();
  EXPECT_EQ(grpc_initialize(nullptr), GRPC_ALREADY_INITIALIZED);
  EXPECT_EQ(grpc_finalize(), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_finalize(), GRPC_NOT_INITIALIZED);
}

TEST_F(Life, RefusesFilesOfServersThatAreWrong) {
  EXPECT_EQ(grpc_initialize("/nowhere/servers.toml"), GRPC_CONFIGFILE_NOT_FOUND);
  EXPECT_EQ(error(), "the file of servers /nowhere/servers.toml cannot be read: No such file or directory");
  const auto refusal = [](const std::string& text) {
    const ServersFile file(text);
    EXPECT_EQ(grpc_initialize(file.name()), GRPC_CONFIGFILE_ERROR) << text;
    const std::string message = error();
    EXPECT_TRUE(message.starts_with(file.name())) << message;
    return message.substr(std::string(file.name()).size());
  };
  EXPECT_EQ(refusal("[[server]]\n"), ":1:1: [[server]]: it has no program: add program = \"PATH\"");
  EXPECT_EQ(refusal("[[server]]\nprogram = 3\n"), ":2:11: [[server]]: program = 3: use a text in double quotes");
  EXPECT_EQ(refusal("[[server]]\nname = \"a\"\nprorgam = \"x\"\n"),
            ":3:1: [[server]] a: there is no key prorgam: did you mean program?");
  EXPECT_EQ(refusal("[[server]]\nprogram = \"x\"\nprocesses = 0\n"),
            ":3:13: [[server]]: processes = 0: use a number from 1 to 10000");
  EXPECT_EQ(refusal("[[server]]\nprogram = \"x\"\ntimeout = \"soon\"\n"),
            ":3:11: [[server]]: timeout = \"soon\": use a time such as \"500ms\" or \"60s\"");
  EXPECT_EQ(refusal("[[server]]\nprogram = \"x\"\narguments = \"-v\"\n"),
            ":3:13: [[server]]: arguments = \"-v\": use a list of texts: [\"a\", \"b\"]");
  EXPECT_EQ(refusal("[[server]]\nprogram = \"x\"\n[[server]]\nprogram = \"x\"\n"),
            ":3:1: [[server]] x: there are two of that name: use another one");
  EXPECT_EQ(refusal("[host]\n"), ":1:2: there is no table host: write [[server]], once for each");
  EXPECT_EQ(refusal("a = 1\n"), ":1:1: a stands before the servers: write [[server]] above it");
  EXPECT_NE(refusal("[[server\n").find("tables are [[server]], once for each"), std::string::npos);
  EXPECT_EQ(grpc_finalize(), GRPC_NOT_INITIALIZED) << "none of these has begun";
}

TEST_F(Life, FindsServersByTheirPath) {
  ASSERT_EQ(::setenv("APLIB_GRIDRPC_PATH", (std::string("/nowhere:/dev:") + TEST_SERVER).c_str(), 1), 0);
  EXPECT_EQ(grpc_initialize(nullptr), GRPC_NO_ERROR);
  ::unsetenv("APLIB_GRIDRPC_PATH");
  grpc_function_handle_t handle;
  int result = 0;
  ASSERT_EQ(grpc_function_handle_default(&handle, "test/twice"), GRPC_NO_ERROR) << error();
  EXPECT_EQ(grpc_call(&handle, 3, &result), GRPC_NO_ERROR);
  EXPECT_EQ(result, 6);
  const char* const name = std::strrchr(TEST_SERVER, '/') + 1;
  ASSERT_EQ(grpc_function_handle_init(&handle, name, "twice"), GRPC_NO_ERROR) << error();
  ASSERT_EQ(grpc_function_handle_init(&handle, TEST_SERVER, "twice"), GRPC_NO_ERROR) << error();
  EXPECT_EQ(grpc_call(&handle, 4, &result), GRPC_NO_ERROR);
  EXPECT_EQ(result, 8);
}

// A program that is no server of APlib's may be anything, the client among them.
TEST_F(Life, RunsNoProgramOfAFolderToFindOutWhatItIs) {
  namespace fs = std::filesystem;
  char name[] = "/tmp/aplib-servers-XXXXXX";
  const fs::path folder = ::mkdtemp(name);
  fs::copy_file(TEST_SERVER, folder / "server");
  fs::create_symlink("/proc/self/exe", folder / "another");
  fs::copy_file("/bin/true", folder / "b");
  for (const char* const script : {"a.sh", "z.sh"}) {
    std::ofstream(folder / script) << "#!/bin/sh\necho ran >" << (folder / "ran").string() << "\n";
    fs::permissions(folder / script, fs::perms::owner_all);
  }
  std::ofstream(folder / "short") << "\177ELF";
  fs::permissions(folder / "short", fs::perms::owner_all);
  ::setenv("APLIB_GRIDRPC_PATH", folder.c_str(), 1);
  EXPECT_EQ(grpc_initialize(nullptr), GRPC_NO_ERROR);
  grpc_function_handle_t handle;
  int result = 0;
  ASSERT_EQ(grpc_function_handle_default(&handle, "test/twice"), GRPC_NO_ERROR) << error();
  EXPECT_EQ(grpc_call(&handle, 3, &result), GRPC_NO_ERROR);
  EXPECT_EQ(result, 6);
  EXPECT_EQ(grpc_function_handle_default(&handle, "test/thrice"), GRPC_FUNCTION_NOT_FOUND);
  EXPECT_EQ(grpc_function_handle_init(&handle, "b", "twice"), GRPC_SERVER_NOT_FOUND);
  EXPECT_EQ(error(), "there is no server b: known ones are server; a path has a slash");
  EXPECT_FALSE(fs::exists(folder / "ran"));
  ::unsetenv("APLIB_GRIDRPC_PATH");
  fs::remove_all(folder);
}

TEST_F(Life, ThoseThatStartThemselvesEnd) {
  ::setenv("_APLIB_GRIDRPC_DEPTH", "8", 1);
  initialize();
  grpc_function_handle_t handle;
  EXPECT_EQ(grpc_function_handle_init(&handle, "test", "twice"), GRPC_RPC_REFUSED);
  EXPECT_NE(error().find("as the 8th in a row: does one name itself as a server?"), std::string::npos) << error();
  ::setenv("_APLIB_GRIDRPC_DEPTH", "7", 1);
  EXPECT_EQ(grpc_function_handle_init(&handle, "test", "twice"), GRPC_NO_ERROR) << error();
  ::unsetenv("_APLIB_GRIDRPC_DEPTH");
}

using Handles = Grid;

TEST_F(Handles, AreOfServersAndFunctionsThatAreThere) {
  initialize();
  grpc_function_handle_t handle;
  EXPECT_EQ(grpc_function_handle_init(&handle, "tset", "twice"), GRPC_SERVER_NOT_FOUND);
  EXPECT_EQ(error(), "there is no server tset: known ones are test; a path has a slash");
  EXPECT_EQ(grpc_function_handle_init(&handle, "/nowhere/server", "twice"), GRPC_SERVER_NOT_FOUND);
  EXPECT_EQ(error(),
            "server /nowhere/server (/nowhere/server): it cannot be started: No such file or directory; check "
            "the program's path");
  EXPECT_EQ(grpc_function_handle_init(&handle, "test", "thrice"), GRPC_FUNCTION_NOT_FOUND);
  EXPECT_TRUE(error().starts_with("server test has no function thrice: it has twice, scalars,")) << error();
  EXPECT_EQ(grpc_function_handle_init(&handle, "test", "other/twice"), GRPC_FUNCTION_NOT_FOUND);
  EXPECT_EQ(grpc_function_handle_init(&handle, "test", "counter"), GRPC_FUNCTION_NOT_FOUND) << "it is a class";
  EXPECT_EQ(grpc_function_handle_default(&handle, "thrice"), GRPC_FUNCTION_NOT_FOUND);
  EXPECT_EQ(error(), "no server has a function thrice");
  EXPECT_EQ(grpc_function_handle_default(&handle, nullptr), GRPC_OTHER_ERROR_CODE);
  EXPECT_EQ(grpc_function_handle_default(nullptr, "twice"), GRPC_OTHER_ERROR_CODE);
  EXPECT_EQ(grpc_function_handle_init(&handle, nullptr, "twice"), GRPC_OTHER_ERROR_CODE);
}

TEST_F(Handles, ThatCouldNotBeMadeSayWhyInTheirCalls) {
  grpc_function_handle_t handle;
  int result = 0;
  grpc_sessionid_t session = 0;
  EXPECT_EQ(grpc_function_handle_default(&handle, "twice"), GRPC_NOT_INITIALIZED);
  initialize();
  EXPECT_EQ(grpc_call(&handle, 3, &result), GRPC_INVALID_FUNCTION_HANDLE);
  EXPECT_EQ(error(), "the handle could not be made: GridRPC is not initialized: call grpc_initialize()");
  EXPECT_EQ(grpc_function_handle_default(&handle, "thrice"), GRPC_FUNCTION_NOT_FOUND);
  EXPECT_EQ(grpc_call_async(&handle, &session, 3, &result), GRPC_INVALID_FUNCTION_HANDLE);
  EXPECT_EQ(error(), "the handle could not be made: no server has a function thrice");
  grpc_object_handle_t_np object;
  EXPECT_EQ(grpc_object_handle_default_np(&object, "none"), GRPC_FUNCTION_NOT_FOUND);
  EXPECT_EQ(grpc_invoke_np(&object, "get", &result), GRPC_INVALID_FUNCTION_HANDLE);
  EXPECT_EQ(error(), "the handle could not be made: no server has a class none");
  EXPECT_EQ(grpc_function_handle_default(&handle, "thrice"), GRPC_FUNCTION_NOT_FOUND);
  ASSERT_EQ(grpc_function_handle_default(&handle, "twice"), GRPC_NO_ERROR) << error();
  EXPECT_EQ(grpc_call(&handle, 3, &result), GRPC_NO_ERROR) << error();
  EXPECT_EQ(grpc_function_handle_destruct(&handle), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_call(&handle, 3, &result), GRPC_INVALID_FUNCTION_HANDLE);
  EXPECT_TRUE(error().starts_with("this is no function handle")) << error();
}

TEST_F(Handles, AreInvalidBeforeAndAfterTheirLife) {
  initialize();
  grpc_function_handle_t handle{12345};
  int result = 0;
  int session = 7;
  EXPECT_EQ(grpc_call(&handle, 1, &result), GRPC_INVALID_FUNCTION_HANDLE);
  EXPECT_EQ(grpc_function_handle_destruct(&handle), GRPC_INVALID_FUNCTION_HANDLE);
  ASSERT_EQ(grpc_function_handle_default(&handle, "twice"), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_call(&handle, 1, &result), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_function_handle_destruct(&handle), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_call(&handle, 1, &result), GRPC_INVALID_FUNCTION_HANDLE);
  EXPECT_EQ(grpc_call(nullptr, 1, &result), GRPC_INVALID_FUNCTION_HANDLE);
  EXPECT_EQ(grpc_call_async(&handle, &session, 1, &result), GRPC_INVALID_FUNCTION_HANDLE);
  EXPECT_EQ(session, GRPC_SESSIONID_VOID);
  EXPECT_EQ(grpc_function_handle_destruct(&handle), GRPC_INVALID_FUNCTION_HANDLE);
}

TEST_F(Handles, ComeSideBySide) {
  initialize();
  std::array<grpc_function_handle_t, 3> handles;
  ASSERT_EQ(grpc_function_handle_array_default_np(handles.data(), handles.size(), "process"), GRPC_NO_ERROR);
  std::set<int> processes;
  for (grpc_function_handle_t& each : handles) {
    int id = 0;
    EXPECT_EQ(grpc_call(&each, &id), GRPC_NO_ERROR);
    processes.insert(id);
  }
  EXPECT_EQ(processes.size(), 3U);
  EXPECT_EQ(grpc_function_handle_array_destruct_np(handles.data(), handles.size()), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_function_handle_array_init_np(handles.data(), handles.size(), "test", "none"),
            GRPC_FUNCTION_NOT_FOUND);
}

using Sessions = Grid;

TEST_F(Sessions, AreProbedAndWaitedFor) {
  initialize();
  Function doze("doze");
  Function twice("twice");
  int slow = 0;
  int fast = 0;
  int first = 0;
  int second = 0;
  ASSERT_EQ(grpc_call_async(doze, &first, 60'000, &slow), GRPC_NO_ERROR);
  ASSERT_EQ(grpc_call_async(twice, &second, 4, &fast), GRPC_NO_ERROR);
  grpc_function_handle_t* handle = nullptr;
  EXPECT_EQ(grpc_get_handle(&handle, second), GRPC_NO_ERROR);
  EXPECT_EQ(handle, &twice.handle);
  EXPECT_EQ(grpc_probe(first), GRPC_NOT_COMPLETED);
  EXPECT_EQ(grpc_get_error(first), GRPC_NOT_COMPLETED);
  EXPECT_EQ(grpc_wait(second), GRPC_NO_ERROR);
  EXPECT_EQ(fast, 8);
  EXPECT_EQ(grpc_probe(second), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_get_error(second), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_wait(second), GRPC_NO_ERROR) << "again";
  int over = 0;
  EXPECT_EQ(grpc_probe_or(&first, 1, &over), GRPC_NONE_COMPLETED);
  EXPECT_EQ(over, GRPC_SESSIONID_VOID);
  int both[] = {first, second};
  EXPECT_EQ(grpc_probe_or(both, 2, &over), GRPC_NO_ERROR);
  EXPECT_EQ(over, second);
  EXPECT_EQ(grpc_wait_or(both, 2, &over), GRPC_NO_ERROR);
  EXPECT_EQ(over, second);
  EXPECT_EQ(grpc_cancel(first), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_wait(first), GRPC_SESSION_FAILED);
  const std::string text = error();
  EXPECT_TRUE(text == "doze was cancelled" || text == "the call was cancelled before it began") << text;
  EXPECT_EQ(grpc_get_error(first), GRPC_CANCELED_NP);
  EXPECT_EQ(grpc_session_error_text_np(first), text);
}

TEST_F(Sessions, ThatAreNotThereAreInvalid) {
  initialize();
  int id = 77;
  grpc_function_handle_t* handle = nullptr;
  EXPECT_EQ(grpc_probe(77), GRPC_INVALID_SESSION_ID);
  EXPECT_EQ(grpc_probe_or(&id, 1, &id), GRPC_INVALID_SESSION_ID);
  EXPECT_EQ(grpc_wait(77), GRPC_INVALID_SESSION_ID);
  EXPECT_EQ(grpc_wait(GRPC_SESSIONID_VOID), GRPC_INVALID_SESSION_ID);
  EXPECT_EQ(grpc_wait_and(&id, 1), GRPC_INVALID_SESSION_ID);
  EXPECT_EQ(grpc_wait_or(&id, 1, &id), GRPC_INVALID_SESSION_ID);
  EXPECT_EQ(grpc_cancel(77), GRPC_INVALID_SESSION_ID);
  EXPECT_EQ(grpc_get_error(77), GRPC_INVALID_SESSION_ID);
  EXPECT_EQ(grpc_get_handle(&handle, 77), GRPC_INVALID_SESSION_ID);
  EXPECT_EQ(error(), "there is no session 77: grpc_call_async() gives them");
  EXPECT_EQ(grpc_wait_all(), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_wait_and(nullptr, 0), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_wait_any(&id), GRPC_NONE_COMPLETED);
  EXPECT_EQ(id, GRPC_SESSIONID_VOID);
  EXPECT_EQ(grpc_cancel_all(), GRPC_NO_ERROR);
}

TEST_F(Sessions, OfOneHandleRunAtTheSameTimeUpToTheLimit) {
  initialize("processes = 3");
  Function process("process");
  Function meet("meet");
  const ServersFile first("");
  const ServersFile second("");
  ::unlink(first.name());
  ::unlink(second.name());
  std::array<int, 2> ids{};
  ASSERT_EQ(grpc_call_async(meet, &ids[0], first.name(), second.name()), GRPC_NO_ERROR);
  ASSERT_EQ(grpc_call_async(meet, &ids[1], second.name(), first.name()), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_wait_and(ids.data(), ids.size()), GRPC_NO_ERROR);
  std::vector<int> sessions(50);
  std::vector<int> processes(50);
  for (std::size_t i = 0; i < sessions.size(); ++i)
    ASSERT_EQ(grpc_call_async(process, &sessions[i], &processes[i]), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_wait_all(), GRPC_NO_ERROR);
  EXPECT_LE(std::set<int>(processes.begin(), processes.end()).size(), 3U);
}

TEST_F(Sessions, EachEndOnceForThoseWhoWaitForAny) {
  initialize();
  Function twice("twice");
  std::vector<int> results(100);
  std::set<int> open;
  for (int i = 0; i < 100; ++i) {
    int id = 0;
    ASSERT_EQ(grpc_call_async(twice, &id, i, &results[static_cast<std::size_t>(i)]), GRPC_NO_ERROR);
    EXPECT_TRUE(open.insert(id).second);
  }
  int id = 0;
  while (grpc_wait_any(&id) == GRPC_NO_ERROR) EXPECT_EQ(open.erase(id), 1U);
  EXPECT_TRUE(open.empty());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(results[static_cast<std::size_t>(i)], 2 * i);
}

TEST_F(Sessions, ThatFailAreNamed) {
  initialize();
  Function fail("fail");
  std::array<int, 3> ids{};
  ASSERT_EQ(grpc_call_async(fail, &ids[0], "no data"), GRPC_NO_ERROR);
  Function nothing("nothing");
  ASSERT_EQ(grpc_call_async(nothing, &ids[1]), GRPC_NO_ERROR);
  ASSERT_EQ(grpc_call_async(fail, &ids[2], "no time"), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_wait_all(), GRPC_SESSION_FAILED);
  int id = 0;
  EXPECT_EQ(grpc_get_failed_sessionid(&id), GRPC_NO_ERROR);
  EXPECT_EQ(id, ids[0]);
  EXPECT_EQ(grpc_get_error(id), GRPC_SESSION_FAILED);
  EXPECT_EQ(std::string(grpc_session_error_text_np(id)),
            std::string("fail at server test (") + TEST_SERVER + "): no data");
  EXPECT_EQ(grpc_get_failed_sessionid(&id), GRPC_NO_ERROR);
  EXPECT_EQ(id, ids[2]);
  EXPECT_EQ(grpc_get_failed_sessionid(&id), GRPC_NO_ERROR);
  EXPECT_EQ(id, GRPC_SESSIONID_VOID);
  EXPECT_EQ(grpc_wait_and(ids.data(), 3), GRPC_SESSION_FAILED);
  EXPECT_EQ(grpc_get_failed_sessionid(&id), GRPC_NO_ERROR);
  EXPECT_EQ(id, ids[0]);
  EXPECT_EQ(grpc_wait_and(&ids[1], 1), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_get_failed_sessionid(&id), GRPC_NO_ERROR);
  EXPECT_EQ(id, GRPC_SESSIONID_VOID);
}

TEST_F(Sessions, AreCancelledWithTheirHandle) {
  initialize("processes = 1");
  std::array<int, 3> ids{};
  {
    Function forever("forever");
    for (int& each : ids) ASSERT_EQ(grpc_call_async(forever, &each), GRPC_NO_ERROR);
  }
  for (const int each : ids) {
    EXPECT_EQ(grpc_wait(each), GRPC_SESSION_FAILED);
    EXPECT_EQ(grpc_get_error(each), GRPC_CANCELED_NP);
  }
}

TEST_F(Sessions, AreCancelledWhileTheirProcessStarts) {
  const ServersFile file(std::string("[[server]]\nname = \"test\"\nprogram = \"/bin/sh\"\nprocesses = 2\narguments = "
                                     "[\"-c\", \"sleep 0.3; exec '") +
                         TEST_SERVER + "'\"]\n");
  ASSERT_EQ(grpc_initialize(file.name()), GRPC_NO_ERROR) << error();
  std::array<int, 2> ids{};
  {
    Function forever("forever");
    for (int& each : ids) ASSERT_EQ(grpc_call_async(forever, &each), GRPC_NO_ERROR);
  }
  for (const int each : ids) {
    EXPECT_EQ(grpc_wait(each), GRPC_SESSION_FAILED);
    EXPECT_EQ(grpc_get_error(each), GRPC_CANCELED_NP);
  }
}

TEST_F(Sessions, AreCancelledBeforeTheyBeginAndWhileTheyRun) {
  initialize("processes = 1");
  Function forever("forever");
  std::array<int, 3> ids{};
  for (int& each : ids) ASSERT_EQ(grpc_call_async(forever, &each), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_cancel(ids[1]), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_cancel_all(), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_wait_all(), GRPC_SESSION_FAILED);
  for (const int each : ids) EXPECT_EQ(grpc_get_error(each), GRPC_CANCELED_NP);
  EXPECT_EQ(grpc_cancel(ids[0]), GRPC_NO_ERROR) << "it is over";
}

TEST_F(Sessions, ComeFromManyThreads) {
  initialize("processes = 2");
  Function twice("twice");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&twice, t] {
      for (int i = 0; i < 50; ++i) {
        int result = 0;
        int id = 0;
        if (i % 2 == 0) {
          ASSERT_EQ(grpc_call(twice, i + t, &result), GRPC_NO_ERROR);
        } else {
          ASSERT_EQ(grpc_call_async(twice, &id, i + t, &result), GRPC_NO_ERROR);
          ASSERT_EQ(grpc_wait(id), GRPC_NO_ERROR);
        }
        ASSERT_EQ(result, 2 * (i + t));
      }
    });
  }
  for (std::thread& each : threads) each.join();
}

TEST(ErrorStrings, AreThereForEachCode) {
  std::set<std::string> texts;
  for (int code = GRPC_NO_ERROR; code < GRPC_LAST_ERROR_CODE; ++code)
    if (code != GRPC_UNKNOWN_ERROR_CODE) texts.insert(grpc_error_string(code));
  EXPECT_EQ(texts.size(), 15U);
  EXPECT_STREQ(grpc_error_string(GRPC_NO_ERROR), "no error");
  EXPECT_STREQ(grpc_error_string(GRPC_CANCELED_NP), "the session was canceled");
  EXPECT_STREQ(grpc_error_string(4711), "an unknown error code");
  testing::internal::CaptureStderr();
  EXPECT_EQ(grpc_wait(0), GRPC_NOT_INITIALIZED);
  EXPECT_EQ(grpc_perror_np("main"), GRPC_NO_ERROR);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "main: GridRPC is not initialized: call grpc_initialize()\n");
  EXPECT_EQ(grpc_last_error_get_np(), GRPC_NOT_INITIALIZED);
}

using Objects = Grid;

TEST_F(Objects, KeepTheirStateAndTheirOrder) {
  initialize();
  grpc_object_handle_t_np one;
  grpc_object_handle_t_np other;
  ASSERT_EQ(grpc_object_handle_default_np(&one, "test/counter"), GRPC_NO_ERROR) << error();
  ASSERT_EQ(grpc_object_handle_init_np(&other, "test", "counter"), GRPC_NO_ERROR) << error();
  int sum = 0;
  EXPECT_EQ(grpc_invoke_np(&one, "add", 40), GRPC_NO_ERROR) << error();
  EXPECT_EQ(grpc_invoke_np(&one, "add", 2), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_invoke_np(&one, "get", &sum), GRPC_NO_ERROR);
  EXPECT_EQ(sum, 42);
  EXPECT_EQ(grpc_invoke_np(&other, "get", &sum), GRPC_NO_ERROR);
  EXPECT_EQ(sum, 0);
  int id = 0;
  for (int i = 1; i <= 100; ++i) ASSERT_EQ(grpc_invoke_async_np(&other, "add", &id, i), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_invoke_np(&other, "get", &sum), GRPC_NO_ERROR) << "after those before it";
  EXPECT_EQ(sum, 5050);
  grpc_object_handle_t_np* found = nullptr;
  grpc_function_handle_t* wrong = nullptr;
  EXPECT_EQ(grpc_object_handle_get_from_session_np(&found, id), GRPC_NO_ERROR);
  EXPECT_EQ(found, &other);
  EXPECT_EQ(grpc_get_handle(&wrong, id), GRPC_INVALID_SESSION_ID);
  grpc_arg_stack_t* stack = grpc_arg_stack_new(1);
  EXPECT_EQ(grpc_arg_stack_push_arg(stack, &sum), 0);
  EXPECT_EQ(grpc_invoke_arg_stack_np(&one, "get", stack), GRPC_NO_ERROR);
  EXPECT_EQ(sum, 42);
  EXPECT_EQ(grpc_wait(grpc_invoke_arg_stack_async_np(&other, "get", stack)), GRPC_NO_ERROR);
  EXPECT_EQ(sum, 5050);
  EXPECT_EQ(grpc_arg_stack_destruct(stack), 0);
  EXPECT_EQ(grpc_object_handle_destruct_np(&one), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_object_handle_destruct_np(&one), GRPC_INVALID_FUNCTION_HANDLE);
  EXPECT_EQ(grpc_invoke_np(&one, "get", &sum), GRPC_INVALID_FUNCTION_HANDLE);
}

TEST_F(Objects, HaveMethodsOfTheirClass) {
  initialize();
  grpc_object_handle_t_np handle;
  EXPECT_EQ(grpc_object_handle_default_np(&handle, "twice"), GRPC_FUNCTION_NOT_FOUND) << "it is a function";
  ASSERT_EQ(grpc_object_handle_default_np(&handle, "counter"), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_invoke_np(&handle, "subtract", 1), GRPC_FUNCTION_NOT_FOUND);
  EXPECT_EQ(error(), "class counter has no method subtract: it has add, get, lose, doze");
  std::array<grpc_object_handle_t_np, 2> both;
  ASSERT_EQ(grpc_object_handle_array_default_np(both.data(), 2, "counter"), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_invoke_np(&both[1], "add", 1), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_object_handle_array_destruct_np(both.data(), 2), GRPC_NO_ERROR);
}

TEST_F(Objects, AreLostWithTheirProcess) {
  initialize();
  grpc_object_handle_t_np handle;
  ASSERT_EQ(grpc_object_handle_default_np(&handle, "counter"), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_invoke_np(&handle, "add", 1), GRPC_NO_ERROR);
  EXPECT_EQ(grpc_invoke_np(&handle, "lose"), GRPC_SESSION_FAILED);
  int sum = 0;
  EXPECT_EQ(grpc_invoke_np(&handle, "get", &sum), GRPC_INVALID_FUNCTION_HANDLE);
  EXPECT_EQ(error(), "the object of class counter was lost with its process: make another handle");
  EXPECT_EQ(grpc_object_handle_destruct_np(&handle), GRPC_NO_ERROR);
}

}  // namespace
}  // namespace aplib::gridrpc::test
