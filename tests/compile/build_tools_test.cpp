// SPDX-License-Identifier: MIT
// make, CMake and configure scripts, which are told only that the compiler is apcc.
#include <filesystem>

#include "tree.hpp"

namespace aplib::compile::test {
namespace {

namespace fs = std::filesystem;

class BuildTools : public Tree {
 protected:
  void project(const std::string& name) const {
    fs::copy(std::string(PROJECTS) + "/" + name, work_, fs::copy_options::recursive);
  }
};

TEST_F(BuildTools, Make) {
  if (!has("make")) GTEST_SKIP() << "needs the tool make";
  project("make");
  output("make CC=apcc CFLAGS='-O2 -fPIE' LDFLAGS=-pie");
  EXPECT_EQ(output("./count 2 3"), "5\n");
  EXPECT_EQ(output("make CC=apcc CFLAGS='-O2 -fPIE' LDFLAGS=-pie -q; echo $?"),
            "0\n");  // nothing to do the second time
}

TEST_F(BuildTools, CMake) {
  project("cmake");
  const std::string generator = has("ninja") ? "-G Ninja " : "";
  const std::string log =
      output(CMAKE_PROGRAM " " + generator +
             "-S . -B build -DCMAKE_C_COMPILER=apcc -DCMAKE_CXX_COMPILER=apc++ -DCMAKE_BUILD_TYPE=Release");
  EXPECT_NE(log.find("The C compiler identification is GNU"), std::string::npos) << log;
  EXPECT_NE(log.find("HAVE_STRDUP - Success"), std::string::npos) << log;
  EXPECT_NE(log.find("HAVE_NO_SUCH - Failed"), std::string::npos) << log;
  EXPECT_NE(log.find("RUN_RESULT=4"), std::string::npos) << log;
  output(CMAKE_PROGRAM " --build build");
  EXPECT_EQ(output("build/both"), "library 1, archive 2, program 3\n");
  EXPECT_EQ(output("readelf -lW build/libshared.so").find("INTERP"), std::string::npos);
  EXPECT_NE(output("readelf -lW build/both").find("aplib-start]"), std::string::npos);
  EXPECT_EQ(output(CMAKE_PROGRAM " --build build && " CMAKE_PROGRAM " --build build").find("Linking"),
            std::string::npos);
}

TEST_F(BuildTools, ConfigureScript) {
  project("configure");
  output("CC=apcc sh ./configure");
  EXPECT_EQ(read("config.h"),
            "#define COMPILER_WORKS 1\n#define CROSS_COMPILING 0\n#define HAVE_STDLIB_H 1\n#define HAVE_NO_SUCH_H "
            "0\n#define HAVE_STRDUP 1\n"
            "#define HAVE_NO_SUCH_FUNCTION 0\n#define HAVE_LIBM 1\n#define HAVE_LIBNOSUCH 0\n#define SIZEOF_LONG "
            "8\n#define HAVE_WORKING_MALLOC 1\n"
            "#define HAVE_FLAG_WALL 1\n#define HAVE_FLAG_NOSUCH 0\n#define HAVE_STATIC 0\n");
}

TEST_F(BuildTools, Autoconf) {
  if (!has("autoconf")) GTEST_SKIP() << "needs the tool autoconf";
  project("autoconf");
  output("autoconf && CC=apcc CXX=apc++ ./configure");
  const std::string log = read("result");
  EXPECT_EQ(log,
            "cross_compiling=no\nGCC=yes\nac_cv_func_strdup=yes\nac_cv_func_no_such_function=no\nac_cv_sizeof_long="
            "8\nac_cv_lib_m_cos=yes\nrun=yes\n"
            "ac_cv_c_bigendian=no\nEXEEXT=\n");
}

}  // namespace
}  // namespace aplib::compile::test
