// SPDX-License-Identifier: MIT
// Windows: how they come to be and end, and what they tell of themselves.
#include "mpi/window.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <map>
#include <new>
#include <optional>
#include <string_view>

#include "kernel/condition.hpp"
#include "mpi/collective.hpp"
#include "mpi/info.hpp"
#include "mpi/remote_window.hpp"
#include "mpi/team.hpp"

namespace aplib::mpi {

void barrier(const Call& call, Comm& comm);

// A new window's error handler is MPI_ERRORS_ARE_FATAL, whatever its communicator has.
Win::Win(Comm& ranks, WindowBoardPtr shared, int made_by)
    : ErrorTarget(ranks.owner(), kind, ranks.owner().fatal()),
      comm(&ranks),
      board(std::move(shared)),
      flavor(made_by),
      reached(static_cast<std::size_t>(ranks.size())) {
  comm->hold();
}

Win::~Win() { let_go(*comm); }

void Win::set_reach(int rank, Reach reach) noexcept {
  Reach& place = reached[static_cast<std::size_t>(rank)];
  reached_count += (reach != Reach::none ? 1 : 0) - (place != Reach::none ? 1 : 0);
  place = reach;
}

Win& win_of(const Call&, const char* parameter, MPI_Win handle) {
  return object_of<Win>(MPI_ERR_WIN, parameter, handle, "a window");
}

void check_window_rank(const char* parameter, const Win& win, int rank) {
  if (rank < 0 || rank >= win.size()) [[unlikely]]
    fail(MPI_ERR_RANK, fmt::format("{} is {}; {} has ranks 0..{}", parameter, rank, win.title(), win.size() - 1));
}

void AwaitedInWindow::wait(const Call& call, const char* without) {
  if (holds()) return;
  switch (call.rank().pending_calls.wait(call, *this)) {
    case Wake::done:
      return;
    case Wake::ended:
      fail_ended(ended(), without);
    case Wake::stopping:
      fail(MPI_ERR_OTHER, "the machine stops");
  }
}

// ---------------------------------------------------------------- hints, which are kept and have no effect

namespace {

constexpr std::pair<const char*, const char*> known_hints[] = {{"no_locks", "false"},
                                                               {"accumulate_ordering", "rar,raw,war,waw"},
                                                               {"accumulate_ops", "same_op_no_op"},
                                                               {"mpi_accumulate_granularity", "0"},
                                                               {"same_size", "false"},
                                                               {"same_disp_unit", "false"},
                                                               {"alloc_shared_noncontig", "false"}};
constexpr const char* apart_key = "alloc_shared_noncontig";

void keep_hints(Win& win, const Info* given) {
  for (const auto& [key, usual] : known_hints) {
    const std::string* const value = given != nullptr ? given->find(key) : nullptr;
    if (value == nullptr) continue;
    std::erase_if(win.hints, [key = std::string_view(key)](const auto& kept) { return kept.first == key; });
    win.hints.emplace_back(key, *value);
  }
}

}  // namespace

void win_set_info(const Call&, Win& win, Info* given) { keep_hints(win, given); }

void win_get_info(const Call& call, Win& win, MPI_Info* place) {
  auto& used = *new Info(call.rank());
  *place = handle_of<MPI_Info>(used);
  for (const auto& [key, usual] : known_hints) {
    if (key != apart_key || win.flavor == MPI_WIN_FLAVOR_SHARED) used.set(key, usual);
  }
  for (const auto& [key, value] : win.hints) used.set(key, value);
}

// ---------------------------------------------------------------- making

namespace {

void check_unit(MPI_Aint unit) {
  if (unit <= 0) fail(MPI_ERR_DISP, fmt::format("disp_unit is {}; it must be 1 or more bytes", unit));
}

/// Where a rank is, and what its process has made.
struct RankPlace {
  std::uint32_t process;
  std::uint64_t number;
  WindowBoard* board;
};

/// What a rank says of its part.
struct Asked {
  Count bytes;
  Count unit;
  bool is_apart;    ///< Segments of shared memory need not touch.
  bool has_failed;  ///< There is no memory for it.
};

constexpr Count apart_alignment = 64;

/// Where each rank's segment begins, and behind them the bytes of all.
std::vector<Count> segments_of(const std::vector<Asked>& asked) {
  std::vector<Count> begins(asked.size() + 1);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    Count bytes = asked[i].bytes;
    if (asked[0].is_apart) bytes = (bytes + apart_alignment - 1) & ~(apart_alignment - 1);
    if (__builtin_add_overflow(begins[i], bytes, &begins[i + 1]) || bytes < 0)
      fail(MPI_ERR_SIZE, "the ranks' sizes together are more than an address space");
  }
  return begins;
}

/// The board of the caller's process, which the first of its ranks makes and gives the others.
WindowBoardPtr join_board(const Call& call, const Comm& comm, const Team& team, bool is_dynamic) {
  const auto process_of = [&](int rank) { return api::process_of(call.name(), comm.cell_of(rank)); };
  const std::uint32_t own = process_of(comm.rank());
  int first = comm.size();
  int count = 0;
  for (int rank = comm.size() - 1; rank >= 0; --rank) {
    if (process_of(rank) != own) continue;
    first = rank;
    ++count;
  }
  RankPlace place{own, 0, nullptr};
  if (comm.rank() == first) {
    try {
      place.board = new WindowBoard(comm.size(), count, is_dynamic);
      if (count != comm.size()) {
        const auto windows = RemoteWindows::of_process(call.name());
        place.number = windows->add(*place.board);
        place.board->on_end = [windows, number = place.number] { windows->remove(number); };
      }
    } catch (const std::bad_alloc&) {
      place.board = nullptr;  // all ranks are told
    }
  }
  const std::vector<RankPlace> places = team.gather(place);
  WindowBoardPtr board(places[static_cast<std::size_t>(first)].board);
  // The first rank of each process has made its board.
  std::map<std::uint32_t, std::uint64_t> numbers;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const auto [at, is_first] = numbers.try_emplace(places[rank].process, places[rank].number);
    if (is_first && places[rank].board == nullptr)
      fail(MPI_ERR_NO_MEM, fmt::format("rank {} has no memory for the window", rank));
  }
  if (comm.rank() != first || count == comm.size()) return board;
  for (int rank = 0; rank < comm.size(); ++rank) {
    WindowBoard::Member& member = board->member(rank);
    member.process = places[static_cast<std::size_t>(rank)].process;
    member.number = numbers[member.process];
    member.is_here = member.process == own;
  }
  return board;
}

