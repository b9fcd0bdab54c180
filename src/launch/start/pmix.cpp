// SPDX-License-Identifier: MIT
#include "launch/start/pmix.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "aplib/error.hpp"

// The types come from the headers. The functions come from the library that a process finds when PMIx starts it, so
// that aprun does not depend on it.
#if __has_include(<pmix.h>)
#include <pmix.h>

namespace aplib::launch::start {

struct Pmix::Library {
  void* handle = nullptr;
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Fence) fence = nullptr;
  decltype(&PMIx_Get) get = nullptr;
  decltype(&PMIx_Abort) abort = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;
  pmix_proc_t self{};
  std::uint32_t size = 0;
  bool aborted = false;

  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(handle, name));
    if (function == nullptr) throw Error(Errc::failed, fmt::format("PMIx: {} is missing in libpmix.so.2", name));
  }

  void check(pmix_status_t status, std::string_view what) const {
    if (status != PMIX_SUCCESS) throw Error(Errc::failed, fmt::format("PMIx: {}: {}", what, error_string(status)));
  }

  /// The process of that rank in this job.
  [[nodiscard]] pmix_proc_t process(pmix_rank_t rank) const {
    pmix_proc_t process = self;
    process.rank = rank;
    return process;
  }

  [[nodiscard]] std::optional<std::string> text(pmix_rank_t rank, const std::string& key) const {
    const pmix_proc_t whose = process(rank);
    pmix_value_t* value = nullptr;
    if (get(&whose, key.c_str(), nullptr, 0, &value) != PMIX_SUCCESS || value == nullptr) return std::nullopt;
    std::optional<std::string> text;
    if (value->type == PMIX_STRING && value->data.string != nullptr) {
      text = value->data.string;
      std::free(value->data.string);
    }
    std::free(value);
    return text;
  }
};

Pmix::Pmix() : library_(std::make_unique<Library>()) {
  Library& lib = *library_;
  lib.handle = ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
  if (lib.handle == nullptr) {
    throw Error(Errc::failed, fmt::format("PMIx: another launcher started this process, but {}; install its library "
                                          "(package libpmix2) on this host",
                                          ::dlerror()));
  }
  lib.find(lib.init, "PMIx_Init");
  lib.find(lib.finalize, "PMIx_Finalize");
  lib.find(lib.put, "PMIx_Put");
  lib.find(lib.commit, "PMIx_Commit");
  lib.find(lib.fence, "PMIx_Fence");
  lib.find(lib.get, "PMIx_Get");
  lib.find(lib.abort, "PMIx_Abort");
  lib.find(lib.error_string, "PMIx_Error_string");
  lib.check(lib.init(&lib.self, nullptr, 0), "joining the job");
  const pmix_proc_t job = lib.process(PMIX_RANK_WILDCARD);
  pmix_value_t* value = nullptr;
  lib.check(lib.get(&job, PMIX_JOB_SIZE, nullptr, 0, &value), "asking for the number of processes");
  lib.size = value->data.uint32;
  std::free(value);
}

Pmix::~Pmix() {
  // The library stays loaded, because it has threads of its own and exit handlers.
  if (!library_->aborted) library_->finalize(nullptr, 0);
}

std::uint32_t Pmix::rank() const noexcept { return library_->self.rank; }

std::uint32_t Pmix::size() const noexcept { return library_->size; }

std::string Pmix::host(std::uint32_t rank) const { return library_->text(rank, PMIX_HOSTNAME).value_or(""); }

std::string Pmix::job() const { return library_->self.nspace; }

void Pmix::put(const std::string& key, const std::string& value) {
  pmix_value_t boxed{};
  boxed.type = PMIX_STRING;
  boxed.data.string = const_cast<char*>(value.c_str());  // copied before PMIx_Put returns
  library_->check(library_->put(PMIX_GLOBAL, key.c_str(), &boxed), "putting a text");
}

void Pmix::fence() {
  library_->check(library_->commit(), "publishing");
  pmix_info_t collect{};
  std::memcpy(collect.key, PMIX_COLLECT_DATA, sizeof PMIX_COLLECT_DATA);
  collect.value.type = PMIX_BOOL;
  collect.value.data.flag = true;
  const pmix_proc_t all = library_->process(PMIX_RANK_WILDCARD);
  library_->check(library_->fence(&all, 1, &collect, 1), "waiting for the other processes");
}

std::optional<std::string> Pmix::get(std::uint32_t rank, const std::string& key) const {
  return library_->text(rank, key);
}

void Pmix::abort(int status, const std::string& text) noexcept {
  library_->aborted = true;
  library_->abort(status, text.c_str(), nullptr, 0);
}

#else

namespace aplib::launch::start {

struct Pmix::Library {};

Pmix::Pmix() {
  throw Error(
      Errc::failed,
      "PMIx: another launcher started this process, but this build of APlib does not know PMIx: its headers were "
      "missing when it was built; install them (package libpmix-dev) and build APlib again");
}

Pmix::~Pmix() = default;
std::uint32_t Pmix::rank() const noexcept { return 0; }
std::uint32_t Pmix::size() const noexcept { return 0; }
std::string Pmix::host(std::uint32_t) const { return {}; }
std::string Pmix::job() const { return {}; }
void Pmix::put(const std::string&, const std::string&) {}
void Pmix::fence() {}
std::optional<std::string> Pmix::get(std::uint32_t, const std::string&) const { return std::nullopt; }
void Pmix::abort(int, const std::string&) noexcept {}

#endif

bool Pmix::launched_us() { return std::getenv("PMIX_NAMESPACE") != nullptr && std::getenv("PMIX_RANK") != nullptr; }

}  // namespace aplib::launch::start
