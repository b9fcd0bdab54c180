// SPDX-License-Identifier: MIT
// The table of functions against the library, and what the ABI fixes.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>

#include "machines.hpp"

extern "C" int header_gnu89();
extern "C" int header_c99();
extern "C" int header_c11();

namespace aplib {
namespace {

using namespace testing_support;
using Names = std::set<std::string>;

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  std::array<char, 4096> part{};
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), pipe.get())) text.append(part.data(), count);
  return text;
}

Names exported_by(const std::string& library) {
  Names names;
  std::istringstream symbols(output_of("nm -D --defined-only " + library));
  for (std::string address, kind, name; symbols >> address >> kind >> name;) names.insert(name);
  return names;
}

Names difference(const Names& all, const Names& without) {
  Names rest;
  std::ranges::set_difference(all, without, std::inserter(rest, rest.end()));
  return rest;
}

TEST(Abi, TheLibraryExportsTheTableAndNothingElse) {
  Names table;
  Names standard;
  std::ifstream file(MPI_NAMES);
  for (std::string line; std::getline(file, line);) {
    const std::string name = line.substr(0, line.find(' '));
    table.insert(name);
    // The standard's own, which are 662 and two of its errata, have the five functions that are deprecated, but none
    // that was removed.
    if (line == name || name.find("Attr_") != std::string::npos || name.find("Keyval_") != std::string::npos)
      standard.insert(name);
  }
  const auto doubles = [](const Names& names) {
    return std::ranges::count_if(names, [&](const std::string& name) {
      return name.ends_with("_c") && names.count(name.substr(0, name.size() - 2)) == 1;
    });
  };
  EXPECT_EQ(standard.size(), 2U * (662 + 2));
  EXPECT_EQ(doubles(standard), 2 * (159 + 2));

  const Names exported = exported_by(MPI_LIBRARY);
  EXPECT_EQ(difference(table, exported), Names{});
  // The rest is for libmpifort_abi and front ends.
  EXPECT_EQ(difference(exported, table),
            (Names{"aplib_mpi_call_errhandler_by", "aplib_mpi_call_op_by", "aplib_mpi_functions", "aplib_mpi_handle",
                   "aplib_mpi_number", "aplib_mpi_raise"}));
}

TEST(Abi, FortransLibraryExportsTheTableToo) {
  Names table;
  std::ifstream file(MPI_FORTRAN_NAMES);
  for (std::string line; std::getline(file, line);) table.insert(line);
  EXPECT_GT(table.size(), 2U * 400);
  EXPECT_TRUE(table.contains("mpi_send_"));
  const Names exported = exported_by(MPI_FORTRAN_LIBRARY);
  EXPECT_EQ(difference(table, exported), Names{});
  for (const std::string& name : difference(exported, table)) {
    // Callbacks, functions of the module mpi alone, and the common blocks.
    EXPECT_TRUE(name.ends_with("_fn_") || name.ends_with("_cptr_") || name.starts_with("aplib_mpi_") ||
                name == "mpi_f_sync_reg_" || name == "mpi_conversion_fn_null_")
        << name;
  }
}

TEST(Abi, MpiXIsPmpiXUnlessAToolDefinesIt) {
  const std::string symbols = output_of("nm -D --defined-only " MPI_LIBRARY);
  const auto line_of = [&](const std::string& name) {
    const std::size_t end = symbols.find(" " + name + "\n");
    return end == std::string::npos ? ""
                                    : symbols.substr(symbols.rfind('\n', end) + 1, end - symbols.rfind('\n', end) - 1);
  };
  EXPECT_EQ(line_of("MPI_Send").substr(0, 16), line_of("PMPI_Send").substr(0, 16));
  EXPECT_TRUE(line_of("MPI_Send").ends_with(" W")) << line_of("MPI_Send");
  EXPECT_TRUE(line_of("PMPI_Send").ends_with(" T")) << line_of("PMPI_Send");
}

TEST(Abi, ValuesAreTheStandards) {
  const auto value = [](auto handle) { return reinterpret_cast<std::uintptr_t>(handle); };
  EXPECT_EQ(value(MPI_OP_NULL), 0x20U);
  EXPECT_EQ(value(MPI_NO_OP), 0x3dU);
  EXPECT_EQ(value(MPI_COMM_WORLD), 0x101U);
  EXPECT_EQ(value(MPI_GROUP_EMPTY), 0x109U);
  EXPECT_EQ(value(MPI_REQUEST_NULL), 0x180U);
  EXPECT_EQ(value(MPI_DATATYPE_NULL), 0x200U);
  EXPECT_EQ(value(MPI_INT), 0x209U);
  EXPECT_EQ(value(MPI_LONG_DOUBLE_INT), 0x22dU);
  EXPECT_EQ(value(MPI_BYTE), 0x247U);
  EXPECT_EQ(value(MPI_COMPLEX32), 0x2ebU);
  EXPECT_EQ(value(MPI_LONG_LONG_INT), value(MPI_LONG_LONG));
  EXPECT_EQ(value(MPI_IN_PLACE), 1U);
  EXPECT_EQ(value(MPI_WEIGHTS_EMPTY), 11U);
  EXPECT_EQ(MPI_ERR_ABI, 62);
  EXPECT_EQ(MPI_T_ERR_PVAR_NO_ATOMIC, 1018);
  EXPECT_EQ(MPI_DISPLACEMENT_CURRENT, -1);
  // Where the size stands in the handle.
  EXPECT_EQ(1U << ((value(MPI_INT64_T) >> 3) & 7), 8U);
  EXPECT_EQ(1U << ((value(MPI_REAL2) >> 3) & 7), 2U);
}

