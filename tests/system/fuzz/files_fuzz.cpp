// SPDX-License-Identifier: MIT
// Transfers of files with whoever has proved the key. An input's first byte says which end gets the rest, as its peer's
// stream. Whatever it is, the end gives up in words or goes on, and nothing outside the receiver's folder changes.
#include <filesystem>
#include <fstream>
#include <memory>

#include "fuzzer.hpp"
#include "launch/files/receiver.hpp"
#include "launch/files/sender.hpp"

namespace aplib::fuzz {
namespace {

namespace files = launch::files;
namespace fs = std::filesystem;

/// A folder for all inputs, in which "from" has files, and "in" is what a receiver may change.
class Place {
 public:
  Place() {
    std::string name = fs::temp_directory_path() / "aplib-fuzz-XXXXXX";
    promise(::mkdtemp(name.data()) != nullptr, "a folder can be made");
    path_ = name;
    fs::create_directories(path_ / "from/sub");
    std::ofstream(path_ / "from/a") << "some text";
    std::ofstream(path_ / "from/sub/b") << std::string(3000, 'b');
    fs::create_symlink("a", path_ / "from/link");
    manifest_ = std::make_shared<files::Manifest>(files::gather({{path_ / "from", "tree"}}, "x"));
  }
  ~Place() { fs::remove_all(path_); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  [[nodiscard]] std::string in() const { return path_ / "in"; }
  [[nodiscard]] const std::shared_ptr<const files::Manifest>& manifest() const { return manifest_; }
  void clean() const {
    for (const auto& each : fs::recursive_directory_iterator(in(), fs::directory_options::skip_permission_denied))
      if (each.is_directory() && !each.is_symlink()) fs::permissions(each.path(), fs::perms::owner_all);
    fs::remove_all(in());
    for (const auto& each : fs::directory_iterator(path_))
      promise(each.path().filename() == "from", "nothing outside the folder is made");
  }

 private:
  fs::path path_;
  std::shared_ptr<const files::Manifest> manifest_;
};

const Place& place() {
  static const Place made;
  return made;
}

files::Receiver::Settings settings(unsigned flags) {
  return {.folder = place().in(),
          .existing = (flags & 2U) != 0 ? files::Existing::replace : files::Existing::refuse,
          .resume = (flags & 4U) != 0,
          .host = "y"};
}

}  // namespace

/// What two sound ends say to each other.
std::vector<Input> seeds() {
  std::vector<Input> all;
  for (const bool pushes : {false, true}) {
    Input sent{std::byte{0}};
    Input answered{std::byte{1}};
    files::Sender sender(place().manifest(), {.pushes = pushes});
    files::Receiver receiver(settings(0));
    while (!sender.ended()) {
      const auto bytes = sender.next();
      sent.insert(sent.end(), bytes.begin(), bytes.end());
      receiver.take(bytes);
      const auto reply = receiver.reply();
      answered.insert(answered.end(), reply.begin(), reply.end());
      sender.take(reply);
    }
    place().clean();
    all.push_back(sent);
    all.push_back(answered);
  }
  return all;
}

}  // namespace aplib::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace aplib;
  if (size == 0) return 0;
  const unsigned flags = data[0];
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  if ((flags & 1U) == 0) {
    std::filesystem::create_directories(fuzz::place().in());
    fuzz::files::Receiver receiver(fuzz::settings(flags));
    receiver.take(bytes);
    fuzz::promise(receiver.ended() || receiver.outcome().problems.size() <= fuzz::files::problems_max,
                  "problems have a limit");
    fuzz::place().clean();
  } else {
    fuzz::files::Sender sender(fuzz::place().manifest(), {});
    for (int i = 0; i < 3; ++i) static_cast<void>(sender.next());
    sender.take(bytes);
    for (int i = 0; i < 100 && !sender.next().empty(); ++i) {
    }
  }
  return 0;
}
