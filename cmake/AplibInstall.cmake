# SPDX-License-Identifier: MIT
# What `cmake --install` puts where. Users find it with find_package(aplib) (targets aplib::aplib,
# aplib::cellos_main, aplib::comm_module) or with pkg-config (aplib, aplib-cellos). The installed tree can be moved
# as a whole: nothing in it holds an absolute path.
include(CMakePackageConfigHelpers)

set(aplib_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/aplib)

install(TARGETS aplib EXPORT aplib-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT aplib_runtime NAMELINK_COMPONENT aplib_development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/aplib DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT aplib_development FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")

# Remote calls: a library that needs nothing of the other, and what writes its servers.
if(TARGET aplib_gridrpc)
  aplib_runs_beside_library(apgen)
  install(TARGETS aplib_gridrpc EXPORT aplib-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT aplib_runtime NAMELINK_COMPONENT aplib_development)
  install(TARGETS apgen RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT aplib_development)
endif()

# What a plug-in is compiled with: headers alone, since it links nothing of APlib.
add_library(aplib_comm_module INTERFACE)
target_include_directories(aplib_comm_module INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(aplib_comm_module PROPERTIES EXPORT_NAME comm_module)
install(TARGETS aplib_comm_module EXPORT aplib-targets COMPONENT aplib_development)

# The main() of historical programs, which have host_main and cell_main instead.
if(TARGET aplib_cellos_main)
  set_target_properties(aplib_cellos_main PROPERTIES EXPORT_NAME cellos_main)
  # Old sources include their headers by the historical names.
  target_include_directories(aplib_cellos_main INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include/aplib/compat>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/aplib/compat>)
  install(TARGETS aplib_cellos_main EXPORT aplib-targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT aplib_development)
endif()

if(TARGET apbench)
  aplib_runs_beside_library(apbench)
  install(TARGETS apbench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT aplib_runtime)
endif()

# For systemd of users: docs/pool.md.
install(FILES ${PROJECT_SOURCE_DIR}/cmake/systemd/apkeeper.socket ${PROJECT_SOURCE_DIR}/cmake/systemd/apkeeper.service
  DESTINATION lib/systemd/user COMPONENT aplib_runtime)

install(EXPORT aplib-targets NAMESPACE aplib:: DESTINATION ${aplib_package_dir} COMPONENT aplib_development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/aplib-config.cmake.in
  ${PROJECT_BINARY_DIR}/aplib-config.cmake INSTALL_DESTINATION ${aplib_package_dir})
# Before 1.0 a minor version may change everything.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/aplib-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/aplib-config.cmake ${PROJECT_BINARY_DIR}/aplib-config-version.cmake
  DESTINATION ${aplib_package_dir} COMPONENT aplib_development)

# pkg-config: paths relative to the .pc file. An absolute CMAKE_INSTALL_<DIR> (some distributions) stays absolute.
set(aplib_pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(aplib_pc_prefix ${CMAKE_INSTALL_PREFIX})
  set(aplib_pc_libdir ${CMAKE_INSTALL_LIBDIR})
else()
  file(RELATIVE_PATH aplib_pc_to_prefix /${aplib_pc_dir} /)
  string(REGEX REPLACE "/$" "" aplib_pc_to_prefix ${aplib_pc_to_prefix})
  set(aplib_pc_prefix "\${pcfiledir}/${aplib_pc_to_prefix}")
  set(aplib_pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
if(IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
  set(aplib_pc_includedir ${CMAKE_INSTALL_INCLUDEDIR})
else()
  set(aplib_pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()

function(aplib_install_pc name description requires libs cflags)
  set(aplib_pc_name ${name})
  set(aplib_pc_description ${description})
  set(aplib_pc_requires ${requires})
  set(aplib_pc_libs ${libs})
  set(aplib_pc_cflags ${cflags})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/aplib.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${aplib_pc_dir} COMPONENT aplib_development)
endfunction()

aplib_install_pc(aplib "Message passing between cells and tasks of a virtual AP1000" "" "-laplib" "")
if(TARGET aplib_cellos_main)
  # -fexceptions: ends of tasks pass through frames of C.
  aplib_install_pc(aplib-cellos "main() for CellOS programs (host_main and cell_main) on APlib"
    "aplib = ${PROJECT_VERSION}" "-laplib_cellos_main" "-I\${includedir}/aplib/compat -fexceptions")
endif()
if(TARGET aplib_gridrpc)
  aplib_install_pc(aplib-gridrpc "Remote calls (GridRPC) on APlib" "" "-laplib_gridrpc" "")
endif()
# Flags for apcc, which makes the program; mpicc has them by itself.
aplib_install_pc(aplib-mpi "MPI (standard ABI) on APlib" "" "-lmpi_abi" "-I\${prefix}/lib/aplib/mpi/include")
