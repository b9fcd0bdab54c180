// SPDX-License-Identifier: MIT
// apgen: writes the main part of a server of GridRPC. docs/gridrpc.md says what it reads.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include "aplib/error.hpp"
#include "aplib/version.hpp"
#include "base/os/descriptor.hpp"
#include "gridrpc/idl.hpp"
#include "gridrpc/stub.hpp"

namespace aplib::gridrpc {
namespace {

constexpr int wrong_status = 2;

void write(const std::string& file, const std::string& text) {
  if (file == "-") {
    std::fputs(text.c_str(), stdout);
    return;
  }
  const os::UniqueFd out(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!out || !os::write_all(out.get(), text))
    throw Error(Errc::failed, fmt::format("{}: cannot be written: {}", file, std::strerror(errno)));
}

int generate(int argc, char** argv) {
  CLI::App app("Writes the main part of a server of GridRPC, in C, of an interface in Ninf's language.", "apgen");
  std::string idl;
  std::string output;
  bool shows_interface = false;
  bool shows_command = false;
  app.add_option("FILE", idl, "The interface: FILE.idl.")->required();
  app.add_option("-o,--output", output, "The C file; -: standard output. Default: FILE_server.c.");
  app.add_flag("--command", shows_command, "Print the command that compiles it, too.");
  app.add_flag("--interface", shows_interface, "Print the interface as clients see it, and write nothing.");
  app.set_version_flag("--version", std::string("apgen (APlib) ") + version);
  app.footer(
      "A client is linked with -laplib_gridrpc and finds the server by a file of servers or APLIB_GRIDRPC_PATH.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : wrong_status;
  }
  const auto text = os::read_file(idl);
  if (!text) throw Error(Errc::bad_option, fmt::format("{}: cannot be read: {}", idl, std::strerror(errno)));
  const Interface interface = read_interface(*text, idl);
  if (shows_interface) {
    write("-", print_interface(interface));
    return 0;
  }
  const std::string stem = std::filesystem::path(idl).stem().string();
  if (output.empty()) output = stem + "_server.c";
  write(output, write_stub(interface, idl, output));
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
