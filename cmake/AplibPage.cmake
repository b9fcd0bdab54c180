# SPDX-License-Identifier: MIT
# cmake -D from=FILE -D to=FILE -P AplibPage.cmake: the page as a constant of the program, so that it needs no file.
file(READ ${from} text)
file(WRITE ${to} "namespace aplib::launch::web {\nextern const char page_text[];\n"
  "const char page_text[] = R\"APLIB(${text})APLIB\";\n}  // namespace aplib::launch::web\n")
