// SPDX-License-Identifier: MIT
// A program that reads what another cell of its thread is yet to send lets that one run, whatever it reads by. So does
// one that writes what another one is yet to read.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <deque>
#include <string>

#include "compile.hpp"
#include "running.hpp"

namespace aplib::loader::test {
namespace {

/// A host whose thread has other cells. Whenever they are to run, they send a piece of the program's input, and close
/// after the last. Nobody else does, so a program that blocks its thread waits for ever.
class FeedingHost : public RecordingHost {
 public:
  explicit FeedingHost(std::deque<std::string> pieces) : RecordingHost("cell 0 task 0"), pieces_(std::move(pieces)) {
    if (::pipe(ends_) != 0) throw std::runtime_error("pipe: out of descriptors");
  }
  ~FeedingHost() override {
    ::close(ends_[0]);
    if (ends_[1] >= 0) ::close(ends_[1]);
  }
  int input() override { return ends_[0]; }
  bool shares_thread() noexcept override { return true; }
  void sleep(std::chrono::nanoseconds) override { feed(); }
  void yield() override { feed(); }

  int pieces_left() const { return static_cast<int>(pieces_.size()); }

 private:
  void feed() {
    if (!pieces_.empty()) {
      if (::write(ends_[1], pieces_.front().data(), pieces_.front().size()) < 0)
        throw std::runtime_error("the test's input does not fit into a pipe");
      pieces_.pop_front();
    } else if (ends_[1] >= 0) {
      ::close(std::exchange(ends_[1], -1));
    }
  }

  std::deque<std::string> pieces_;
  int ends_[2] = {-1, -1};
};

class Input : public testing::Test {
 protected:
  /// Runs main() of the program, whose stdin is fed; other FILEs of it are opened over /proc/self/fd/<argument 1>.
  std::string read_by(const std::shared_ptr<const Program>& program, std::deque<std::string> pieces) {
    FeedingHost host(std::move(pieces));
    const auto outcome =
        run_instance(make_instance(program, host, 0, {"program", std::to_string(host.input())}), call_main);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(host.pieces_left(), 0);
    return host.out;
  }
  std::shared_ptr<const Program> c(const std::string& body, Workshop::Flags flags = {}) {
    flags.insert(flags.end(), {"-shared", "-D_GNU_SOURCE", "-w"});
    const std::string before =
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n#include "
        "<poll.h>\n#include <wchar.h>\n"
        "int main(int count, char** words) {\n"
        "FILE* file = strcmp(FROM, \"stdin\") == 0 ? stdin : fdopen(dup(atoi(words[1])), \"r\");\n"
        "char text[100]; int a = 0, b = 0, c;\n";
    return Program::load(shop_.compile(before + body + "return 0; }", flags, std::to_string(number_++) + ".so"));
  }

