// SPDX-License-Identifier: MIT
#include "mpi/rank.hpp"

#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <sys/utsname.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "kernel/api.hpp"
#include "kernel/condition.hpp"
#include "kernel/program_threads.hpp"
#include "mpi/comm.hpp"
#include "mpi/file.hpp"
#include "mpi/info.hpp"
#include "mpi/request.hpp"

namespace aplib::mpi {

// ---------------------------------------------------------------- the rank

Rank::Rank(const char* call)
    : world_rank_(index(api::cell_id(call))),
      world_size_(static_cast<std::uint32_t>(api::grid(call).count())),
      universe_(static_cast<int>(world_size_)) {
  api::let_limits_yield(call);
  contexts.add(Comm::world_context);
  contexts.add(Comm::self_context);
  unset_ = new Errhandler(*this, Errhandler::Action::unset);
  fatal_ = new Errhandler(*this, Errhandler::Action::fatal);
  aborting_ = new Errhandler(*this, Errhandler::Action::abort);
  returning_ = new Errhandler(*this, Errhandler::Action::return_code);
  empty_group_ = new Group(*this, 0, 1, 0);
  world_group_ = new Group(*this, 0, 1, world_size_);
  auto* const alone = new Group(*this, world_rank_, 1, 1);
  world_ = new Comm(*this, *world_group_, *unset_, "MPI_COMM_WORLD", Comm::world_context);
  self_ = new Comm(*this, *alone, *unset_, "MPI_COMM_SELF", Comm::self_context);
  alone->release();
  no_file_ = new NoFile(*this, *returning_);
  sent_ = &Request::make(*self_, Request::Does::send);
  environment_ = new Info(*this);
  utsname system{};
  if (::uname(&system) == 0) {
    environment_->set("arch", system.machine);
    environment_->set("host", system.nodename);
  }
  const api::StartedProgram program = api::started_program(call);
  program_ = static_cast<int>(program.number);
  environment_->set("maxprocs", std::to_string(program.cells));
}

Rank::~Rank() {
  ending_ = true;
  while (objects_ != nullptr) delete objects_;
}

Rank& Rank::of_caller(const char* call) {
  void* kept = api::mpi_rank(call);
  if (kept == nullptr) [[unlikely]] {
    kept = new Rank(call);
    api::keep_mpi_rank(
        call, kept, [](void* rank) { delete static_cast<Rank*>(rank); },
        [](const void* rank, const MatchWish& wish) { return static_cast<const Rank*>(rank)->describe(wish); });
  }
  return *static_cast<Rank*>(kept);
}

std::string Rank::describe(const MatchWish& wish) const {
  constexpr std::uint32_t context_mask = ContextSet::count - 1;
  const Comm* comm = nullptr;
  int rank = MPI_ANY_SOURCE;
  const bool any_rank = (wish.mask & MatchKey::cell_mask) == 0;
  for_each_object([&](const Object& object) {
    if (object.object_kind() != ObjectKind::comm) return;
    const auto& each = static_cast<const Comm&>(object);
    if (each.context() != (ContextKey::context(wish.key) & context_mask)) return;
    const int peer = any_rank ? MPI_ANY_SOURCE : each.rank_of(CellId{MatchKey::cell(wish.key)});
    if (peer == MPI_UNDEFINED) return;  // an intercommunicator's other group
    comm = &each;
    rank = peer;
  });
  if (comm == nullptr) return {};
  std::string text = any_rank ? "any rank" : fmt::format("rank {}", rank);
  text += " of " + comm->title();
  const std::uint32_t channel = ContextKey::context(wish.key) & ~context_mask;
  const bool is_collective = static_cast<api::Space>(wish.key >> MatchKey::space_shift) == api::Space::mpi_collective;
  if (!is_collective && channel == completing) return "the rank itself, by MPI_Grequest_complete";
  if (!is_collective && channel == readying) return "the rank itself, by MPI_Pready";
  if (!is_collective && (channel == pairing || channel == partitioning)) return text + ", in partitioned communication";
  if (is_collective && (channel == 0 || channel == nonblocking || channel == persistent))
    return text + ", in a collective call";
  if (channel != 0) return text + ", for a new communicator";
  return text +
         ((wish.mask & ContextKey::tag_mask) == 0 ? ", any tag" : fmt::format(", tag {}", ContextKey::tag(wish.key)));
}

const int* Rank::predefined_attribute(int keyval) const noexcept {
  static constexpr int tag_bound = (1 << 28) - 1;  // 28 bits of the match key
  static constexpr int any_rank = MPI_ANY_SOURCE;
  static constexpr int no_rank = MPI_PROC_NULL;
  static constexpr int none = 0;
  switch (keyval) {
    case MPI_TAG_UB:
      return &tag_bound;
    case MPI_IO:
      return &any_rank;
    case MPI_HOST:
      return &no_rank;
    case MPI_WTIME_IS_GLOBAL:  // hosts have clocks of their own
      return &none;
    case MPI_APPNUM:
      return &program_;
    case MPI_UNIVERSE_SIZE:
      return &universe_;
    case MPI_LASTUSEDCODE:
      return &codes.last_used();
    default:
      return nullptr;
  }
}

int Rank::known_number_of(const void* handle) noexcept {
  return is_predefined(handle) ? static_cast<int>(handle_value(handle)) : static_cast<const Object*>(handle)->number_;
}

int Rank::number_of(const void* handle) {
  if (const int known = known_number_of(handle); known != 0 || handle == nullptr) return known;
  auto& object = *static_cast<Object*>(const_cast<void*>(handle));
  if (free_numbers_.empty()) {
    numbered_.push_back(handle);
    free_numbers_.reserve(numbered_.capacity());  // so that none is lost for want of memory
    object.number_ = static_cast<int>(predefined_end + numbered_.size() - 1);
  } else {
    object.number_ = free_numbers_.back();
    free_numbers_.pop_back();
    numbered_[static_cast<std::size_t>(object.number_) - predefined_end] = handle;
  }
  return object.number_;
}

void* Rank::handle_of_number(int number) const noexcept {
  if (number < 0) return nullptr;
  const auto value = static_cast<std::size_t>(number);
  if (value < predefined_end) return reinterpret_cast<void*>(value);
  return value - predefined_end < numbered_.size() ? const_cast<void*>(numbered_[value - predefined_end]) : nullptr;
}

void Rank::forget_number(Object& object) noexcept {
  numbered_[static_cast<std::size_t>(object.number_) - predefined_end] = nullptr;
  free_numbers_.push_back(std::exchange(object.number_, 0));  // reserved by number_of()
}

// ---------------------------------------------------------------- begin and end

void give_string(const std::string& text, char* buffer, int room, int* length) {
  const std::size_t count = std::min(text.size(), static_cast<std::size_t>(room) - 1);
  std::memcpy(buffer, text.data(), count);
  buffer[count] = '\0';
  *length = static_cast<int>(count);
}

namespace {

/// APlib's launcher has set these, perhaps for a rank that has started this process.
bool is_ours(const char* rank, const char* size) {
  const char* const mark = std::getenv("AP_RANK");
  return mark != nullptr && rank != nullptr && size != nullptr && mark == fmt::format("{}/{}", rank, size);
}

/// Another MPI's launcher starts processes that know nothing of each other: each is a world of its own. One of them
/// says so. In a machine that such a launcher has started by PMIx, there are at least as many ranks as processes.
void tell_of_foreign_launcher(const Call& call) {
  struct Variables {
    const char* size;
    const char* rank;
  };
  const auto number = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return value == nullptr ? 0 : std::strtoul(value, nullptr, 10);
  };
  const Rank& rank = call.rank();
  if (rank.world_rank() != 0) return;
  for (const auto& [size, own] : {Variables{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                  {"PMI_SIZE", "PMI_RANK"},
                                  {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}}) {
    const unsigned long started = number(size);
    if (started <= std::max(rank.world_size(), 1U) || is_ours(std::getenv(own), std::getenv(size))) continue;
    if (number(own) == 0) {
      std::fputs(fmt::format("aplib: {}: another MPI's launcher has started {} processes ({}), and each is a world of "
                             "its own, of {} rank{}; start the program with APlib's mpiexec or aprun\n",
                             call.name(), started, size, rank.world_size(), rank.world_size() == 1 ? "" : "s")
                     .c_str(),
                 stderr);
    }
    return;
  }
}

int is_front_end(dl_phdr_info* library, std::size_t /*size*/, void* /*unused*/) {
  const std::string_view path = library->dlpi_name;
  const std::size_t at = path.rfind("/aplib/mpi/");
  return at != path.npos && path.find("/libmpi", at) != path.npos && path.find("/libmpi_abi", at) == path.npos ? 1 : 0;
}

/// Some program of this process was made for Open MPI or MPICH.
bool has_front_end() { return dl_iterate_phdr(is_front_end, nullptr) != 0; }

/// Another MPI's library in this process may take calls that are meant for ours, and knows nothing of our handles.
void tell_of_foreign_library(const Call& call) {
  if (call.rank().world_rank() != 0) return;
  std::string name;
  dl_iterate_phdr(
      [](dl_phdr_info* library, std::size_t, void* found) {
        const std::string_view path = library->dlpi_name;
        const std::string_view file = path.substr(path.rfind('/') + 1);
        if (!file.starts_with("libmpi.so") && !file.starts_with("libmpich.so")) return 0;
        for (const std::string_view front_end : {"/aplib/mpi/openmpi/", "/aplib/mpi/mpich/"}) {
          if (path.ends_with(std::string(front_end).append(file))) return 0;  // ours
        }
        *static_cast<std::string*>(found) = path;
        return 1;
      },
      &name);
  if (name.empty()) return;
  std::fputs(fmt::format("aplib: {}: the program has loaded {} too, the library of another MPI, perhaps by way of "
                         "another library: calls may go to the wrong one; compile all libraries by APlib's mpicc\n",
                         call.name(), name)
                 .c_str(),
             stderr);
}

int provide_threads(const Call& call, int required) {
  if (required < MPI_THREAD_SERIALIZED) return required;
  const api::Threads threads = api::admit_threads(call.name());
  if (threads == api::Threads::run) call.visit();
  if (threads != api::Threads::none) return required;  // also where none will come: programs insist on the level
  api::debug(call.name(),
             "the rank shares its thread with others, so MPI_THREAD_FUNNELED is provided; for more, give "
             "each rank a thread of its own (--threads per-cell or APLIB_THREADS=per-cell)");
  return MPI_THREAD_FUNNELED;
}

void begin_world(const Call& call, int required, int* provided) {
  Rank& rank = call.rank();
  if (rank.world_phase == Rank::Phase::initialized) fail(MPI_ERR_OTHER, "MPI is initialized already; call it once");
  if (rank.world_phase == Rank::Phase::finalized)
    fail(MPI_ERR_OTHER, "it came after MPI_Finalize; MPI_Init begins only once");
  rank.begin(call, required);
  if (provided != nullptr) *provided = rank.thread_level;
  rank.world_phase = Rank::Phase::initialized;
}

const Rank& initialized_rank(const Call& call) {
  const Rank* const rank = call.known_rank();
  if (rank == nullptr || rank->seen_phase() == Rank::Phase::before) fail_before_init();
  if (rank->seen_phase() == Rank::Phase::finalized) fail_after_finalize();
  return *rank;
}

}  // namespace

bool Rank::is_main_thread() const noexcept {
  return first_thread ? ::pthread_equal(::pthread_self(), *first_thread) != 0 : api::is_main_thread();
}

// Threads that have been admitted stay so. What is not the main one can admit none, and calls only where they are.
void Rank::begin(const Call& call, int level) {
  if (phase != Phase::initialized) {
    tell_of_foreign_launcher(call);
    tell_of_foreign_library(call);
    main_task = api::begin_calls(call.name());
    if (!api::is_main_thread()) first_thread = ::pthread_self();
  }
  if (level > thread_level) {
    if (thread_level >= MPI_THREAD_SERIALIZED || level < MPI_THREAD_SERIALIZED || first_thread) {
      thread_level = level;
    } else if (api::is_main_thread()) {
      thread_level = std::max(thread_level, provide_threads(call, level));
    }
  }
  // Those MPIs serve such threads, so released programs have them (PT-Scotch's, MolDS's) and mean no harm. As cells
  // they are refused: there PT-Scotch has failed now and then.
  if (!threads_may_call() && !first_thread && api::is_main_thread() && has_front_end() &&
      api::is_process(call.name())) {
    const api::Threads threads = api::admit_threads(call.name());
    if (threads == api::Threads::run) call.visit();
    threads_are_tolerated = threads == api::Threads::run || threads == api::Threads::may_come;
  }
  pending_calls.threads_call = thread_level == MPI_THREAD_MULTIPLE || threads_are_tolerated;
  set_phase(Phase::initialized);
  api::begin_together(api::task(call.name()), call.name());
}

void Rank::end(const Call& call) {
  if (world_phase == Phase::initialized || !sessions.empty()) return;
  close_requests(*this);
  set_phase(world_phase);
  if (world_phase == Phase::finalized) api::leave_machine(call.name());
}

void init(const Call& call, int*, char***) { begin_world(call, MPI_THREAD_SINGLE, nullptr); }

void init_thread(const Call& call, int*, char***, int required, int* provided) {
  if (required != MPI_THREAD_SINGLE && required != MPI_THREAD_FUNNELED && required != MPI_THREAD_SERIALIZED &&
      required != MPI_THREAD_MULTIPLE) {
    fail(MPI_ERR_ARG, fmt::format("required is {}, no level of thread support; use MPI_THREAD_SINGLE, _FUNNELED, "
                                  "_SERIALIZED or _MULTIPLE",
                                  required));
  }
  begin_world(call, required, provided);
}

// What a program attached to MPI_COMM_SELF tells it that MPI ends, while MPI still works.
void finalize(const Call& call) {
  Rank& rank = call.rank();
  if (rank.world_phase == Rank::Phase::before) fail_before_init();
  if (rank.world_phase == Rank::Phase::finalized) fail_after_finalize();
  rank.pending_calls.go_on(call.name());
  rank.pending_calls.check_over();
  rank.self().attributes.clear(rank, MPI_COMM_SELF);
  rank.world_phase = Rank::Phase::finalized;
  rank.end(call);
}

void initialized(const Call& call, int* flag) {
  *flag = call.known_rank() != nullptr && call.known_rank()->world_phase != Rank::Phase::before ? 1 : 0;
}

void finalized(const Call& call, int* flag) {
  *flag = call.known_rank() != nullptr && call.known_rank()->world_phase == Rank::Phase::finalized ? 1 : 0;
}

void query_thread(const Call& call, int* provided) { *provided = initialized_rank(call).thread_level; }

void is_thread_main(const Call& call, int* flag) {
  const Rank& rank = initialized_rank(call);
  const bool is_other_task =
      this_task::inside() && api::is_main_thread() && index(api::task_id(call.name())) != rank.main_task;  // of CellOS
  *flag = rank.is_main_thread() && !is_other_task ? 1 : 0;
}

void abort(const Call& call, Comm& comm, int code) {
  const int status = (code & 0xff) == 0 ? 1 : code & 0xff;  // an end by abort is no success
  api::end_machine(
      call.name(), status,
      fmt::format("MPI_Abort: rank {} of {} ends the machine with code {}", comm.own_rank, comm.title(), code));
}

// ---------------------------------------------------------------- where and when

void get_processor_name(const Call&, char* name, int* length) {
  utsname system{};
  if (::uname(&system) != 0) fail(MPI_ERR_OTHER, fmt::format("the system does not tell its name: {}", errno));
  give_string(system.nodename, name, MPI_MAX_PROCESSOR_NAME, length);
}

// A program that waits for a time to come asks again and again: then others run meanwhile.
double wtime(const Call& call) {
  if (this_task::inside() && Rank::of_caller(call.name()).clock_reads.spin()) this_task::yield();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double wtick(const Call&) {
  using Period = std::chrono::steady_clock::period;
  return static_cast<double>(Period::num) / static_cast<double>(Period::den);
}

void pcontrol(const Call&, int) {}

// ---------------------------------------------------------------- memory

void alloc_mem(const Call&, MPI_Aint bytes, Info*, void* place) {
  if (place == nullptr) fail_null("baseptr");
  void* const memory = std::malloc(bytes == 0 ? 1 : static_cast<std::size_t>(bytes));
  if (memory == nullptr) fail(MPI_ERR_NO_MEM, fmt::format("there is no memory for {} bytes", bytes));
  *static_cast<void**>(place) = memory;
}

void free_mem(const Call&, void* memory) { std::free(memory); }

void get_address(const Call&, const void* location, MPI_Aint* address) {
  *address = static_cast<MPI_Aint>(handle_value(location));
}

// As unsigned numbers: addresses may wrap.
MPI_Aint aint_add(const Call&, MPI_Aint base, MPI_Aint displacement) {
  return static_cast<MPI_Aint>(static_cast<std::uintptr_t>(base) + static_cast<std::uintptr_t>(displacement));
}

MPI_Aint aint_diff(const Call&, MPI_Aint address, MPI_Aint other) {
  return static_cast<MPI_Aint>(static_cast<std::uintptr_t>(address) - static_cast<std::uintptr_t>(other));
}

}  // namespace aplib::mpi
