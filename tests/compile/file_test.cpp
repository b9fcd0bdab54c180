// SPDX-License-Identifier: MIT
// The file that a link makes.
#include <cctype>
#include <sstream>

#include "tree.hpp"

namespace aplib::compile::test {
namespace {

int count(const std::string& text, const std::string& piece) {
  int times = 0;
  for (std::size_t at = text.find(piece); at != text.npos; at = text.find(piece, at + 1)) ++times;
  return times;
}

class File : public Tree {
 protected:
  void SetUp() override {
    Tree::SetUp();
    // Data of libc, data of this file and of another, functions by address, a table of constructors.
    write("a.c", R"(#include <stdio.h>
extern int other, others[10];
extern int (*table[2])(void);
int own, many[10];
int first(void) { return ++own; }
int second(void) { return many[own & 7] += other++; }
int main(void) { int a = table[0](), b = table[1](); fprintf(stderr, "%d %d %d\n", a, b, others[own]); return 0; })");
    write("b.c",
          "int other = 3, others[10] = {0, 7};\nint first(void), second(void);\nint (*table[2])(void) = {first, "
          "second};\n");
  }
};

TEST_F(File, IsASharedObjectThatStartsWithTheStub) {
  silent("apcc -O2 a.c b.c -o a");
  const std::string file = output("readelf -hldW a");
  EXPECT_NE(file.find("Type:                              DYN"), std::string::npos) << file;
  EXPECT_NE(file.find("[Requesting program interpreter: " + tree_ + "/lib/aplib/aplib-start]"), std::string::npos)
      << file;
  EXPECT_EQ(file.find("PIE\n"), std::string::npos) << file;
  EXPECT_EQ(file.find("TEXTREL"), std::string::npos) << file;
  EXPECT_EQ(file.find("RUNPATH"), std::string::npos) << file;
  EXPECT_EQ(count(file, "(NEEDED)"), 1) << file;
  EXPECT_NE(file.find("[libc.so.6]"), std::string::npos) << file;
  EXPECT_EQ(count(file, "\n  LOAD "), 2) << "each costs every instance an entry of the kernel's map\n" << file;
  EXPECT_EQ(output("./a"), "1 3 7\n");
}

TEST_F(File, OwnDataNeedsNoSymbolAtRunTime) {
  for (const char* options : {"-O2", "-O0", "-O2 -fPIC"}) {
    silent(std::string("apcc ") + options + " a.c b.c -o a");
    const std::string relocations = output("readelf -rW a");
    EXPECT_EQ(relocations.find("R_X86_64_COPY"), std::string::npos) << relocations;
    for (const char* name : {" other ", " others ", " table ", " own ", " many ", " first ", " second ", " main "}) {
      EXPECT_EQ(relocations.find(name), std::string::npos) << options << ": " << name << "\n" << relocations;
    }
  }
}

TEST_F(File, InnerLoopsReachTheirFilesGlobalsDirectly) {
  write("loop.c",
        "long x, y, z[8];\nvoid call(void);\nvoid loop(int n) { while (n--) { x += y; z[n & 7] ^= x; call(); } }\n");
  silent("apcc -O2 -S loop.c -o loop.s");
  EXPECT_EQ(read("loop.s").find("GOTPCREL"), std::string::npos) << read("loop.s");
}

TEST_F(File, LibraryOfAplibIsNeededOnlyWhereUsed) {
  write("fake.c", "int aplib_probe(void) { return 7; }\n");
  silent("gcc -shared -fPIC fake.c -Wl,-soname,libaplib.so.0 -o '" + tree_ + "/lib/libaplib.so'");
  write("uses.c", "int aplib_probe(void);\nint main(void) { return aplib_probe(); }\n");
  silent("apcc a.c b.c -o a && apcc uses.c -o uses && apcc -shared -fPIC uses.c -o libuses.so");
  EXPECT_EQ(output("readelf -dW a").find("libaplib"), std::string::npos);
  EXPECT_NE(output("readelf -dW uses").find("[libaplib.so.0]"), std::string::npos);
  EXPECT_NE(output("readelf -dW libuses.so").find("[libaplib.so.0]"), std::string::npos);
  EXPECT_EQ(output("readelf -dW uses").find("RUNPATH"), std::string::npos);
}

TEST_F(File, UsersLibrariesStayOrdinary) {
  write("lib.c", "int value = 4;\nint get(void) { return value; }\n");
  write("use.c",
        "#include <stdio.h>\nextern int value;\nint get(void);\nint main(void) { value = 5; printf(\"%d\\n\", get()); "
        "return 0; }\n");
  silent(
      "apcc -fPIC -c lib.c && apcc -shared lib.o -o libmine.so && apcc use.c -L. -lmine '-Wl,-rpath,$ORIGIN' -o use");
  const std::string library = output("readelf -lW libmine.so");
  EXPECT_EQ(library.find("INTERP"), std::string::npos) << library;
  EXPECT_EQ(output("nm -D libmine.so").find("aplib"), std::string::npos);
  EXPECT_EQ(output("./use"), "5\n");  // one variable, though two files name it
}

TEST_F(File, ThreadLocalsCanBeMadePrivate) {
  write("tls.c",
        "__thread int a; static __thread int b; extern __thread int c;\nint main(void) { return a++ + b++ + c++; }\n");
  write("tls2.c", "__thread int c;\n");
  silent("apcc -O2 -fPIE -ftls-model=local-exec tls.c tls2.c -o a && ./a");
  const std::string file = output("readelf -rdW a");
  EXPECT_EQ(file.find("_TPOFF64"), std::string::npos) << file;
  EXPECT_EQ(file.find("STATIC_TLS"), std::string::npos) << file;
}

TEST_F(File, StubNeedsNothing) {
  const std::string stub = output("readelf -hlrdW '" + tree_ + "/lib/aplib/aplib-start'");
  EXPECT_NE(stub.find("There are no relocations in this file."), std::string::npos) << stub;
  EXPECT_EQ(stub.find("INTERP"), std::string::npos) << stub;
  EXPECT_EQ(stub.find("(NEEDED)"), std::string::npos) << stub;
}

}  // namespace
}  // namespace aplib::compile::test
