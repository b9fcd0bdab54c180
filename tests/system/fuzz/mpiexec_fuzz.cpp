// SPDX-License-Identifier: MIT
// What people write behind mpiexec, and in its files of programs and of hosts. The first line of an input is the
// command line; the rest is the file that both call "f". What is taken has ranks for every program, and its hosts are a
// cluster file that is taken too. What is not has a message.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "aplib/error.hpp"
#include "base/arguments.hpp"
#include "fuzzer.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/mpiexec.hpp"

namespace aplib::fuzz {
namespace {

/// Opened by each reader anew, without a file system.
class NamedFile {
 public:
  NamedFile() : descriptor_(::memfd_create("f", MFD_CLOEXEC)) {}

  void write(std::string_view text) const {
    const bool written = ::ftruncate(descriptor_, 0) == 0 &&
                         ::pwrite(descriptor_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
    promise(written, "the file takes what is written");
  }
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

/// No input names another file: some of them never end.
void replace_paths(std::string& word, const std::string& path) {
  std::ranges::replace(word, '/', '-');
  if (word == "f") word = path;
}

std::string file_text(std::string_view text, const std::string& path) {
  std::string result(text);
  std::ranges::replace(result, '/', '-');
  for (std::size_t at = 0; (at = result.find(" f ", at)) != result.npos; at += path.size())
    result.replace(at + 1, 1, path);
  return result;
}

void use(const launch::Mpiexec& asked) {
  std::uint32_t first = 0;
  for (const launch::wire::ProgramText& program : asked.others) {
    promise(program.first_cell > first, "each program has ranks of its own");
    first = program.first_cell;
  }
  if (asked.hosts.empty()) return;
  try {
    const auto cluster = launch::cluster::parse_cluster(asked.hosts, "hosts");
    std::uint32_t ranks = 0;
    for (const auto& host : cluster.hosts) ranks += host.cells.value_or(0);
    promise(cluster.grid && cluster.grid->count() == ranks && first < ranks, "each rank has a host");
  } catch (const Error& error) {
    broken(std::string("the hosts are no cluster file: ") + error.what() + "\n" + asked.hosts);
  }
}

}  // namespace

std::vector<Input> seeds() {
  std::vector<Input> all;
  for (const char* text :
       {"-n 2 prog x -n 3 : --np=3 -wdir d 'other prog' : third", "-host a:2,b -ppn 2 prog : -H a,c:3 -n 2 other",
        "-f f prog\n# hosts\na slots=2 max_slots=4\nb:3\r\n10.0.0.1\n",
        "-l --configfile f\n# programs\n-n 2 a 'x y' \\\n z\n--host a,b c\n", "-app f : b\n--hostfile f a\n-n 2 b\n",
        "-x A=b -env C d -genv E \"\" -genvall --bind-to none --timeout 3 -q --mca btl self --map-by core -- -prog",
        "-host localhost,here,::1,127.0.0.1,user@a.b%eth0,fe80::1 -n 9 prog"})
    all.push_back(input_of(text));
  return all;
}

}  // namespace aplib::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace aplib;
  static const fuzz::NamedFile file;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(text.find('\n'), size);
  std::string line(text.substr(0, end));
  std::ranges::replace(line, '\0', ' ');  // which no argument has
  std::vector<std::string> words = split_arguments(line);
  file.write(fuzz::file_text(text.substr(std::min(end + 1, size)), file.path()));
  std::vector<const char*> arguments;
  for (std::string& word : words) {
    fuzz::replace_paths(word, file.path());
    arguments.push_back(word.c_str());
  }
  try {
    fuzz::use(launch::read_mpiexec(arguments, "here"));
  } catch (const Error& error) {
    fuzz::promise(error.code() == Errc::bad_option && *error.what() != '\0', "what is wrong has a message");
  }
  return 0;
}