TEST(Abi, VersionsAreToldAtAnyTimeOnAnyThread) {
  int version = 0;
  int subversion = -1;
  EXPECT_EQ(MPI_Abi_get_version(&version, &subversion), MPI_SUCCESS);
  EXPECT_EQ(version, 1);
  EXPECT_EQ(subversion, 0);
  EXPECT_EQ(MPI_Get_version(&version, &subversion), MPI_SUCCESS);
  EXPECT_EQ(version, 5);
  EXPECT_EQ(subversion, 0);
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  EXPECT_EQ(MPI_Get_library_version(text.data(), &length), MPI_SUCCESS);
  EXPECT_EQ(std::string(text.data()).size(), static_cast<std::size_t>(length));
  EXPECT_TRUE(std::string(text.data()).starts_with("APlib ")) << text.data();
  EXPECT_GT(MPI_Wtick(), 0);
  const double before = MPI_Wtime();
  EXPECT_LE(before, MPI_Wtime());
  EXPECT_EQ(MPI_Aint_diff(MPI_Aint_add(1000, 24), 1000), 24);
}

TEST(Abi, TheHeaderSuitsOldAndNewC) {
  run_well({{1, 1}, 1}, [] {
    EXPECT_EQ(header_gnu89(), 0);
    EXPECT_EQ(header_c99(), 0);
    EXPECT_EQ(header_c11(), 0);
  });
}

TEST(Abi, HandlesKeepTheirNumbers) {
  run_well({{2, 1}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    EXPECT_EQ(MPI_Comm_toint(MPI_COMM_WORLD), 0x101);
    EXPECT_EQ(MPI_Comm_fromint(0x101), MPI_COMM_WORLD);
    EXPECT_EQ(MPI_Request_fromint(0x180), MPI_REQUEST_NULL);
    std::array<MPI_Info, 100> infos{};
    std::set<int> numbers;
    for (MPI_Info& info : infos) {
      MPI_Info_create(&info);
      const int number = MPI_Info_toint(info);
      EXPECT_GE(number, 4096);
      EXPECT_EQ(MPI_Info_toint(info), number);
      EXPECT_EQ(MPI_Info_fromint(number), info);
      numbers.insert(number);
    }
    EXPECT_EQ(numbers.size(), infos.size());
    const int freed = MPI_Info_toint(infos[7]);
    MPI_Info_free(&infos[7]);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    EXPECT_EQ(MPI_Info_fromint(freed), nullptr);
    MPI_Info_create(&infos[7]);
    EXPECT_EQ(MPI_Info_toint(infos[7]), freed);  // numbers are used again
    for (MPI_Info& info : infos) MPI_Info_free(&info);
  });
}

TEST(Abi, WhatFortranToldIsKeptOnce) {
  run_well({{2, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Info info = MPI_INFO_ENV;
    EXPECT_EQ(MPI_Abi_get_fortran_info(&info), MPI_SUCCESS);
    EXPECT_EQ(info, MPI_INFO_NULL);
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_logical_size", "4");
    EXPECT_EQ(MPI_Abi_set_fortran_info(info), MPI_SUCCESS);
    EXPECT_EQ(MPI_Abi_set_fortran_info(info), MPI_ERR_ABI);
    MPI_Info_free(&info);
    EXPECT_EQ(MPI_Abi_get_fortran_info(&info), MPI_SUCCESS);
    int length = 0;
    int is_there = 0;
    MPI_Info_get_valuelen(info, "mpi_logical_size", &length, &is_there);
    EXPECT_EQ(is_there, 1);
    EXPECT_EQ(length, 1);
    MPI_Info_free(&info);

    std::int32_t is_true = 1;
    std::int32_t is_false = 0;
    int is_set = -1;
    EXPECT_EQ(MPI_Abi_get_fortran_booleans(4, &is_true, &is_false, &is_set), MPI_SUCCESS);
    EXPECT_EQ(is_set, 0);
    EXPECT_EQ(MPI_Abi_set_fortran_booleans(4, &is_true, &is_false), MPI_SUCCESS);
    EXPECT_EQ(MPI_Abi_set_fortran_booleans(4, &is_true, &is_false), MPI_ERR_ABI);
    EXPECT_EQ(MPI_Abi_set_fortran_booleans(5, &is_true, &is_false), MPI_ERR_ARG);
    is_true = is_false = 7;
    EXPECT_EQ(MPI_Abi_get_fortran_booleans(4, &is_true, &is_false, &is_set), MPI_SUCCESS);
    EXPECT_EQ(is_set, 1);
    EXPECT_EQ(is_true, 1);
    EXPECT_EQ(is_false, 0);
  });
}

}  // namespace
}  // namespace aplib
