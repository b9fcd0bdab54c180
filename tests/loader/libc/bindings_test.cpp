// SPDX-License-Identifier: MIT
// The table of what programs get from APlib instead of libc is consistent and documented.
#include "loader/libc/bindings.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace aplib::loader {
namespace {

TEST(Bindings, NoTwoHaveOneNameAndEachLeadsSomewhere) {
  std::set<std::string_view> names;
  for (const libc::Binding& each : libc::all_bindings()) {
    EXPECT_TRUE(names.insert(each.name).second) << each.name << " is bound twice";
    EXPECT_EQ(libc::find_binding(each.name), &each) << each.name;
    switch (each.kind) {
      case libc::Binding::Kind::function:
        EXPECT_NE(each.function, nullptr) << each.name;
        break;
      case libc::Binding::Kind::datum:
        EXPECT_NE(each.place, nullptr) << each.name;
        EXPECT_NE(each.give_room, nullptr) << each.name;
        EXPECT_GT(each.bytes, 0U) << each.name;
        break;
    }
  }
  EXPECT_EQ(libc::find_binding("no such name"), nullptr);
}

/// The names of libc's functions, by their places in its file.
std::map<ElfW(Addr), std::vector<std::string>> functions_of_libc() {
  std::map<ElfW(Addr), std::vector<std::string>> functions;
  link_map* libc = nullptr;
  void* const handle = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr || dlinfo(handle, RTLD_DI_LINKMAP, &libc) != 0) return functions;
  const char* strings = nullptr;
  const ElfW(Sym)* symbols = nullptr;
  for (const ElfW(Dyn)* each = libc->l_ld; each->d_tag != DT_NULL; ++each) {
    if (each->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(each->d_un.d_ptr);
    if (each->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(each->d_un.d_ptr);
  }
  // Linkers put the strings behind the symbols.
  for (const ElfW(Sym)* each = symbols; reinterpret_cast<const char*>(each + 1) <= strings; ++each) {
    const auto type = ELF64_ST_TYPE(each->st_info);
    if (each->st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_GNU_IFUNC))
      functions[each->st_value].emplace_back(strings + each->st_name);
  }
  return functions;
}

// A fortified program, an older one, or a library that knows libc's own names calls the same function by another.
TEST(Bindings, AFunctionIsBoundByAllItsNames) {
  const auto functions = functions_of_libc();
  ASSERT_GT(functions.size(), 1000U);
  std::set<std::string> known;
  for (const auto& [place, names] : functions) {
    const auto bound = std::ranges::find_if(names, [](const std::string& name) { return libc::find_binding(name); });
    for (const std::string& name : names) {
      known.insert(name);
      EXPECT_TRUE(bound == names.end() || libc::find_binding(name) != nullptr)
          << name << " is " << *bound << ", which is bound";
    }
  }
  const std::set<std::string> other_functions{
      "_IO_getline",              // of a FILE's buffer: another than getline()
      "_IO_vfscanf",              // libstdc++ of long ago; has a further parameter
      "strerror_l", "strptime_l"  // see docs/privatization.md; the latter keeps no state
  };
  for (const libc::Binding& each : libc::all_bindings()) {
    const std::string name(each.name);
    for (const std::string& form : {"__" + name + "_chk",
                                    "__" + name,
                                    name + "64",
                                    "__" + name + "64",
                                    "__" + name + "64_chk",
                                    "_IO_" + name,
                                    "__isoc99_" + name,
                                    "__isoc23_" + name,
                                    "__libc_" + name,
                                    name + "_unlocked",
                                    "__" + name + "_unlocked_chk",
                                    "__" + name + "_time64",
                                    "__" + name + "64_time64",
                                    "__xpg_" + name,
                                    "__bsd_" + name,
                                    "__sysv_" + name,
                                    "__posix_" + name,
                                    name + "_l",
                                    "__" + name + "_l",
                                    "__" + name + "_2",
                                    "__" + name + "64_2"}) {
      EXPECT_TRUE(!known.contains(form) || other_functions.contains(form) || libc::find_binding(form) != nullptr)
          << form << " is a form of " << name << ", which is bound";
    }
  }
}

TEST(Bindings, EachIsNamedInTheDocumentation) {
  std::ifstream file(APLIB_TEST_DOCS "/privatization.md");
  ASSERT_TRUE(file) << "docs/privatization.md is missing";
  std::stringstream text;
  text << file.rdbuf();
  const std::string page = text.str();
  // Names stand in backquotes, several in one pair: `rand srand random`.
  std::set<std::string> documented;
  const std::regex quoted("`([^`]*)`");
  for (std::sregex_iterator match(page.begin(), page.end(), quoted), end; match != end; ++match) {
    std::istringstream words((*match)[1].str());
    for (std::string word; words >> word;) documented.insert(word);
  }
  for (const libc::Binding& each : libc::all_bindings())
    EXPECT_TRUE(documented.contains(std::string(each.name)))
        << each.name << ": say in docs/privatization.md what it does in an instance";
}

}  // namespace
}  // namespace aplib::loader