  Workshop shop_;
  int number_ = 0;
  MayLeaveMemory lines_;
};

TEST_F(Input, OfAnyKindLetsOthersRun) {
  const std::pair<const char*, const char*> cases[] = {
      {"while (fgets(text, sizeof text, file)) printf(\"[%s]\", text);", "[12 34\n][abc\n][d]"},
      {"while (fgets(text, 4, file)) printf(\"[%s]\", text);", "[12 ][34\n][abc][\n][d]"},
      {"while ((c = getc(file)) != EOF) putchar(c);", "12 34\nabc\nd"},
      {"while ((c = getc_unlocked(file)) != EOF) putchar(c);", "12 34\nabc\nd"},
      {"while ((c = fgetc(file)) != EOF) { if (c == '3') { ungetc('x', file); c = fgetc(file); } putchar(c); }",
       "12 x4\nabc\nd"},
      {"c = fread(text, 1, sizeof text, file); printf(\"%d %.*s %d\", c, c, text, feof(file));", "11 12 34\nabc\nd 1"},
      {"while ((c = fread(text, 4, 1, file)) == 1) printf(\"[%.4s]\", text); printf(\"%d\", feof(file));",
       "[12 3][4\nab]1"},
      {"char* line = NULL; size_t room = 0; ssize_t n; while ((n = getline(&line, &room, file)) >= 0) printf(\"%zd"
       "[%s]\", n, line);",
       "6[12 34\n]4[abc\n]1[d]"},
      {"char* line = NULL; size_t room = 0; ssize_t n; while ((n = getdelim(&line, &room, 'b', file)) >= 0) "
       "printf(\"%zd[%s]\", n, line);",
       "8[12 34\nab]3[c\nd]"},
      {"c = fscanf(file, \"%d %d\", &a, &b); printf(\"%d %d %d\", c, a, b); c = getc(file); printf(\"%d\", c);"
       "c = fscanf(file, \"%99s %99s\", text, text + 10); printf(\"%d %s %s %d\", c, text, text + 10, fscanf(file, "
       "\"%d\", &a));",
       "2 12 34102 abc d -1"},
  };
  for (const auto& [body, expected] : cases) {
    for (const char* from : {"-DFROM=\"stdin\"", "-DFROM=\"pipe\""}) {
      for (const bool fortified : {false, true}) {
        Workshop::Flags flags{from};
        if (fortified) flags.insert(flags.end(), {"-O2", "-D_FORTIFY_SOURCE=2"});
        EXPECT_EQ(read_by(c(body, flags), {"1", "2 ", "34\na", "bc\n", "d"}), expected) << body << from << fortified;
      }
    }
  }
}

TEST_F(Input, OfStdinByOtherNamesToo) {
  const std::pair<const char*, const char*> cases[] = {
      {"while ((c = getchar()) != EOF) putchar(c);", "12 34\nabc\nd"},
      {"printf(\"%d\", scanf(\"%d%d%99s\", &a, &b, text)); printf(\" %d %d %s\", a, b, text);"
       "while (getchar() != EOF) {}",
       "3 12 34 abc"},
      {"while ((c = read(0, text, sizeof text)) > 0) printf(\"[%.*s]\", c, text);", "[1][2 ][34\na][bc\n][d]"},
      {"struct pollfd one = {atoi(words[1]), POLLIN, 0}; printf(\"%d\", poll(&one, count - 1, -1));"
       "while ((c = fread(text, 1, 99, stdin)) > 0) printf(\"%.*s\", c, text);",
       "112 34\nabc\nd"},
      {"wchar_t w[99]; while (fgetws(w, 99, stdin)) printf(\"[%ls]\", w);", "[12 34\n][abc\n][d]"},
  };
  for (const auto& [body, expected] : cases) {
    for (const char* fortified : {"-O0", "-D_FORTIFY_SOURCE=2"})
      EXPECT_EQ(read_by(c(body, {"-O1", fortified, "-DFROM=\"stdin\""}), {"1", "2 ", "34\na", "bc\n", "d"}), expected)
          << body << fortified;
  }
}

TEST_F(Input, OfCxxLetsOthersRun) {
  for (const char* synced : {"true", "false"}) {
    const auto program = Program::load(shop_.compile_cpp(
        std::string("#include <iostream>\n#include <string>\nint main() { std::ios::sync_with_stdio(") + synced +
            "); int a, b; std::string word, rest; std::cin >> a >> b >> word; std::getline(std::cin, rest);"
            "std::getline(std::cin, rest); std::cout << a << ' ' << b << word << rest << std::cin.eof(); return 0; }",
        {"-shared"}, std::string(synced) + ".so"));
    EXPECT_EQ(read_by(program, {"1", "2 ", "34\na", "bc\n", "d"}), "12 34abcd1") << synced;
  }
}

/// A host whose thread has other cells. Whenever they are to run, they take what the program has written to a pipe that
/// is small. Nobody else does, so a program that blocks its thread waits for ever.
class DrainingHost : public RecordingHost {
 public:
  DrainingHost() {
    if (::pipe(ends_) != 0) throw std::runtime_error("pipe: out of descriptors");
    ::fcntl(ends_[1], F_SETPIPE_SZ, 4096);
  }
  ~DrainingHost() override {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  bool shares_thread() noexcept override { return true; }
  void sleep(std::chrono::nanoseconds) override { drain(); }
  void yield() override { drain(); }
  int end() const { return ends_[1]; }
  std::string rest() {
    ::close(std::exchange(ends_[1], -1));
    while (drain()) {
    }
    return taken_;
  }

 private:
  bool drain() {
    pollfd ready{ends_[0], POLLIN, 0};
    char bytes[4096];
    const ssize_t count = ::poll(&ready, 1, 0) == 1 ? ::read(ends_[0], bytes, sizeof bytes) : 0;
    taken_.append(bytes, static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    return count > 0;
  }

  std::string taken_;
  int ends_[2] = {-1, -1};
};

TEST(Output, OfAnyKindLetsOthersRun) {
  Workshop shop;
  const char* const ways[] = {
      "for (int i = 0; i < 3000; ++i) fprintf(file, \"%09d\\n\", i);",
      "for (int i = 0; i < 3000; ++i) { char t[20]; snprintf(t, sizeof t, \"%09d\\n\", i); fputs(t, file); }",
      "for (int i = 0; i < 3000; ++i) { char t[20]; snprintf(t, sizeof t, \"%09d\\n\", i); for (char* c = t; *c; ++c) "
      "putc(*c, "
      "file); }",
      "for (int i = 0; i < 3000; ++i) { char t[20]; snprintf(t, sizeof t, \"%09d\\n\", i); for (char* c = t; *c; ++c) "
      "putc_unlocked(*c, file); }",
      "static char all[30001]; for (int i = 0; i < 3000; ++i) snprintf(all + 10 * i, 11, \"%09d\\n\", i); "
      "if (fwrite(all, 10, 3000, file) != 3000) return 1;",
      "setvbuf(file, NULL, _IONBF, 0); for (int i = 0; i < 3000; ++i) fprintf(file, \"%09d\\n\", i);",
      "setvbuf(file, NULL, _IOLBF, 0); for (int i = 0; i < 3000; ++i) fprintf(file, \"%09d\\n\", i);",
      "for (int i = 0; i < 3000; ++i) { fprintf(file, \"%09d\\n\", i); if (i % 7 == 0) fflush(file); }",
      "file = freopen(path, \"w\", stdout); for (int i = 0; i < 3000; ++i) if (i % 2) printf(\"%09d\\n\", i); else { "
      "char t[20]; snprintf(t, sizeof t, \"%09d\", i); puts(t); }",
  };
  std::string expected;
  for (int i = 0; i < 3000; ++i) {
    const std::string number = std::to_string(i);
    expected += std::string(9 - number.size(), '0') + number + '\n';
  }
  int number = 0;
  for (const char* const way : ways) {
    for (const char* const end : {"return fclose(file);", "exit(0);"}) {
      for (const bool fortified : {false, true}) {
        Workshop::Flags flags{"-shared", "-D_GNU_SOURCE", "-w"};
        if (fortified) flags.insert(flags.end(), {"-O2", "-D_FORTIFY_SOURCE=2"});
        const std::string text =
            "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\nint main(int count, char** words) {\n"
            "char path[50]; snprintf(path, sizeof path, \"/proc/self/fd/%s\", words[1]); FILE* file = fopen(path, "
            "\"w\");\n" +
            std::string(way) + end + "}\n";
        DrainingHost host;
        const auto program = Program::load(shop.compile(text, flags, std::to_string(number++) + ".so"));
        const auto outcome =
            run_instance(make_instance(program, host, 0, {"program", std::to_string(host.end())}), call_main);
        EXPECT_EQ(outcome.status, 0) << way << end;
        EXPECT_EQ(host.rest(), expected) << way << end << fortified;
      }
    }
  }
}

}  // namespace
}  // namespace aplib::loader::test
