// SPDX-License-Identifier: MIT
// apgen: writes the main part of a server of GridRPC. docs/gridrpc.md says what it reads.
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/version.hpp"
#include "base/os/descriptor.hpp"
#include "calls/idl.hpp"
#include "gridrpc/draft.hpp"
#include "gridrpc/stub.hpp"

namespace aplib::gridrpc {
namespace {

constexpr int wrong_status = 2;

void write(const std::string& file, const std::string& text) {
  if (file == "-") {
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
      throw Error(Errc::failed, fmt::format("cannot write standard output: {}", os::text_of(errno)));
    return;
  }
  const os::UniqueFd out(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (out && os::write_all(out.get(), text)) return;
  const int error = errno;
  std::error_code ignored;
  if (out && std::filesystem::is_regular_file(file, ignored)) std::filesystem::remove(file, ignored);  // half of it
  throw Error(Errc::failed, fmt::format("{}: cannot be written: {}", file, std::strerror(error)));
}

[[noreturn]] void refuse_unread(const std::string& file) {
  throw Error(Errc::bad_option, fmt::format("{}: cannot be read: {}", file, os::text_of(errno)));
}

/// Libraries may be large: only this is read of them here.
bool is_elf(const std::string& file) {
  const os::UniqueFd in(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, SELFMAG> first{};
  if (!in || ::read(in.get(), first.data(), first.size()) < 0) refuse_unread(file);
  return std::string_view(first.data(), first.size()) == ELFMAG;
}

std::string contents_of(const std::string& file) {
  auto contents = os::read_file(file);
  if (!contents) refuse_unread(file);
  return std::move(*contents);
}

int generate(int argc, char** argv) {
  CLI::App app(
      "Writes the main part of a server of GridRPC, in C: of an interface in Ninf's language, or of functions of a "
      "shared library that was compiled with -g.",
      "apgen");
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return std::string("apgen: ") + error.what() + "\nRun with --help for more information.\n";
  });
  std::string file;
  std::vector<std::string> functions;
  std::string output;
  bool shows_interface = false;
  bool shows_idl = false;
  bool shows_command = false;
  app.add_option("FILE", file, "The interface, FILE.idl, or the library.")->required();
  app.add_option("FUNCTION", functions, "Functions of the library.");
  app.add_option("-o,--output", output, "The C file; -: standard output. Default: FILE_server.c.");
  app.add_flag("--command", shows_command, "Print the command that compiles it, too.");
  app.add_flag("--interface", shows_interface, "Print the interface as clients see it, and write nothing.");
  app.add_flag("--idl", shows_idl,
               "Print the library's functions as FILE.idl, and write nothing. Replace each SIZE_OF_... in it.");
  app.set_version_flag("--version", std::string("apgen (APlib) ") + version);
  app.footer(
      "A client is linked with -laplib_gridrpc and finds the server by a file of servers or APLIB_GRIDRPC_PATH.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) != 0) return wrong_status;
    write("-", "");
    return 0;
  }
  const bool is_library = is_elf(file);
  if (is_library == functions.empty()) {
    throw Error(Errc::bad_option, fmt::format("{}: {}", file,
                                              is_library ? "a library: name its functions behind it"
                                                         : "no library, so that no functions can be named behind it"));
  }
  const Sizes sizes = shows_idl ? Sizes::left_open : Sizes::refused;
  const std::string text = is_library ? draft_interface(file, functions, sizes) : contents_of(file);
  if (shows_idl) {
    write("-", text);
    return 0;
  }
  const Interface interface = read_interface(text, file);
  if (shows_interface) {
    write("-", print_interface(interface));
    return 0;
  }
  const std::string stem = std::filesystem::path(file).stem().string();
  if (output.empty()) output = stem + "_server.c";
  write(output, write_stub(interface, file, output));
  if (shows_command) write("-", build_command(interface, output, stem + "_server") + "\n");
  return 0;
}

}  // namespace
}  // namespace aplib::gridrpc

int main(int argc, char** argv) {
  try {
    return aplib::gridrpc::generate(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "apgen: %s\n", error.what());
    return aplib::gridrpc::wrong_status;
  }
}