bool is_first_here(const Win& win) {
  int rank = 0;
  while (!win.member(rank).is_here) ++rank;
  return rank == win.rank();
}

/// What ranks of other processes have asked for, by the first rank here. False: there are none.
bool note_others(Win& win, const std::vector<Asked>& asked) {
  const bool is_first = is_first_here(win);
  bool has_others = false;
  for (int rank = 0; rank < win.size(); ++rank) {
    WindowBoard::Member& member = win.member(rank);
    if (member.is_here) continue;
    has_others = true;
    if (!is_first) continue;
    member.bytes = asked[static_cast<std::size_t>(rank)].bytes;
    member.unit = asked[static_cast<std::size_t>(rank)].unit;
  }
  return has_others;
}

/// How the memory that processes share is laid out: a lock for each rank, and then the segments.
std::size_t bytes_of_locks(const Win& win) {
  constexpr std::size_t page_bytes = 4096;
  const auto bytes = static_cast<std::size_t>(win.size()) * cache_line_bytes;
  return (bytes + page_bytes - 1) & ~(page_bytes - 1);
}
SpinLock* shared_lock(std::byte* memory, int rank) {
  return reinterpret_cast<SpinLock*>(memory + static_cast<std::size_t>(rank) * cache_line_bytes);
}

/// The first rank of a process shows at the board where all ranks' memory is. False: it is not mapped here.
bool show_shared(const Call& call, Win& win, const SharedFilePlace& place, const std::vector<Asked>& asked,
                 const std::vector<Count>& begins) {
  std::optional<api::SharedMemory>& shared = win.board->shared;
  const std::size_t first = bytes_of_locks(win);
  if (!shared && api::shares_host(call.name(), win.member(0).process)) {
    if (auto opened = api::SharedMemory::open(place, first + static_cast<std::size_t>(begins.back())))
      shared.emplace(*std::move(opened));
  }
  if (!shared) return false;
  for (int rank = 0; rank < win.size(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    WindowBoard::Member& member = win.member(rank);
    member.base = asked[at].bytes != 0 ? shared->data() + first + begins[at] : nullptr;
    member.bytes_here = asked[at].bytes;
    member.combining = shared_lock(shared->data(), rank);
    member.is_shared = true;
  }
  return true;
}

/// Gives the ranks of several processes memory that all of them map. The first rank's process makes it.
void share_memory(const Call& call, const Team& team, Win& win, const std::vector<Asked>& asked) {
  const std::vector<Count> begins = segments_of(asked);
  std::optional<api::SharedMemory>& shared = win.board->shared;
  SharedFilePlace place;
  if (win.rank() == 0) {
    if (auto made = api::SharedMemory::make(bytes_of_locks(win) + static_cast<std::size_t>(begins.back()))) {
      shared.emplace(*std::move(made));
      for (int rank = 0; rank < win.size(); ++rank) ::new (shared_lock(shared->data(), rank)) SpinLock;
      place = shared->place();
    }
  }
  place = team.hear(place);
  const bool is_made = place.descriptor >= 0;
  const bool is_mapped = is_made && (!is_first_here(win) || show_shared(call, win, place, asked, begins));
  const std::vector<char> all = team.gather<char>(is_mapped ? 1 : 0);  // and all have done so
  if (!is_made) fail(MPI_ERR_NO_MEM, "there is no memory for the window at rank 0");
  const auto without = std::ranges::find(all, 0);
  if (without == all.end()) return;
  fail(
      MPI_ERR_RMA_SHARED,
      fmt::format("comm has ranks 0 and {} in processes that can share no memory; split it by MPI_Comm_split_type with "
                  "MPI_COMM_TYPE_SHARED",
                  without - all.begin()));
}

/// The rank shows its part at the board, and gets its memory if that is made with the window. `team`: all ranks.
void show_part(const Call& call, const Team& team, Win& win, void* base, Asked asked) {
  WindowBoard::Member& own = win.own();
  own.base = static_cast<std::byte*>(base);
  own.bytes = own.bytes_here = asked.bytes;
  own.unit = asked.unit;
  if (win.flavor == MPI_WIN_FLAVOR_ALLOCATE) {
    own.memory = WindowBoard::allocate(asked.bytes);
    own.base = own.memory.get();
    asked.has_failed = own.base == nullptr;
  }
  const std::vector<Asked> all = team.gather(asked);
  const bool has_others = note_others(win, all);
  if (win.flavor == MPI_WIN_FLAVOR_SHARED && has_others) return share_memory(call, team, win, all);
  if (win.flavor == MPI_WIN_FLAVOR_SHARED) {
    const std::vector<Count> begins = segments_of(all);
    if (win.rank() == 0) own.memory = WindowBoard::allocate(begins.back());
    std::byte* const first = team.hear(own.memory.get());
    asked.has_failed = first == nullptr;
    // Peers give no address for no bytes, and programs ask for that.
    if (first != nullptr && asked.bytes != 0) own.base = first + begins[static_cast<std::size_t>(win.rank())];
  }
  if (win.flavor == MPI_WIN_FLAVOR_SHARED || has_others) static_cast<void>(team.gather(asked));  // all have done so
  const auto failed = std::ranges::find_if(all, &Asked::has_failed);
  if (asked.has_failed || failed != all.end()) {
    fail(MPI_ERR_NO_MEM,
         fmt::format("there is no memory for the window at rank {}", failed != all.end() ? failed - all.begin() : 0));
  }
}

/// The ranks of each process meet at a board.
Win& make_window(const Call& call, Comm& parent, int flavor, void* base, const Asked& asked, const Info* hints) {
  std::vector<std::uint32_t> cells(static_cast<std::size_t>(parent.size()));
  for (int rank = 0; rank < parent.size(); ++rank) cells[static_cast<std::size_t>(rank)] = index(parent.cell_of(rank));
  Comm& comm = *make_part(call, parent, std::move(cells));
  struct Letting {
    ~Letting() { held.release(); }
    Comm& held;
  } const letting{comm};  // the window holds it
  comm.name = "a window of " + parent.title();
  const Team team(call, comm, 0);
  auto& win = *new Win(comm, join_board(call, comm, team, flavor == MPI_WIN_FLAVOR_DYNAMIC), flavor);
  try {
    show_part(call, team, win, base, asked);
    win.bytes = asked.bytes;
    win.unit = static_cast<int>(std::min<Count>(asked.unit, INT_MAX));
    keep_hints(win, hints);
  } catch (...) {
    win.release();
    throw;
  }
  return win;
}

}  // namespace

