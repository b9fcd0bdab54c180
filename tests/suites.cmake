# SPDX-License-Identifier: MIT
# Asks a GoogleTest program for its suites and writes a ctest test for each: cmake -D program=FILE -D name=NAME
# -D "properties=NAME VALUE ..." -D file=FILE -P suites.cmake
execute_process(COMMAND ${program} --gtest_list_tests OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "\n[A-Za-z0-9_/]+\\.[ \n]" suites "\n${listed}")
set(text "")
foreach(suite IN LISTS suites)
  string(REGEX MATCH "[A-Za-z0-9_/]+" suite "${suite}")
  string(APPEND text "add_test([=[${name}/${suite}]=] [=[${program}]=] [=[--gtest_filter=${suite}.*]=])\n"
    "set_tests_properties([=[${name}/${suite}]=] PROPERTIES ${properties})\n")
endforeach()
if(text STREQUAL "")
  message(FATAL_ERROR "${program} has no tests")
endif()
file(WRITE ${file} "${text}")
