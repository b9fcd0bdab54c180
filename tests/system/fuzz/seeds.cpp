// SPDX-License-Identifier: MIT
// "--seeds FOLDER": writes the sound inputs as files, for libFuzzer.
#include <filesystem>
#include <fstream>

#include "fuzzer.hpp"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc < 3 || std::string_view((*argv)[1]) != "--seeds") return 0;
  const std::filesystem::path folder = (*argv)[2];
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const aplib::fuzz::Input& input : aplib::fuzz::seeds()) {
    std::ofstream file(folder / ("seed-" + std::to_string(number++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
  }
  std::exit(0);
}