void win_create(const Call& call, void* base, MPI_Aint bytes, MPI_Aint unit, Info* hints, Comm& comm, MPI_Win* place) {
  check_unit(unit);
  if (handle_value(base) <= in_place_value && bytes > 0) fail_buffer("base", base);
  *place = handle_of<MPI_Win>(make_window(call, comm, MPI_WIN_FLAVOR_CREATE, base, {bytes, unit, false, false}, hints));
}

void win_allocate(const Call& call, MPI_Aint bytes, MPI_Aint unit, Info* hints, Comm& comm, void* base,
                  MPI_Win* place) {
  check_unit(unit);
  check_place(call, "baseptr", base);
  Win& win = make_window(call, comm, MPI_WIN_FLAVOR_ALLOCATE, nullptr, {bytes, unit, false, false}, hints);
  *static_cast<void**>(base) = win.own().base;
  *place = handle_of<MPI_Win>(win);
}

void win_allocate_shared(const Call& call, MPI_Aint bytes, MPI_Aint unit, Info* hints, Comm& comm, void* base,
                         MPI_Win* place) {
  check_unit(unit);
  check_place(call, "baseptr", base);
  const std::string* const apart = hints != nullptr ? hints->find(apart_key) : nullptr;
  const bool is_apart = apart != nullptr && *apart == "true";
  Win& win = make_window(call, comm, MPI_WIN_FLAVOR_SHARED, nullptr, {bytes, unit, is_apart, false}, hints);
  *static_cast<void**>(base) = win.own().base;
  *place = handle_of<MPI_Win>(win);
}

