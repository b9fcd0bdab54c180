# SPDX-License-Identifier: MIT
# Every library we use, all from the distribution. scripts/setup installs them.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(Boost 1.74 REQUIRED COMPONENTS context)
find_package(OpenSSL 3.0 REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)  # the distribution's build, which uses the fmt above
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(libffi REQUIRED IMPORTED_TARGET libffi)
find_package(PNG REQUIRED)
pkg_check_modules(libagg REQUIRED IMPORTED_TARGET libagg)
find_package(CLI11 REQUIRED)
find_package(tomlplusplus REQUIRED)
# src/calls reads debug information with this library, which it loads when it is first needed.
include(CheckIncludeFileCXX)
check_include_file_cxx(elfutils/libdw.h APLIB_HAS_LIBDW)
if(NOT APLIB_HAS_LIBDW)
  message(STATUS "Functions' types will not be found in debug information: elfutils/libdw.h is missing (libdw-dev)")
endif()
if(APLIB_DEVELOPER)
  find_package(GTest REQUIRED)
  pkg_check_modules(pugixml REQUIRED IMPORTED_TARGET pugixml)  # apbench farm
endif()
