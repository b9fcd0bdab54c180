# SPDX-License-Identifier: MIT
# Manual pages: help2man makes them of what the programs say of themselves (--help), so they are never out of date. A
# build without help2man has none.
find_program(HELP2MAN help2man)
mark_as_advanced(HELP2MAN)
if(NOT HELP2MAN OR APLIB_SANITIZE)
  return()
endif()

# aplib_manual(PAGE PROGRAM "what it does" [options of help2man...])
set(aplib_manual_dir ${PROJECT_BINARY_DIR}/share/man/man1)
file(MAKE_DIRECTORY ${aplib_manual_dir})
set(aplib_manual_pages "")
function(aplib_manual page program what)
  set(file ${aplib_manual_dir}/${page}.1)
  file(CONFIGURE OUTPUT ${page}.h2m CONTENT "[name]\n${page} \\- ${what}\n" @ONLY)
  add_custom_command(OUTPUT ${file}
    COMMAND ${HELP2MAN} --no-info --locale=C.UTF-8 --version-string=${PROJECT_VERSION} --source=APlib
      --manual=APlib --include=${PROJECT_SOURCE_DIR}/docs/manual.h2m --include=${CMAKE_CURRENT_BINARY_DIR}/${page}.h2m
      --output=${file} ${ARGN} $<TARGET_FILE:${program}>
    DEPENDS ${program} ${PROJECT_SOURCE_DIR}/docs/manual.h2m COMMENT "Writing the manual page ${page}(1)" VERBATIM)
  set(aplib_manual_pages ${aplib_manual_pages} ${file} PARENT_SCOPE)
endfunction()
aplib_manual(aprun aprun "run a program on the cells of a machine, on one host or many")
aplib_manual(apctl apctl "look into running machines, and steer them")
aplib_manual(apctl-net apctl "measure the network between all hosts of a cluster" "--help-option=net --help")
aplib_manual(apctl-web apctl "serve a page of the machines and farms that run" "--help-option=web --help")
aplib_manual(apcc apcc "compile programs for the cells of a machine" --help-option=--aplib-help)
aplib_manual(apgen apgen "write the main part of a server of GridRPC")
add_custom_target(manual ALL DEPENDS ${aplib_manual_pages})
install(FILES ${aplib_manual_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT aplib_runtime)