void win_create_dynamic(const Call& call, Info* hints, Comm& comm, MPI_Win* place) {
  *place = handle_of<MPI_Win>(make_window(call, comm, MPI_WIN_FLAVOR_DYNAMIC, nullptr, {0, 1, false, false}, hints));
}

// Its errors are the window's, which the generated function does not know.
void win_free(const Call& call, MPI_Win* place) {
  Win& win = win_of(call, "win", *place);
  const char* const open = win.is_exposed                        ? "MPI_Win_post"
                           : win.access == Win::Access::start    ? "MPI_Win_start"
                           : win.access == Win::Access::lock     ? "MPI_Win_lock"
                           : win.access == Win::Access::lock_all ? "MPI_Win_lock_all"
                                                                 : nullptr;
  try {
    if (open != nullptr) fail(MPI_ERR_RMA_SYNC, fmt::format("an epoch is open that {} has begun; end it first", open));
    win.attributes.clear(call.rank(), &win);
    flush_processes(call, win);
    barrier(call, *win.comm);  // nobody reaches this rank's memory any more
  } catch (Failure& failure) {
    if (failure.on == nullptr) {
      win.hold();
      failure.on = &win;
    }
    throw;
  }
  win.release();
  *place = MPI_WIN_NULL;
}

// ---------------------------------------------------------------- memory of dynamic windows

