# SPDX-License-Identifier: MIT
# How our targets are compiled.
find_program(APLIB_CCACHE ccache)
if(APLIB_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without the first it does not keep what was compiled with precompiled headers. What the second names changes no
  # object.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
    CCACHE_IGNOREOPTIONS=--param=ggc-* ${APLIB_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${APLIB_CCACHE})
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR
    "APlib needs gcc 12 or newer (found ${CMAKE_CXX_COMPILER_VERSION}): set CXX=g++-12, or use clang 15 or newer")
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15)
  message(FATAL_ERROR
    "APlib needs clang 15 or newer (found ${CMAKE_CXX_COMPILER_VERSION}): set CXX=clang++-15, or use gcc 12 or newer")
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # It searches its memory for garbage in a tenth of its time. Without, it needs a quarter more memory for merged files.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=2000000>)
endif()

set(aplib_sanitizer_flags "")
if(APLIB_SANITIZE STREQUAL "address")
  # What is left out AddressSanitizer sees, too, and it takes a quarter of the compiler's time.
  set(aplib_sanitizer_flags -fsanitize=address,undefined -fno-sanitize=null,object-size -fno-sanitize-recover=undefined
    -fno-omit-frame-pointer)
elseif(APLIB_SANITIZE STREQUAL "thread")
  # gcc warns that it cannot see fences; ours are noted where they stand.
  set(aplib_sanitizer_flags -fsanitize=thread -fno-omit-frame-pointer)
elseif(APLIB_SANITIZE)
  message(FATAL_ERROR "APLIB_SANITIZE=${APLIB_SANITIZE}: use address or thread")
endif()

# Linking is a sixth of the work of a build with a sanitizer, unless mold does it.
set(aplib_sanitizer_link_flags ${aplib_sanitizer_flags})
find_program(APLIB_MOLD mold)
if(aplib_sanitizer_flags AND APLIB_MOLD)
  list(APPEND aplib_sanitizer_link_flags -fuse-ld=mold)
endif()

# Code of tests that does not itself run long is compiled without optimisation, with AddressSanitizer without UBSan:
# that takes half of the time. Lines of tests in a sanitizer's reports would cost a sixth.
set(aplib_plain_test_options "")
if(APLIB_SANITIZE STREQUAL "address")
  set(aplib_plain_test_options -fno-sanitize=undefined -g0)
elseif(APLIB_SANITIZE STREQUAL "thread")
  set(aplib_plain_test_options -O0 -g0)
elseif(APLIB_DEVELOPER AND CMAKE_BUILD_TYPE STREQUAL "Release")
  set(aplib_plain_test_options -O0)
endif()

# aplib_compile_fast(files...): command lines. CLI11's templates take 10 s a file, twice that when they are
# instrumented, to be optimised for nothing.
function(aplib_compile_fast)
  set(options -O0)
  if(APLIB_SANITIZE STREQUAL "address")
    list(APPEND options -fno-sanitize=undefined)
  endif()
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${options}" SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# aplib_compile_lightly(target): programs that wait for others, of code that nothing waits for. They compile in three
# quarters of the time. scripts/test leaves UBSan's part of them, a third of the time there, to scripts/test --all.
# gcc from 13 on takes no headers that were precompiled with another level.
function(aplib_compile_lightly target)
  if(NOT CMAKE_CXX_FLAGS_RELEASE MATCHES "-Og"  # the preset demo has less
     AND NOT (CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13))
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(APLIB_SANITIZE STREQUAL "address" AND NOT APLIB_THOROUGH)
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
  endif()
endfunction()

