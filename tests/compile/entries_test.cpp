// SPDX-License-Identifier: MIT
// The entries of a program, and how the loader finds them.
#include "tree.hpp"

namespace aplib::compile::test {
namespace {

class Entries : public Tree {
 protected:
  void SetUp() override {
    Tree::SetUp();
    write("main.c", "#include <stdio.h>\nint main(void) { puts(\"main\"); return 0; }\n");
    write("cell.c", "#include <stdio.h>\nvoid cell_main(void) { puts(\"cell\"); }\n");
    write("host.c", "#include <stdio.h>\nvoid host_main(void) { puts(\"host\"); }\n");
    write("none.c", "int number = 1;\n");
  }
};

TEST_F(Entries, Main) {
  silent("apcc main.c -o a");
  EXPECT_EQ(output("./a"), "main\n");
}

TEST_F(Entries, CellMainAlone) {
  silent("apcc cell.c -o a");
  EXPECT_EQ(output("./a"), "cell\n");
}

TEST_F(Entries, HostAndCell) {
  silent("apcc cell.c host.c -o a");
  EXPECT_EQ(output("./a"), "host\ncell\n");
}

TEST_F(Entries, HiddenOnes) {
  silent("apcc -fvisibility=hidden cell.c -o a && apcc -fvisibility=hidden -O2 -flto main.c -o b");
  EXPECT_EQ(output("./a && ./b"), "cell\nmain\n");
}

TEST_F(Entries, InStaticLibraries) {
  silent("apcc -c main.c cell.c host.c && ar rc liba.a main.o && ar rc libb.a host.o cell.o");
  silent("apcc none.c liba.a -o a && apcc none.c -L. -lb -o b");
  EXPECT_EQ(output("./a && ./b"), "main\nhost\ncell\n");
}

TEST_F(Entries, UnusedSectionsRemovedAndSymbolsStripped) {
  silent("apcc -ffunction-sections -fdata-sections -Wl,--gc-sections -s main.c -o a");
  EXPECT_EQ(output("./a"), "main\n");
  silent("apcc -g main.c -o b && strip b");
  EXPECT_EQ(output("./b"), "main\n");
}

TEST_F(Entries, VersionScriptThatHidesAll) {
  write("all.map", "{ local: *; };\n");
  silent("apcc -Wl,--version-script=all.map -Wl,--gc-sections main.c -o a");
  EXPECT_EQ(output("nm -D --defined-only a"), "");
  EXPECT_EQ(output("./a"), "main\n");  // by the note
}

TEST_F(Entries, NoneIsLinkedForEntriesByName) {
  silent("apcc none.c -o a");
  EXPECT_EQ(shell("./a").status, 98);
}

TEST_F(Entries, LibraryForProgramsWithoutAprunIsLeftOut) {
  silent(
      "apcc -c main.c && ar rc libaplib_cellos_main.a main.o && apcc cell.c -L. -laplib_cellos_main -o a && apcc "
      "cell.c $PWD/libaplib_cellos_main.a -o b");
  EXPECT_EQ(output("./a && ./b"), "cell\ncell\n");
}

}  // namespace
}  // namespace aplib::compile::test