namespace {

void check_dynamic(const Win& win) {
  if (!win.is_dynamic())
    fail(MPI_ERR_RMA_FLAVOR,
         fmt::format("win is {}, which is not dynamic; make it by MPI_Win_create_dynamic", win.title()));
}

}  // namespace

void win_attach(const Call&, Win& win, void* base, MPI_Aint bytes) {
  check_dynamic(win);
  if (handle_value(base) <= in_place_value && bytes > 0) fail_buffer("base", base);
  if (!win.own().attach(handle_value(base), bytes)) {
    fail(MPI_ERR_RMA_ATTACH, fmt::format("base is {} with {} bytes, which touch memory that is attached already; "
                                         "detach that first",
                                         base, bytes));
  }
}

void win_detach(const Call&, Win& win, const void* base) {
  check_dynamic(win);
  if (!win.own().detach(handle_value(base)))
    fail(MPI_ERR_RMA_ATTACH, fmt::format("base is {}, where no memory was attached; give the address that "
                                         "MPI_Win_attach got",
                                         base));
}

// ---------------------------------------------------------------- what a window tells

void win_shared_query(const Call& call, Win& win, int rank, MPI_Aint* bytes, MPI_Aint* unit, void* base) {
  check_place(call, "baseptr", base);
  if (win.is_dynamic())
    fail(MPI_ERR_RMA_FLAVOR,
         fmt::format("win is {}, which is dynamic; make it by MPI_Win_allocate_shared", win.title()));
  *bytes = 0;
  *unit = 1;
  *static_cast<void**>(base) = nullptr;
  if (rank == MPI_PROC_NULL) {  // the first that has memory
    for (rank = 0; rank < win.size() && win.member(rank).bytes == 0;) ++rank;
    if (rank == win.size()) return;
  }
  check_window_rank("rank", win, rank);
  const WindowBoard::Member& its = win.member(rank);
  *bytes = its.bytes_here;  // others' memory cannot be reached
  *unit = its.unit;
  *static_cast<void**>(base) = its.is_mapped() ? its.base : nullptr;
}

void win_get_group(const Call&, Win& win, MPI_Group* place) {
  win.comm->group->hold();
  *place = handle_of<MPI_Group>(*win.comm->group);
}

void win_set_name(const Call&, Win& win, const char* name) {
  win.name = std::string(name).substr(0, MPI_MAX_OBJECT_NAME - 1);
}

void win_get_name(const Call& call, MPI_Win handle, char* name, int* length) {
  const bool is_null = handle == MPI_WIN_NULL;  // has a name, too
  give_string(is_null ? "MPI_WIN_NULL" : win_of(call, "win", handle).name, name, MPI_MAX_OBJECT_NAME, length);
}

void win_set_attr(const Call& call, Win& win, int keyval, void* value) {
  win.attributes.set(call.rank(), ObjectKind::win, &win, keyval, value);
}

void win_delete_attr(const Call& call, Win& win, int keyval) {
  win.attributes.remove(call.rank(), ObjectKind::win, &win, keyval);
}

void win_get_attr(const Call& call, Win& win, int keyval, void* place, int* flag) {
  static constexpr int model = MPI_WIN_UNIFIED;
  check_place(call, "attribute_val", place);
  auto& value = *static_cast<const void**>(place);
  *flag = 1;
  switch (keyval) {
    case MPI_WIN_BASE:
      value = win.own().base;
      return;
    case MPI_WIN_SIZE:
      value = &win.bytes;
      return;
    case MPI_WIN_DISP_UNIT:
      value = &win.unit;
      return;
    case MPI_WIN_CREATE_FLAVOR:
      value = &win.flavor;
      return;
    case MPI_WIN_MODEL:
      value = &model;
      return;
    default:
      break;
  }
  call.rank().keyvals.find(keyval, ObjectKind::win);
  void* const* const found = win.attributes.find(keyval);
  *flag = found != nullptr ? 1 : 0;
  if (found != nullptr) value = *found;
}

}  // namespace aplib::mpi