# gcc 12 warns wrongly of overlong copies in std::string (GCC bug 105651), and shows that for precompiled headers.
set(aplib_precompiled_options "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(aplib_precompiled_options -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
endif()

# aplib_precompile(target headers...): the standard library and these are read once for all its files.
function(aplib_precompile target)
  set(headers algorithm array atomic chrono condition_variable cstring deque exception functional map memory mutex
    optional set
    span sstream string string_view system_error thread unordered_map utility variant vector ${ARGN})
  list(TRANSFORM headers REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
  target_precompile_headers(${target} PRIVATE ${headers})
  target_compile_options(${target} PRIVATE ${aplib_precompiled_options})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)  # ccache asks for it
endfunction()

# aplib_merge(target [EXCEPT regex]): with APLIB_MERGE up to 16 source files of a folder are compiled as one. What they
# include and instantiate is then compiled once: a cold build takes a third of the time. EXCEPT: files whose own names
# collide with those of others in their folder.
function(aplib_merge target)
  cmake_parse_arguments(PARSE_ARGV 1 merge "" EXCEPT "")
  if(NOT APLIB_MERGE)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  get_target_property(where ${target} SOURCE_DIR)
  foreach(source IN LISTS sources)
    if(source MATCHES "\\.cpp$" AND NOT (merge_EXCEPT AND source MATCHES "${merge_EXCEPT}"))
      get_filename_component(folder ${source} DIRECTORY)
      get_filename_component(folder "${folder}" ABSOLUTE BASE_DIR ${where})
      file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
      string(MAKE_C_IDENTIFIER "${folder}" folder)
      math(EXPR number "0${files_of_${folder}} / 16")
      math(EXPR files_of_${folder} "0${files_of_${folder}} + 1")
      set_property(SOURCE ${source} TARGET_DIRECTORY ${target} PROPERTY UNITY_GROUP "${folder}_${number}")
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # A type in an unnamed namespace is as good as before: all of the group is one file's own.
  # gcc 12 optimises merged files to copies of strings that cannot be, and warns of them (GCC bug 105651), as of a
  # delete that it inlines beside a new that it does not.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage
    -Wno-stringop-overflow -Wno-mismatched-new-delete>)
endfunction()

# aplib_precompile_sanitized(target): fmt and the standard library, which all of src includes, in sanitizer and merged
# builds alone. The presets dev and clang still notice when a file does not include what it uses. All such targets share
# what aplib_headers has compiled, which takes 4 s, but not OWN, one with other options. gcc has no use for a library's
# headers in programs, which share those of aplib_program_headers.
function(aplib_precompile_sanitized target)
  cmake_parse_arguments(PARSE_ARGV 1 precompile "OWN" "" "")
  if(NOT APLIB_SANITIZE AND NOT APLIB_MERGE)
    return()
  endif()
  if(precompile_OWN)
    aplib_precompile(${target} fmt/format.h)
    return()
  endif()
  get_target_property(type ${target} TYPE)
  set(headers aplib_headers)
  if(type STREQUAL "EXECUTABLE")
    set(headers aplib_program_headers)
  endif()
  if(NOT TARGET ${headers})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/headers.cpp CONTENT "int main() {}\n")
    if(type STREQUAL "EXECUTABLE")
      add_executable(${headers} ${PROJECT_BINARY_DIR}/headers.cpp)
    else()
      add_library(${headers} OBJECT ${PROJECT_BINARY_DIR}/headers.cpp)
    endif()
    target_link_libraries(${headers} PRIVATE fmt::fmt)
    aplib_compile(${headers})
    aplib_precompile(${headers} fmt/format.h)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
  target_compile_options(${target} PRIVATE ${aplib_precompiled_options}
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endfunction()

# aplib_runs_beside_library(program [folder]): it finds libaplib.so relative to itself, in the build tree as where it is
# installed, in `folder` (that of programs). Were the two different, CMake would end the build tree's RUNPATH in an
# empty element (room for the other): the current folder, where anybody may put libraries.
function(aplib_runs_beside_library program)
  set(folder ${ARGN} ${CMAKE_INSTALL_BINDIR})
  list(GET folder 0 folder)
  file(RELATIVE_PATH library /${folder} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/${library}" BUILD_WITH_INSTALL_RPATH ON)
endfunction()

# aplib_compile(target): our warnings (in developer builds as errors) and the chosen sanitizer.
function(aplib_compile target)
  if(APLIB_DEVELOPER)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Wundef -Werror)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
      # gcc 12 takes assignments and sums of std::string for overlapping copies (GCC bug 105329).
      target_compile_options(${target} PRIVATE -Wno-restrict)
    endif()
    if(APLIB_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # gcc 12 sees uninitialised members in the library's <regex> when it is instrumented (GCC bug 105562).
      target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
    endif()
    if(APLIB_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE -Wno-tsan)
    endif()
  endif()
  if(aplib_sanitizer_flags)
    target_compile_options(${target} PRIVATE ${aplib_sanitizer_flags})
    target_link_options(${target} PRIVATE ${aplib_sanitizer_link_flags})
  endif()
endfunction()
