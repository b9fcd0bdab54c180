// SPDX-License-Identifier: MIT
// Journal: records what programs of a test did, in order, also after their streams are gone. A program gets its address
// as argument 1 and writes to it by say().
#pragma once

#include <array>
#include <string>
#include <vector>

#include "running.hpp"

namespace aplib::loader::test {

/// The beginning of the text of a C or C++ program whose main begins with start(argv).
inline const std::string journal_prologue = R"(
#include <stdlib.h>
#include <string.h>
#ifdef __cplusplus
extern "C" {
#endif
static char* journal;
__attribute__((unused)) static void start(char** argv) { journal = (char*)strtoull(argv[1], NULL, 10); }
__attribute__((unused)) static void say(const char* text) { memcpy(journal + strlen(journal), text, strlen(text) + 1); }
#ifdef __cplusplus
}
#endif
)";

class Journal {
 public:
  [[nodiscard]] std::string text() const { return bytes_.data(); }
  [[nodiscard]] const char* bytes() const { return bytes_.data(); }
  [[nodiscard]] std::string address() const { return std::to_string(reinterpret_cast<std::uintptr_t>(bytes_.data())); }
  [[nodiscard]] std::vector<std::string> arguments() const { return {"program", address()}; }

 private:
  std::array<char, 4096> bytes_{};
};

/// The result of running main on one cell.
struct JournalRun {
  Ran ran;
  std::string journal;
};

inline JournalRun run_journal(const std::shared_ptr<const Program>& program, std::uint32_t cell = 0) {
  Journal journal;
  JournalRun result;
  result.ran = run(program, journal.arguments(), cell);
  result.journal = journal.text();
  return result;
}

}  // namespace aplib::loader::test
