// SPDX-License-Identifier: MIT
// Inputs at random, from a seed, where there is no libFuzzer: sound ones and those of the given folders, changed in
// some places. The same seed gives the same inputs on every machine. An input at which the program ends is left in
// the current folder, as crash-SEED-RUN.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>

#include "fuzzer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" [[gnu::weak]] std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max,
                                                             unsigned seed);
extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(void (*callback)());

namespace {

using aplib::fuzz::Input;

struct Settings {
  std::uint64_t runs = 100'000;
  std::uint64_t seed = 1;
  std::size_t max_len = 4096;
};

/// Changes inputs.
class Mutator {
 public:
  Mutator(std::uint64_t seed, std::size_t size_max) : size_max_(size_max), random_(seed) {}

  Input next(const std::vector<Input>& pool) {
    Input input = pool[below(pool.size())];
    if (LLVMFuzzerCustomMutator != nullptr && below(2) == 0) {
      const std::size_t size = std::min(input.size(), size_max_);
      input.resize(size_max_);
      input.resize(LLVMFuzzerCustomMutator(reinterpret_cast<std::uint8_t*>(input.data()), size, size_max_,
                                           static_cast<unsigned>(random_())));
      return input;
    }
    for (std::uint64_t changes = 1 + below(4); changes != 0; --changes) change(input, pool[below(pool.size())]);
    if (input.size() > size_max_) input.resize(size_max_);
    return input;
  }

  void change(Input& input, const Input& other) {
    switch (below(8)) {
      case 0:
        if (!input.empty()) input[below(input.size())] ^= std::byte(1U << below(8));
        break;
      case 1:
        if (!input.empty()) input[below(input.size())] = std::byte(below(256));
        break;
      case 2:
      case 3:
        put_number(input);
        break;
      case 4: {  // a piece is repeated somewhere
        const auto piece = piece_of(input);
        insert(input, piece);
        break;
      }
      case 5: {
        if (input.empty()) break;
        const std::size_t at = below(input.size());
        const std::size_t bytes = 1 + below(std::min<std::size_t>(input.size() - at, 64));
        input.erase(input.begin() + static_cast<std::ptrdiff_t>(at),
                    input.begin() + static_cast<std::ptrdiff_t>(at + bytes));
        break;
      }
      case 6:
        insert(input, piece_of(other));
        break;
      default:
        if (below(4) == 0) input.resize(below(input.size() + 1));
    }
  }

 private:
  /// std::uniform_int_distribution is another on every library.
  std::uint64_t below(std::uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void put_number(Input& input) {
    constexpr std::array<std::uint64_t, 16> edges{
        0,      1,          2,           0x7f,       0x80,       0xff,       0x100,       0x7fff,
        0xffff, 0x7fffffff, 1ULL << 31U, 0xffffffff, 1ULL << 32, 1ULL << 40, 1ULL << 63U, ~std::uint64_t{0}};
    const std::uint64_t value = edges[below(edges.size())] + below(3) - 1;
    const std::size_t width = std::size_t{1} << below(4);
    if (input.size() < width) return;
    std::memcpy(input.data() + below(input.size() - width + 1), &value, width);
  }
  Input piece_of(const Input& from) {
    if (from.empty()) return {};
    const std::size_t at = below(from.size());
    const std::size_t bytes = 1 + below(std::min<std::size_t>(from.size() - at, 100));
    return {from.begin() + static_cast<std::ptrdiff_t>(at), from.begin() + static_cast<std::ptrdiff_t>(at + bytes)};
  }
  void insert(Input& into, const Input& piece) {
    into.insert(into.begin() + static_cast<std::ptrdiff_t>(below(into.size() + 1)), piece.begin(), piece.end());
  }

  std::size_t size_max_;
  std::mt19937_64 random_;
};

Settings settings;
Input current;
std::uint64_t run = 0;

void leave_input() {
  const std::string name = "crash-" + std::to_string(settings.seed) + "-" + std::to_string(run);
  std::ofstream(name, std::ios::binary)
      .write(reinterpret_cast<const char*>(current.data()), static_cast<std::streamsize>(current.size()));
  std::fprintf(stderr, "seed %llu, run %llu: the input is in %s\n", static_cast<unsigned long long>(settings.seed),
               static_cast<unsigned long long>(run), name.c_str());
}

void try_one(const Input& input) {
  current = input;
  // A copy of exactly this size, so that a sanitizer sees a read beyond it.
  const std::vector<std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(input.data()),
                                        reinterpret_cast<const std::uint8_t*>(input.data()) + input.size());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

std::vector<Input> files_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  if (!std::filesystem::is_directory(folder)) {
    paths.push_back(folder);
  } else {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<Input> inputs;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    inputs.push_back(aplib::fuzz::input_of(text));
  }
  return inputs;
}

/// False: a word that we do not know.
bool read_word(std::string_view word, std::vector<Input>& pool) {
  const std::size_t equals = word.find('=');
  if (!word.starts_with('-')) {
    for (Input& input : files_of(word)) pool.push_back(std::move(input));
    return true;
  }
  if (equals == word.npos) return false;
  const std::uint64_t value = std::strtoull(std::string(word.substr(equals + 1)).c_str(), nullptr, 10);
  const std::string_view name = word.substr(0, equals);
  if (name == "-runs") settings.runs = value;
  if (name == "-seed") settings.seed = value;
  if (name == "-max_len") settings.max_len = value;
  return name == "-runs" || name == "-seed" || name == "-max_len";
}

}  // namespace

/// What libFuzzer offers to mutators of the target's own.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t size_max) {
  static Mutator mutator(settings.seed ^ 0x5eedU, settings.max_len);
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  Input input(bytes, bytes + size);
  mutator.change(input, input);
  if (input.size() > size_max) input.resize(size_max);
  if (!input.empty()) std::memcpy(data, input.data(), input.size());
  return input.size();
}

int main(int argc, char** argv) {
  LLVMFuzzerInitialize(&argc, &argv);
  std::vector<Input> pool = aplib::fuzz::seeds();
  for (int i = 1; i < argc; ++i) {
    if (read_word(argv[i], pool)) continue;
    std::fprintf(stderr, "%s: what is '%s'? -runs=N, -seed=N, -max_len=N or a folder is known\n", argv[0], argv[i]);
    return 2;
  }
  if (pool.empty()) {
    std::fprintf(stderr, "%s: there is no input to begin with\n", argv[0]);
    return 2;
  }
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(leave_input);
  std::signal(SIGABRT, [](int) { leave_input(); });
  const auto start = std::chrono::steady_clock::now();
  for (const Input& input : pool) try_one(input);
  Mutator mutator(settings.seed, settings.max_len);
  for (; run < settings.runs; ++run) try_one(mutator.next(pool));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%zu sound inputs, %llu changed ones, seed %llu: all promises kept; %.1f s\n", pool.size(),
              static_cast<unsigned long long>(settings.runs), static_cast<unsigned long long>(settings.seed),
              seconds.count());
  return 0;
}
