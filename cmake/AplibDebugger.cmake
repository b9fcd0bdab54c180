# SPDX-License-Identifier: MIT
# The gdb commands, beside libaplib.so under the name by which gdb loads them along with it: <library file>-gdb.py
# (docs/debugging.md).
set(aplib_gdb_file libaplib.so.${PROJECT_VERSION}-gdb.py)
configure_file(${PROJECT_SOURCE_DIR}/src/kernel/aplib_gdb.py ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/${aplib_gdb_file}
  COPYONLY)
install(FILES ${PROJECT_SOURCE_DIR}/src/kernel/aplib_gdb.py DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME ${aplib_gdb_file}
  COMPONENT aplib_development)
