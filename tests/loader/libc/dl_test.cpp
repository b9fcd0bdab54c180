// SPDX-License-Identifier: MIT
// dlopen and its relatives inside instances: each instance's own plug-ins, symbols, loading and unloading.
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "compile.hpp"
#include "running.hpp"

namespace aplib::loader::test {
namespace {

/// A program in C or C++ and its plug-ins, in one folder that its RUNPATH names.
class DlTest : public ::testing::Test {
 protected:
  void plugin(std::string_view source, std::string_view name, Workshop::Flags flags = {},
              Language language = Language::c) {
    flags.insert(flags.begin(), {"-shared", "-Wl,-rpath,$ORIGIN"});
    shop.compile(source, flags, name, language);
  }

  std::shared_ptr<const Program> program(std::string_view source, Language language = Language::c,
                                         Workshop::Flags flags = {}, const LoadOptions& options = {}) {
    flags.insert(flags.begin(), {"-shared", "-Wl,-rpath,$ORIGIN"});
    return Program::load(shop.compile(std::string(head) + std::string(source), flags, "program.so", language), options);
  }

  /// Runs it in two cells, one after another. Both must end with status 0 and print the same, which is the result.
  std::string say(const std::shared_ptr<const Program>& program) {
    const Ran first = run(program, {"program"}, 0);
    const Ran second = run(program, {"program"}, 1);
    EXPECT_EQ(first.outcome.status, 0) << first.out << first.err << first.failure;
    EXPECT_EQ(second.outcome.status, 0) << second.out << second.err << second.failure;
    EXPECT_EQ(first.out, second.out);
    return first.out;
  }

