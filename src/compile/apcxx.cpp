// SPDX-License-Identifier: MIT
#include "compile/wrapper.hpp"

int main(int argc, char** argv) { return aplib::compile::run_wrapper(aplib::compile::Language::cxx, argc, argv); }
