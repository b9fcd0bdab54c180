// SPDX-License-Identifier: MIT
#include "aplib/options.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "checks.hpp"
#include "environment.hpp"

namespace aplib {
namespace {

using namespace std::chrono_literals;

/// The text of the Error(bad_option) that `action` throws.
template <class Action>
std::string error_of(Action action) {
  return testing_support::error_text(action, Errc::bad_option);
}

std::string set_error(std::string_view name, std::string_view value) {
  return error_of([&] { Options().set(name, value); });
}

/// For each option, a value other than its default, as get() returns it.
const std::map<std::string_view, std::string> other_value{
    {"cells", "4x2"},
    {"threads", "3"},
    {"stack-size", "64k"},
    {"poll-time", "1ms"},
    {"bind", "off"},
    {"balance", "off"},
    {"deadlock-report", "off"},
    {"log-level", "debug"},
    {"program-stack", "1m"},
    {"private-libraries", "liba.so,libb.so*"},
    {"shared-libraries", "libc?.so"},
    {"heap", "slot"},
    {"low-memory", "on"},
    {"account-heap", "on"},
    {"tag-output", "on"},
    {"debugger-images", "500"},
    {"module", "tcp"},
    {"module-path", "/opt/a:/opt/b"},
    {"provider", "verbs"},
    {"ports", "5100-5120"},
    {"secure", "tls"},
    {"streams", "4"},
    {"send-limit", "2m"},
    {"send-wait", "2s"},
    {"unread-limit", "3m"},
    {"resume-time", "20s"},
    {"peer-timeout", "3s"},
};

std::vector<std::string> values_of(const Options& options) {
  std::vector<std::string> values;
  for (const OptionInfo& info : option_table()) values.push_back(options.get(info.name));
  return values;
}

TEST(OptionTable, EveryRowIsCompleteAndItsNamesAreOneName) {
  std::set<std::string_view> names;
  for (const OptionInfo& info : option_table()) {
    SCOPED_TRACE(info.name);
    EXPECT_TRUE(names.insert(info.name).second);
    std::string variable = "APLIB_" + std::string(info.name);
    std::ranges::transform(variable, variable.begin(),
                           [](char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
    EXPECT_EQ(info.variable, variable);
    EXPECT_FALSE(info.values.empty());
    EXPECT_TRUE(info.help.ends_with("."));
    EXPECT_EQ(info.help.find('\n'), info.help.npos);
  }
}

TEST(OptionTable, DefaultsAreThoseOfTheStruct) {
  for (const OptionInfo& info : option_table()) EXPECT_EQ(Options().get(info.name), info.default_value) << info.name;
}

TEST(OptionTable, EveryOptionIsReadAndChangesOnlyItself) {
  const std::vector<std::string> defaults = values_of(Options());
  std::size_t row = 0;
  for (const OptionInfo& info : option_table()) {
    SCOPED_TRACE(info.name);
    const auto other = other_value.find(info.name);
    ASSERT_NE(other, other_value.end()) << "a new option needs a value in other_value";
    Options options;
    options.set(info.name, other->second);
    std::vector<std::string> expected = defaults;
    expected[row++] = other->second;
    EXPECT_EQ(values_of(options), expected);
    options.set(info.name, info.default_value);
    EXPECT_EQ(values_of(options), defaults);
  }
}

TEST(Options, FieldsGetTheValues) {
  Options options;
  for (const auto& [name, value] : other_value) options.set(name, value);
  EXPECT_EQ(options.cells, (Grid{4, 2}));
  EXPECT_EQ(options.threads, 3U);
  EXPECT_EQ(options.stack_bytes, 65536U);
  EXPECT_EQ(options.poll_time, 1ms);
  EXPECT_FALSE(options.bind);
  EXPECT_FALSE(options.balance);
  EXPECT_FALSE(options.deadlock_report);
  EXPECT_EQ(options.log_level, "debug");
  EXPECT_EQ(options.program_stack_bytes, 1024U * 1024U);
  EXPECT_EQ(options.private_libraries, (std::vector<std::string>{"liba.so", "libb.so*"}));
  EXPECT_EQ(options.shared_libraries, std::vector<std::string>{"libc?.so"});
  EXPECT_EQ(options.low_memory, "on");
  EXPECT_TRUE(options.account_heap);
  EXPECT_TRUE(options.tag_output);
  EXPECT_EQ(options.debugger_images, 500U);
  EXPECT_EQ(options.module, "tcp");
  EXPECT_EQ(options.module_path, "/opt/a:/opt/b");
  EXPECT_EQ(options.provider, "verbs");
  EXPECT_EQ(options.ports, "5100-5120");
  EXPECT_EQ(options.secure, "tls");
  EXPECT_EQ(options.streams, 4U);
  EXPECT_EQ(options.send_limit_bytes, std::size_t{2} << 20);
  EXPECT_EQ(options.send_wait, 2s);
  EXPECT_EQ(options.unread_limit_bytes, std::size_t{3} << 20);
  EXPECT_EQ(options.resume_time, 20s);
  EXPECT_EQ(options.peer_timeout, 3s);
  options.set("threads", "per-cell");
  EXPECT_EQ(options.threads, Options::threads_per_cell);
  options.set("threads", "auto");
  EXPECT_EQ(options.threads, Options::threads_auto);
  options.set("poll-time", "auto");
  EXPECT_EQ(options.poll_time, std::nullopt);
  options.set("poll-time", "0");
  EXPECT_EQ(options.poll_time, 0ns);
}

struct Spelling {
  std::string_view name, written, read;
};

void PrintTo(const Spelling& spelling, std::ostream* out) { *out << spelling.name << "=" << spelling.written; }

class OptionSpelling : public testing::TestWithParam<Spelling> {};

TEST_P(OptionSpelling, IsRead) {
  Options options;
  options.set(GetParam().name, GetParam().written);
  EXPECT_EQ(options.get(GetParam().name), GetParam().read);
}

INSTANTIATE_TEST_SUITE_P(
    All, OptionSpelling,
    testing::Values(
        Spelling{"cells", "8", "8x1"}, Spelling{"cells", "1x8", "1x8"}, Spelling{"cells", "128X128", "128x128"},
        Spelling{"cells", "16384", "16384x1"}, Spelling{"cells", "001x002", "1x2"}, Spelling{"threads", "4096", "4096"},
        Spelling{"threads", "AUTO", "auto"}, Spelling{"threads", "Per-Cell", "per-cell"},
        Spelling{"stack-size", "8192", "8k"}, Spelling{"stack-size", "1G", "1g"}, Spelling{"stack-size", "1024k", "1m"},
        Spelling{"stack-size", "100001", "100001"}, Spelling{"poll-time", "20us", "20us"},
        Spelling{"poll-time", "1000us", "1ms"}, Spelling{"poll-time", "0s", "0"}, Spelling{"poll-time", "10s", "10s"},
        Spelling{"poll-time", "1ns", "1ns"}, Spelling{"bind", "yes", "on"}, Spelling{"bind", "true", "on"},
        Spelling{"bind", "1", "on"}, Spelling{"bind", "NO", "off"}, Spelling{"bind", "false", "off"},
        Spelling{"bind", "0", "off"}, Spelling{"log-level", "INFO", "info"}, Spelling{"log-level", "off", "off"}));

TEST(Options, ImpossibleGridsAreRefusedInWords) {
  constexpr const char* remedy = "use NXxNY with at least 1 cell and at most 16384 in all, for example 4x2 or 8";
  for (const char* text : {"0x4", "4x0", "0", "", "x", "4x", "x4", "-1x4", "4x2x1", "4 x 2", "four", "+4", "4.0",
                           "99999999999999999999"}) {
    EXPECT_EQ(set_error("cells", text), std::string("option cells: \"") + text + "\" is not a grid: " + remedy);
  }
  // The last product is 2^64, which must not count as 0.
  for (const char* text : {"16385", "129x128", "200x200", "65536x65536", "4294967296x4294967296"}) {
    EXPECT_EQ(set_error("cells", text), std::string("option cells: \"") + text + "\" is too large a grid: " + remedy);
  }
}

TEST(Options, OtherBadValuesAreRefusedInWords) {
  EXPECT_EQ(set_error("threads", "0"), "option threads: \"0\" is out of range: use 1 .. 4096, auto or per-cell");
  EXPECT_EQ(set_error("threads", "4097"), "option threads: \"4097\" is out of range: use 1 .. 4096, auto or per-cell");
  EXPECT_EQ(set_error("threads", "many"),
            "option threads: \"many\" is not a number of threads: use 1 .. 4096, auto or per-cell");
  EXPECT_EQ(set_error("stack-size", "4k"), "option stack-size: \"4k\" is out of range: use 8k .. 1g, for example 256k");
  EXPECT_EQ(set_error("stack-size", "2g"), "option stack-size: \"2g\" is out of range: use 8k .. 1g, for example 256k");
  EXPECT_EQ(set_error("stack-size", "k"), "option stack-size: \"k\" is not a size: use 8k .. 1g, for example 256k");
  EXPECT_EQ(set_error("stack-size", "99999999999g"),
            "option stack-size: \"99999999999g\" is not a size: use 8k .. 1g, for example 256k");
  EXPECT_EQ(
      set_error("poll-time", "20"),
      "option poll-time: \"20\" is not a time: use 0 .. 10s with a unit (ns, us, ms, s), for example 20us, or auto");
  EXPECT_EQ(
      set_error("poll-time", "11s"),
      "option poll-time: \"11s\" is out of range: use 0 .. 10s with a unit (ns, us, ms, s), for example 20us, or auto");
  EXPECT_EQ(set_error("bind", "maybe"), "option bind: \"maybe\" is not a switch: use on or off");
  EXPECT_EQ(set_error("log-level", "loud"),
            "option log-level: \"loud\" is not a level: use one of trace, debug, info, warn, error, off");
  for (const char* text : {",", "liba.so,", "*", "lib/a.so"}) {
    EXPECT_EQ(set_error("private-libraries", text),
              "option private-libraries: \"" + std::string(text) +
                  "\" is not a list of libraries: use file names with commas between them, for example "
                  "libfft.so,libgmp.so*");
  }
  EXPECT_EQ(set_error("program-stack", "4k"),
            "option program-stack: \"4k\" is out of range: use 8k .. 1g, for example 256k");
}

TEST(Options, ABadValueChangesNothing) {
  Options options;
  options.set("cells", "4x2");
  EXPECT_THROW(options.set("cells", "0x4"), Error);
  EXPECT_EQ(options.get("cells"), "4x2");
}

constexpr const char* known_options =
    "known options: cells, threads, stack-size, poll-time, bind, balance, deadlock-report, log-level, "
    "program-stack, private-libraries, shared-libraries, heap, low-memory, account-heap, tag-output, debugger-images, "
    "module, module-path, provider, ports, secure, streams, resume-time, send-limit, send-wait, unread-limit, "
    "peer-timeout";

TEST(Options, AnUnknownNameIsAnsweredWithTheNearestKnownOne) {
  const auto unknown = [](const std::string& name, const std::string& hint) {
    return "unknown option \"" + name + "\":" + hint + " " + known_options;
  };
  EXPECT_EQ(set_error("thread", "2"), unknown("thread", " did you mean \"threads\"?"));
  EXPECT_EQ(set_error("cell", "2"), unknown("cell", " did you mean \"cells\"?"));
  EXPECT_EQ(set_error("stack_size", "1m"), unknown("stack_size", " did you mean \"stack-size\"?"));
  EXPECT_EQ(set_error("stack", "1m"), unknown("stack", " did you mean \"stack-size\"?"));
  EXPECT_EQ(set_error("balnace", "on"), unknown("balnace", " did you mean \"balance\"?"));
  EXPECT_EQ(set_error("CELLS", "1"), unknown("CELLS", " did you mean \"cells\"?"));
  EXPECT_EQ(set_error("color", "red"), unknown("color", ""));
  EXPECT_EQ(set_error("", "1"), unknown("", ""));
  EXPECT_EQ(error_of([] { (void)Options().get("thread"); }), unknown("thread", " did you mean \"threads\"?"));
}

TEST(Options, AssignedFieldsAreCheckedWithTheSameWords) {
  Options options;
  EXPECT_EQ(error_of([&] { options.check(); }), "(no error)");
  options.cells = {0, 4};
  EXPECT_EQ(error_of([&] { options.check(); }), set_error("cells", "0x4"));
  options.cells = {65536, 65536};  // the count would wrap to 0
  EXPECT_EQ(error_of([&] { options.check(); }), set_error("cells", "65536x65536"));
  options = {};
  options.stack_bytes = 100;
  EXPECT_EQ(error_of([&] { options.check(); }), set_error("stack-size", "100"));
  options = {};
  options.poll_time = -5us;
  EXPECT_EQ(error_of([&] { options.check(); }), set_error("poll-time", "-5us"));
  options = {};
  options.log_level = "loud";
  EXPECT_EQ(error_of([&] { options.check(); }), set_error("log-level", "loud"));
}

TEST(Environment, EveryVariableIsRead) {
  Environment environment;
  for (const OptionInfo& info : option_table()) environment.set(std::string(info.variable), other_value.at(info.name));
  const Options options = Options::from_environment();
  for (const OptionInfo& info : option_table())
    EXPECT_EQ(options.get(info.name), other_value.at(info.name)) << info.name;
}

TEST(Environment, OverridesOnlyWhatItNames) {
  Environment environment;
  environment.set("APLIB_THREADS", "2");
  environment.set("APLIB_CELLS", "");  // how a shell removes a variable for one command
  Options options;
  options.cells = {4, 4};
  options.set_from_environment();
  EXPECT_EQ(options.cells, (Grid{4, 4}));
  EXPECT_EQ(options.threads, 2U);
}

TEST(Environment, BadValuesNameTheVariable) {
  Environment environment;
  environment.set("APLIB_BIND", "off");
  environment.set("APLIB_STACK_SIZE", "1k");
  Options options;
  EXPECT_EQ(error_of([&] { options.set_from_environment(); }),
            "APLIB_STACK_SIZE: \"1k\" is out of range: use 8k .. 1g, for example 256k");
  EXPECT_TRUE(options.bind) << "an environment with a mistake must change nothing";
}

TEST(Environment, UnknownVariablesAreErrors) {
  const std::string known =
      "known variables: APLIB_CELLS, APLIB_THREADS, APLIB_STACK_SIZE, APLIB_POLL_TIME, APLIB_BIND, APLIB_BALANCE, "
      "APLIB_DEADLOCK_REPORT, APLIB_LOG_LEVEL, APLIB_PROGRAM_STACK, APLIB_PRIVATE_LIBRARIES, APLIB_SHARED_LIBRARIES, "
      "APLIB_HEAP, APLIB_LOW_MEMORY, APLIB_ACCOUNT_HEAP, APLIB_TAG_OUTPUT, APLIB_DEBUGGER_IMAGES, APLIB_MODULE, "
      "APLIB_MODULE_PATH, "
      "APLIB_PROVIDER, APLIB_PORTS, APLIB_SECURE, "
      "APLIB_STREAMS, APLIB_RESUME_TIME, APLIB_SEND_LIMIT, APLIB_SEND_WAIT, APLIB_UNREAD_LIMIT, APLIB_PEER_TIMEOUT";
  {
    Environment environment;
    environment.set("APLIB_THREAD", "2");
    EXPECT_EQ(error_of([] { Options::from_environment(); }),
              "unknown variable \"APLIB_THREAD\": did you mean \"APLIB_THREADS\"? " + known);
  }
  {
    Environment environment;
    environment.set("APLIB_COLOR", "");
    EXPECT_EQ(error_of([] { Options::from_environment(); }), "unknown variable \"APLIB_COLOR\": " + known);
  }
}

}  // namespace
}  // namespace aplib