  static constexpr std::string_view head = R"(
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define NEED(what) do { if (!(what)) { const char* e = dlerror(); printf("%s failed: %s\n", #what, e ? e : "-"); return 1; } } while (0)
)";

  Workshop shop;
};

constexpr std::string_view counter = R"(
#include <stdio.h>
int counter = 10;
int count(void) { return ++counter; }
__attribute__((constructor)) static void begin(void) { printf("begin\n"); }
__attribute__((destructor)) static void end(void) { printf("end %d\n", counter); }
)";

TEST_F(DlTest, loads_runs_and_unloads_a_plugin) {
  plugin(counter, "plugin.so");
  EXPECT_EQ(say(program(R"(
int main(void) {
  void* handle = dlopen("plugin.so", RTLD_NOW);
  NEED(handle);
  int (*count)(void) = (int (*)(void))dlsym(handle, "count");
  NEED(count);
  count();
  printf("count %d, ", count());
  printf("counter %d\n", *(int*)dlsym(handle, "counter"));
  NEED(dlclose(handle) == 0);
  printf("closed\n");
  NEED(dlopen("plugin.so", RTLD_NOW | RTLD_NOLOAD) == NULL);
  return 0;
})")),
            "begin\ncount 12, counter 12\nend 12\nclosed\n");
}

TEST_F(DlTest, each_instance_has_its_own_plugin) {
  plugin(counter, "plugin.so");
  const auto loaded = program(R"(
static int (*count)(void);
int start(void) { void* handle = dlopen("plugin.so", RTLD_NOW); count = (int (*)(void))dlsym(handle, "count"); return count != 0; }
int step(void) { return count(); }
)");
  RecordingHost hosts[2];
  std::vector<int> seen;
  ProgramContext* contexts[2] = {};
  run_instance(make_instance(loaded, hosts[0], 0), [&](Instance& first) {
    contexts[0] = current_program_context;
    EXPECT_EQ(function_of<int()>(first, "start")(), 1);
    Instance::run(
        make_instance(loaded, hosts[1], 1),
        [&](Instance& second) {
          contexts[1] = current_program_context;
          EXPECT_EQ(function_of<int()>(second, "start")(), 1);
          for (int i = 0; i < 3; ++i) {
            current_program_context = contexts[0];
            seen.push_back(function_of<int()>(first, "step")());
          }
          current_program_context = contexts[1];
          seen.push_back(function_of<int()>(second, "step")());
          return 0;
        },
        [&](ProgramContext* context) { current_program_context = context != nullptr ? context : contexts[0]; });
    return 0;
  });
  EXPECT_EQ(seen, (std::vector<int>{11, 12, 13, 11}));
}

TEST_F(DlTest, destructors_of_open_plugins_run_at_the_end) {
  plugin(counter, "plugin.so");
  EXPECT_EQ(say(program(R"(
static void last(void) { printf("handler\n"); }
int main(void) {
  atexit(last);
  NEED(dlopen("plugin.so", RTLD_NOW));
  printf("main ends\n");
  return 0;
}
__attribute__((destructor)) static void end(void) { printf("program ends\n"); }
)")),
            "begin\nmain ends\nhandler\nend 10\nprogram ends\n");
}

TEST_F(DlTest, counts_references) {
  plugin(counter, "plugin.so");
  EXPECT_EQ(say(program(R"(
int main(void) {
  void* first = dlopen("plugin.so", RTLD_NOW);
  void* second = dlopen("plugin.so", RTLD_LAZY);
  NEED(first && first == second);
  void* third = dlopen("plugin.so", RTLD_LAZY | RTLD_NOLOAD);
  NEED(third == first);
  NEED(dlclose(first) == 0 && dlclose(first) == 0);
  printf("still there: %d\n", ((int (*)(void))dlsym(third, "count"))());
  NEED(dlclose(third) == 0);
  printf("gone\n");
  NEED(dlclose(third) != 0);
  printf("%s\n", dlerror());
  first = dlopen("plugin.so", RTLD_NOW | RTLD_NODELETE);
  NEED(dlclose(first) == 0);
  printf("stays\n");
  return 0;
})")),
            "begin\nstill there: 11\nend 11\ngone\ndlclose: invalid handle; pass what dlopen returned and has not been "
            "closed\nbegin\nstays\nend 10\n");
}

TEST_F(DlTest, plugin_refers_to_the_program_and_to_libc_state_of_its_instance) {
  plugin(R"(
#include <stdlib.h>
#include <stdio.h>
extern int level;
int raise_level(int by);
int work(void) { setenv("FROM_PLUGIN", "yes", 1); level += 5; return raise_level(3); }
)",
         "plugin.so");
  EXPECT_EQ(say(program(R"(
int level = 1;
int raise_level(int by) { return level += by; }
int main(void) {
  void* handle = dlopen("plugin.so", RTLD_NOW);
  NEED(handle);
  printf("%d ", ((int (*)(void))dlsym(handle, "work"))());
  printf("%d %s\n", level, getenv("FROM_PLUGIN"));
  return 0;
})")),
            "9 9 yes\n");
}

TEST_F(DlTest, exceptions_cross_from_plugin_to_program) {
  plugin(R"(
#include <stdexcept>
#include <string>
struct Guard { int& count; ~Guard() { ++count; } };
extern "C" void blow(int* count) { Guard guard{*count}; throw std::runtime_error("from the plugin " + std::to_string(*count)); }
)",
         "plugin.so", {}, Language::cpp);
  EXPECT_EQ(say(program(R"(
#include <stdexcept>
int main() {
  void* handle = dlopen("plugin.so", RTLD_NOW);
  NEED(handle);
  auto* blow = reinterpret_cast<void (*)(int*)>(dlsym(handle, "blow"));
  int count = 7;
  try { blow(&count); } catch (const std::runtime_error& error) { printf("%s, %d\n", error.what(), count); }
  NEED(dlclose(handle) == 0);
  return 0;
}
)",
                        Language::cpp)),
            "from the plugin 7, 8\n");
}

TEST_F(DlTest, cpp_statics_and_thread_locals_of_plugins) {
  plugin(R"(
#include <cstdio>
#include <string>
struct Static { Static() { std::printf("made\n"); } ~Static() { std::printf("destroyed\n"); } int value = 3; };
static Static object;
struct Local { ~Local() { std::printf("local destroyed\n"); } int value = 40; };
thread_local Local local;
thread_local std::string text;  // destroyed by code of libstdc++
thread_local int plain = 100;
extern "C" int value() { return object.value++ + plain++; }
extern "C" int local_value() { text.append(100, 'x'); return local.value++; }
extern "C" int* plain_place() { return &plain; }
)",
         "plugin.so", {}, Language::cpp);
  EXPECT_EQ(say(program(R"(
int main() {
  void* handle = dlopen("plugin.so", RTLD_NOW);
  NEED(handle);
  auto* value = reinterpret_cast<int (*)()>(dlsym(handle, "value"));
  value();
  printf("%d\n", value());
  dlclose(handle);
  handle = dlopen("plugin.so", RTLD_NOW);  // a fresh one
  value = reinterpret_cast<int (*)()>(dlsym(handle, "value"));
  printf("%d %d\n", value(), dlsym(handle, "plain") == (void*)reinterpret_cast<int* (*)()>(dlsym(handle, "plain_place"))());
  reinterpret_cast<int (*)()>(dlsym(handle, "local_value"))();
  dlclose(handle);  // its thread_local's destructor is still to run
  printf("closed\n");
  return 0;
}
)",
                        Language::cpp)),
            "made\n105\ndestroyed\nmade\n103 1\nclosed\nlocal destroyed\ndestroyed\n");
}

TEST_F(DlTest, dependencies_come_and_go_with_their_users) {
  plugin(R"(
#include <stdio.h>
int shared_count;
int next(void) { return ++shared_count; }
__attribute__((constructor)) static void begin(void) { printf("base begins\n"); }
__attribute__((destructor)) static void end(void) { printf("base ends\n"); }
)",
         "libbase.so", {"-Wl,-soname,libbase.so"});
  const std::string user = R"(
#include <stdio.h>
int next(void);
int use(void) { return next(); }
__attribute__((constructor)) static void begin(void) { printf("user begins\n"); }
__attribute__((destructor)) static void end(void) { printf("user ends\n"); }
)";
  plugin(user, "one.so", {shop.path("libbase.so")});
  plugin(user, "two.so", {shop.path("libbase.so")});
  EXPECT_EQ(say(program(R"(
static int use(void* handle) { return ((int (*)(void))dlsym(handle, "use"))(); }
int main(void) {
  void* one = dlopen("one.so", RTLD_NOW);
  void* two = dlopen("two.so", RTLD_NOW);
  NEED(one && two);
  NEED(dlsym(one, "next") != NULL && dlsym(one, "next") == dlsym(two, "next"));
  use(one);
  printf("%d\n", use(two));
  dlclose(one);
  printf("%d\n", use(two));
  dlclose(two);
  printf("all closed\n");
  return 0;
})")),
            "base begins\nuser begins\nuser begins\n2\nuser ends\n3\nuser ends\nbase ends\nall closed\n");
}

TEST_F(DlTest, global_plugins_serve_others_and_stay_while_they_are_bound) {
  plugin(R"(
#include <stdio.h>
int offered(void) { return 77; }
__attribute__((destructor)) static void end(void) { printf("offerer ends\n"); }
)",
         "offerer.so");
  plugin("int offered(void); int use(void) { return offered(); }", "user.so");
  EXPECT_EQ(say(program(R"(
int main(void) {
  void* offerer = dlopen("offerer.so", RTLD_NOW | RTLD_LOCAL);
  NEED(offerer);
  NEED(dlsym(RTLD_DEFAULT, "offered") == NULL);
  printf("%s\n", strstr(dlerror(), "undefined symbol: offered") ? "local" : "?");
  NEED(dlopen("user.so", RTLD_NOW) == NULL);
  printf("%s\n", strstr(dlerror(), "offered") ? "refused" : "?");
  NEED(dlopen("offerer.so", RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD) == offerer);
  NEED(dlsym(RTLD_DEFAULT, "offered") != NULL);
  void* user = dlopen("user.so", RTLD_NOW);
  NEED(user);
  dlclose(offerer);
  dlclose(offerer);
  printf("%d\n", ((int (*)(void))dlsym(user, "use"))());
  dlclose(user);
  printf("done\n");
  return 0;
})")),
            "local\nrefused\n77\nofferer ends\ndone\n");
}

TEST_F(DlTest, next_and_default_and_self) {
  plugin("int layer(void) { return 1; }", "liblower.so", {"-Wl,-soname,liblower.so"});
  const Workshop::Flags link{"-Wl,--no-as-needed", shop.path("liblower.so")};
  EXPECT_EQ(say(program(R"(
int layer(void) { return 10 + ((int (*)(void))dlsym(RTLD_NEXT, "layer"))(); }
int hidden_twin(void) { return 5; }
int main(void) {
  void* self = dlopen(NULL, RTLD_NOW);
  NEED(self);
  printf("%d %d\n", layer(), ((int (*)(void))dlsym(self, "hidden_twin"))());
  NEED(dlsym(RTLD_DEFAULT, "layer") == (void*)layer);
  NEED(dlsym(RTLD_DEFAULT, "getenv") == (void*)getenv);  // the instance's, as in its own references
  NEED(dlsym(RTLD_NEXT, "malloc") != NULL);
  NEED(dlsym(self, "no_such_thing") == NULL);
  NEED(dlerror() != NULL && dlerror() == NULL);
  NEED(dlclose(self) == 0);
  return 0;
})",
                        Language::c, link)),
            "11 5\n");
}

