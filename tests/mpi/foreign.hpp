// SPDX-License-Identifier: MIT
// What tests of programs share that were compiled for another MPI.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "commands.hpp"

namespace aplib {

class ForeignPrograms : public MpiCommands {
 protected:
  [[nodiscard]] bool lacks(const std::string& tool) const { return output("command -v " + tool + " || true").empty(); }

  /// `compiler`: of the other MPI; `name`: "messages.c" of programs/foreign; `libraries` come before those of that MPI.
  void compile(const std::string& compiler, const std::string& name, const std::string& libraries = "") const {
    EXPECT_EQ(output(compiler + " -w -O2 " MPI_PROGRAMS "/foreign/" + name + " " + libraries + " -o " +
                     name.substr(0, name.find('.'))),
              "");
  }

  /// In cells, however many threads carry them, in several processes, and as ordinary processes.
  void expect_no_errors(const std::string& program) const {
    write("cluster.toml",
          "[machine]\ngrid = \"5x1\"\nlaunch = \"local\"\n[[host]]\nname = \"a\"\ncells = 2\n"
          "[[host]]\nname = \"b\"\ncells = 3\n");
    for (const char* const options :
         {"-n 1", "-n 2", "-n 5", "-n 4 --threads 1", "-n 4 --threads per-cell", "-n 3 --processes", "-f cluster.toml"})
      EXPECT_EQ(output(std::string("aprun ") + options + " " + program), "No Errors\n") << program << ' ' << options;
  }
  void expect_no_errors_of_programs(const std::string& compiler) const {
    for (const std::string name : {"messages", "collectives", "objects"}) {
      compile(compiler, name + ".c");
      expect_no_errors("./" + name + (name == "objects" ? " $PWD/data" : ""));
    }
  }

  /// In cells and as ordinary processes.
  void expect_no_errors_of_language(const std::string& compiler, const std::string& file,
                                    const std::string& libraries = "") const {
    compile(compiler, file, libraries);
    const std::string program = "./" + file.substr(0, file.find('.'));
    for (const char* const options : {"-n 1", "-n 4 --threads 1", "-n 3", "-n 3 --processes"})
      EXPECT_EQ(output(std::string("aprun ") + options + " " + program), "No Errors\n") << program << ' ' << options;
  }

  struct Symbol {
    std::string name;
    std::string size;
    bool is_function;
  };
  /// What a library exports.
  [[nodiscard]] std::vector<Symbol> exported_by(const std::string& library) const {
    std::vector<Symbol> symbols;
    std::istringstream lines(output("nm -D -S --defined-only " + library));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string address, size, kind, name;
      if (!(words >> address >> size >> kind >> name)) continue;
      symbols.push_back({name.substr(0, name.find('@')), size, kind == "T" || kind == "W"});
    }
    return symbols;
  }
  /// The library exports them all.
  void expect_exports(const std::string& library, std::initializer_list<const char*> wanted) const {
    std::set<std::string> names;
    for (const Symbol& symbol : exported_by(library)) names.insert(symbol.name);
    for (const char* const name : wanted) EXPECT_TRUE(names.contains(name)) << name;
  }
  /// The functions of MPI among them.
  [[nodiscard]] std::set<std::string> functions_of(const std::string& library) const {
    std::set<std::string> names;
    for (const Symbol& symbol : exported_by(library)) {
      if (symbol.is_function && (symbol.name.starts_with("MPI_") || symbol.name.starts_with("PMPI_")))
        names.insert(symbol.name);
    }
    return names;
  }
};

#define SKIP_WITHOUT(tool) \
  if (lacks(tool)) GTEST_SKIP() << "needs the tool " << (tool)

}  // namespace aplib
