// SPDX-License-Identifier: MIT
// What tests of calls begin with.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "aplib/gridrpc.h"

namespace aplib::gridrpc::test {

/// A file of servers, removed with it.
class ServersFile {
 public:
  explicit ServersFile(const std::string& text) {
    const int file = ::mkstemp(name_);
    EXPECT_EQ(::write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(file);
  }
  ~ServersFile() { ::unlink(name_); }
  ServersFile(const ServersFile&) = delete;
  ServersFile& operator=(const ServersFile&) = delete;
  [[nodiscard]] const char* name() const { return name_; }

 private:
  char name_[32] = "/tmp/aplib-servers-XXXXXX";
};

inline std::string server_text(const std::string& more = "") {
  return std::string("[[server]]\nname = \"test\"\nprogram = \"") + TEST_SERVER + "\"\n" + more + "\n";
}

/// A program with GridRPC, which leaves no process behind.
class Grid : public testing::Test {
 protected:
  /// Keys of the server.
  void initialize(const std::string& more = "processes = 2") {
    const ServersFile file(server_text(more));
    ASSERT_EQ(grpc_initialize(file.name()), GRPC_NO_ERROR) << grpc_last_error_text_np();
  }
  void TearDown() override {
    static_cast<void>(grpc_finalize());
    EXPECT_TRUE(::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD) << "a process is left";
  }

  static std::string error() { return grpc_last_error_text_np(); }
};

/// A handle of the test's server.
struct Function {
  explicit Function(const char* name) {
    EXPECT_EQ(grpc_function_handle_init(&handle, "test", name), GRPC_NO_ERROR) << grpc_last_error_text_np();
  }
  ~Function() { static_cast<void>(grpc_function_handle_destruct(&handle)); }
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;
  operator grpc_function_handle_t*() { return &handle; }  // NOLINT

  grpc_function_handle_t handle{};
};

}  // namespace aplib::gridrpc::test