TEST_F(DlTest, libraries_of_the_system_are_shared) {
  EXPECT_EQ(say(program(R"(
int main(void) {
  void* handle = dlopen("libm.so.6", RTLD_NOW);
  NEED(handle);
  double (*cosine)(double) = (double (*)(double))dlsym(handle, "cos");
  NEED(cosine);
  printf("%g\n", cosine(0));
  void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  NEED(libc);
  NEED(dlsym(libc, "setenv") == (void*)setenv);  // the instance's
  NEED(dlvsym(handle, "cos", "GLIBC_2.2.5") == (void*)cosine);
  struct link_map* map = NULL;
  NEED(dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_addr != 0);
  return dlclose(libc) + dlclose(handle);
})")),
            "1\n");
}

TEST_F(DlTest, errors_say_what_and_where) {
  plugin("int missing_one(void); int use(void) { return missing_one(); }", "broken.so");
  shop.write("text.so", "this is no library");
  const std::string out = say(program(R"(
static void try_it(const char* name, int flags) { printf("%s: ", dlopen(name, flags) ? "opened" : "refused"); printf("%s\n", dlerror()); }
int main(void) {
  try_it("no_such_file.so", RTLD_NOW);
  try_it("broken.so", RTLD_NOW);
  try_it("text.so", RTLD_NOW);
  try_it("broken.so", 0);
  printf("%p ", dlmopen(LM_ID_NEWLM, "broken.so", RTLD_NOW));
  printf("%s\n", dlerror());
  printf("%d\n", dlerror() == NULL);
  return 0;
})"));
  for (const char* part :
       {"no_such_file.so", "not found", "missing_one", "text.so", "invalid mode", "use dlopen", "\n1\n"})
    EXPECT_NE(out.find(part), std::string::npos) << part << " is not in:\n" << out;
  EXPECT_EQ(out.find("opened"), std::string::npos) << out;
}

// They need a place in every thread, so the program must not have made any.
TEST_F(DlTest, initial_exec_thread_locals_of_plugins_come_before_threads) {
  plugin("__thread int fast __attribute__((tls_model(\"initial-exec\"))) = 7; int get(void) { return fast++; }",
         "plugin.so");
  const std::string open = R"(
static void show(void) {
  void* handle = dlopen("plugin.so", RTLD_NOW);
  if (!handle) { printf("%s\n", dlerror()); return; }
  int (*get)(void) = (int (*)(void))dlsym(handle, "get");
  int first = get();
  printf("%d %d\n", first, get());
})";
  EXPECT_EQ(say(program(open + "int main(void) { show(); return 0; }")), "7 8\n");
  const std::string late = say(program("#include <pthread.h>\n" + open + R"(
static pthread_barrier_t end;
static void* work(void* unused) { pthread_barrier_wait(&end); return unused; }
int main(void) {
  pthread_t id;
  pthread_barrier_init(&end, NULL, 2);
  pthread_create(&id, NULL, work, NULL);
  show();
  pthread_barrier_wait(&end);
  pthread_join(id, NULL);
  return 0;
})"));
  EXPECT_NE(late.find("several threads or tasks"), std::string::npos) << late;
  EXPECT_NE(late.find("-ftls-model=global-dynamic"), std::string::npos) << late;
}

// Each takes more than half of the room.
TEST_F(DlTest, plugins_with_initial_exec_thread_locals_give_their_room_back) {
  for (const char* number : {"1", "2", "3"}) {
    plugin(std::string("__thread int much[300] __attribute__((tls_model(\"initial-exec\"))) = {") + number +
               "}; int get(void) { return much[0]++ + much[299]; }",
           std::string("plugin") + number + ".so");
  }
  EXPECT_EQ(say(program(R"(
int main(void) {
  for (int i = 0; i < 9; ++i) {
    char name[] = "plugin0.so";
    name[6] += 1 + i % 3;
    void* handle = dlopen(name, RTLD_NOW);
    if (!handle) { printf("%s\n", dlerror()); return 1; }
    int (*get)(void) = (int (*)(void))dlsym(handle, "get");
    int first = get();
    printf("%d%d ", first, get());
    NEED(dlclose(handle) == 0);
  }
  printf("\n");
  return 0;
})")),
            "12 23 34 12 23 34 12 23 34 \n");
}

TEST_F(DlTest, initial_exec_thread_locals_of_plugins_are_found_by_other_plugins) {
  plugin(
      "__thread int shown __attribute__((tls_model(\"initial-exec\"))) = 7;"
      "__thread int pad[3] __attribute__((tls_model(\"initial-exec\"))) = {1}; int padded(void) { return pad[0]; }",
      "first.so");
  plugin(
      "extern __thread int shown __attribute__((tls_model(\"initial-exec\")));"
      "__thread int more[4] __attribute__((tls_model(\"initial-exec\"))) = {5};"
      "int both(void) { return 10 * shown++ + more[0]++; }",
      "second.so");
  EXPECT_EQ(say(program(R"(
int main(void) {
  void* first = dlopen("first.so", RTLD_NOW | RTLD_GLOBAL);
  void* second = dlopen("second.so", RTLD_NOW);
  if (!first || !second) { printf("%s\n", dlerror()); return 1; }
  int (*both)(void) = (int (*)(void))dlsym(second, "both");
  int sum = both();
  printf("%d ", sum);
  sum = both();
  printf("%d %d\n", sum, *(int*)dlsym(first, "shown"));
  return 0;
})")),
            "75 86 9\n");
}

TEST_F(DlTest, addresses_have_files_and_names) {
  plugin("int plugged(void) { return 1; }", "plugin.so");
  const std::string out = say(program(R"(
int visible(void) { return 1; }
static int show(const void* address) {
  Dl_info info;
  if (!dladdr(address, &info)) { printf("nothing\n"); return 0; }
  printf("%s %s %d\n", strrchr(info.dli_fname, '/') + 1, info.dli_sname ? info.dli_sname : "-", info.dli_saddr == address);
  return 0;
}
int main(void) {
  void* handle = dlopen("plugin.so", RTLD_NOW);
  NEED(handle);
  show((void*)visible);
  show((char*)visible + 1);
  show(dlsym(handle, "plugged"));
  show((void*)&insque);  // a function that sanitizers do not replace
  int local;
  show(&local);
  Dl_info info;
  ElfW(Sym)* symbol = NULL;
  NEED(dladdr1((void*)visible, &info, (void**)&symbol, RTLD_DL_SYMENT));
  printf("%d\n", (char*)info.dli_fbase + symbol->st_value == (char*)visible);
  struct link_map* map = NULL;
  NEED(dladdr1(dlsym(handle, "plugged"), &info, (void**)&map, RTLD_DL_LINKMAP));
  printf("%d %s\n", map == (struct link_map*)handle, strrchr(map->l_name, '/') + 1);
  char origin[4096], *file = strdup(info.dli_fname);
  NEED(dlinfo(handle, RTLD_DI_ORIGIN, origin) == 0);
  *strrchr(file, '/') = 0;
  printf("%d\n", strcmp(origin, file) == 0);
  free(file);
  return 0;
})"));
  EXPECT_EQ(out,
            "program.so visible 1\nprogram.so visible 0\nplugin.so plugged 1\nlibc.so.6 insque 1\nnothing\n1\n1 "
            "plugin.so\n1\n");
}

TEST_F(DlTest, backtraces_name_functions_of_the_instance) {
  const std::string out = say(program(R"(
#include <unistd.h>
__attribute__((noinline)) int innermost(void) {
  void* frames[20];
  const int count = backtrace(frames, 20);
  char** names = backtrace_symbols(frames, count);
  int found = 0;
  for (int i = 0; i < count && found < 3; ++i) {  // a sanitizer may be first
    char* name = strrchr(names[i], '/');
    char* end = name && strncmp(name, "/program.so(", 12) == 0 ? strchr(name, '+') : NULL;
    if (end) { *end = 0; printf("%s\n", name + 1); ++found; }
  }
  free(names);
  return found;
}
__attribute__((noinline)) int middle(void) { return innermost() + 1; }
int main(void) { return middle() - 4; }
)"));
  EXPECT_EQ(out, "program.so(innermost\nprogram.so(middle\nprogram.so(main\n");
}

TEST_F(DlTest, iterating_objects_starts_with_the_program) {
  plugin("int nothing;", "plugin.so");
  EXPECT_EQ(say(program(R"(
static int programs, plugins, libcs, first_is_program = -1;
static int look(struct dl_phdr_info* info, size_t bytes, void* data) {
  const char* name = strrchr(info->dlpi_name, '/');
  name = name ? name + 1 : info->dlpi_name;
  if (first_is_program < 0) first_is_program = strcmp(name, "program.so") == 0;
  programs += strcmp(name, "program.so") == 0;
  plugins += strcmp(name, "plugin.so") == 0;
  libcs += strcmp(name, "libc.so.6") == 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) *(size_t*)data += info->dlpi_phdr[i].p_type == PT_LOAD;
  return 0;
}
int main(void) {
  size_t segments = 0;
  NEED(dlopen("plugin.so", RTLD_NOW));
  dl_iterate_phdr(look, &segments);
  printf("%d %d %d %d %d\n", first_is_program, programs, plugins, libcs, segments > 6);
  return 0;
})")),
            "1 1 1 1 1\n");
}

TEST_F(DlTest, sixty_instances_share_one_plan_and_open_no_more_files) {
  plugin(counter, "plugin.so");
  const auto loaded = program(R"(
int main(void) { return dlopen("plugin.so", RTLD_NOW) ? 0 : 1; }
)");
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  EXPECT_EQ(run(loaded).outcome.status, 0);
  const auto before = descriptors();
  for (std::uint32_t cell = 0; cell < 60; ++cell) EXPECT_EQ(run(loaded, {"program"}, cell).outcome.status, 0);
  EXPECT_EQ(descriptors(), before);
}

}  // namespace
}  // namespace aplib::loader::test
