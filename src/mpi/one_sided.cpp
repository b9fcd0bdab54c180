// SPDX-License-Identifier: MIT
// One-sided calls: a rank reads and writes another one's memory in a window by itself. All that a call asks for is done
// when it returns, but for what is put in another process.
#include <fmt/format.h>

#include <algorithm>

#include "mpi/accumulation.hpp"
#include "mpi/remote_window.hpp"
#include "mpi/request.hpp"

namespace aplib::mpi {

namespace {

// ---------------------------------------------------------------- the target

[[noreturn]] void fail_no_access(const Win& win, int rank) {
  fail(MPI_ERR_RMA_SYNC,
       fmt::format("rank {} of {} cannot be reached now; open an epoch by MPI_Win_fence, MPI_Win_start with a group "
                   "that has this rank, MPI_Win_lock or MPI_Win_lock_all",
                   rank, win.title()));
}

[[noreturn]] void fail_range(const Win& win, int rank, MPI_Aint displacement, Count bytes) {
  const WindowBoard::Member& its = win.member(rank);
  if (win.is_dynamic()) {
    fail(MPI_ERR_RMA_RANGE,
         fmt::format("target_disp is {:#x}; {} bytes from there on are not attached at rank {}; give an address that "
                     "MPI_Get_address has given to that rank",
                     static_cast<std::uint64_t>(displacement), bytes, rank));
  }
  fail(MPI_ERR_RMA_RANGE,
       fmt::format("target_disp is {}, and {} bytes are accessed; the window of rank {} has {} bytes, in units of {}",
                   displacement, bytes, rank, its.bytes, its.unit));
}

/// `count` elements of a type in the memory of a rank, which the caller may reach.
Elements target_elements(Win& win, int rank, MPI_Aint displacement, Count count, const Datatype& type) {
  if (!win.reaches(rank)) [[unlikely]]
    fail_no_access(win, rank);
  win.is_used = true;
  WindowBoard::Member& its = win.member(rank);
  Elements elements{nullptr, &type.layout(), count, type.extent()};
  Count bytes = 0;
  if (__builtin_mul_overflow(type.size(), count, &bytes)) [[unlikely]]
    fail_range(win, rank, displacement, INT64_MAX);
  // Wider numbers: what does not fit into 64 bits is out of range.
  __extension__ using Wide = __int128;
  const Wide offset = Wide{displacement} * its.unit;
  const Wide span = Wide{std::max<Count>(count - 1, 0)} * type.extent();
  const Wide first = offset + type.layout().lower() + std::min<Wide>(span, 0);
  const Wide end = offset + type.layout().upper() + std::max<Wide>(span, 0);
  if (bytes != 0) {
    // What another process has attached is for that to say.
    const bool is_there =
        win.is_dynamic()
            ? first > 0 && end <= INT64_MAX &&
                  (!its.is_here || its.is_attached(static_cast<std::uintptr_t>(first), static_cast<Count>(end - first)))
            : first >= 0 && end <= its.bytes;
    if (!is_there) [[unlikely]]
      fail_range(win, rank, displacement, end - first <= INT64_MAX ? static_cast<Count>(end - first) : INT64_MAX);
  }
  elements.address = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(its.base) +
                                             static_cast<std::uintptr_t>(static_cast<Count>(offset)));
  return elements;
}

/// What a call says of the other side.
struct Target {
  int rank;
  MPI_Aint displacement;
  MPI_Count count;
  TypeHandle& type;
};

/// Nothing is to be done for MPI_PROC_NULL.
bool is_to_nobody(const Win& win, int rank) {
  if (rank == MPI_PROC_NULL) return true;
  check_window_rank("target_rank", win, rank);
  return false;
}

Elements target_elements(Win& win, const Target& target) {
  return target_elements(win, target.rank, target.displacement, target.count,
                         *committed("target_datatype", target.type));
}

Elements origin_elements(const void* address, MPI_Count count, TypeHandle& type) {
  return elements_at("origin_addr", address, count, *committed("origin_datatype", type));
}

/// As of a message: a receiver's memory may be larger than what is sent.
void check_fits(const char* to, Count room, const char* from, Count bytes) {
  if (bytes > room) [[unlikely]]
    fail(MPI_ERR_TRUNCATE,
         fmt::format("{} has {} bytes, {} has room for {}; let counts and datatypes agree", from, bytes, to, room));
}

}  // namespace

// ---------------------------------------------------------------- put and get

void put(const Call& call, const void* address, MPI_Count count, TypeHandle& type, int rank, MPI_Aint displacement,
         MPI_Count target_count, TypeHandle& target_type, Win& win) {
  const Target target{rank, displacement, target_count, target_type};
  if (is_to_nobody(win, target.rank)) return;
  const Elements from = origin_elements(address, count, type);
  const Elements to = target_elements(win, target);
  check_fits("the target", to.bytes(), "the origin", from.bytes());
  if (!win.member(target.rank).is_mapped()) return RemoteTarget(call, win, target.rank).put(to, from, from.bytes());
  copy(to, from, 0, from.bytes());
}

void get(const Call& call, void* address, MPI_Count count, TypeHandle& type, int rank, MPI_Aint displacement,
         MPI_Count target_count, TypeHandle& target_type, Win& win) {
  const Target target{rank, displacement, target_count, target_type};
  if (is_to_nobody(win, target.rank)) return;
  const Elements to = origin_elements(address, count, type);
  const Elements from = target_elements(win, target);
  check_fits("the origin", to.bytes(), "the target", from.bytes());
  if (!win.member(target.rank).is_mapped()) return RemoteTarget(call, win, target.rank).get(to, from, from.bytes());
  copy(to, from, 0, from.bytes());
}

// ---------------------------------------------------------------- what combines

namespace {

void combine_at(const Call& call, Win& win, int rank, const Accumulation& how, const Elements& to, const Elements& from,
                const Elements* result, Count bytes) {
  WindowBoard::Member& its = win.member(rank);
  if (!its.is_mapped()) return RemoteTarget(call, win, rank).combine(how, to, from, result, bytes);
  how.combine(its, to, from, result, bytes);
}

}  // namespace

void accumulate(const Call& call, const void* address, MPI_Count count, TypeHandle& type, int rank,
                MPI_Aint displacement, MPI_Count target_count, TypeHandle& target_type, OpHandle& op, Win& win) {
  const Target target{rank, displacement, target_count, target_type};
  if (is_to_nobody(win, target.rank)) return;
  const Elements from = origin_elements(address, count, type);
  const Elements to = target_elements(win, target);
  check_fits("the target", to.bytes(), "the origin", from.bytes());
  if (from.bytes() == 0) return;
  const Accumulation how(op.predefined, *target.type.datatype);
  how.check_origin(*type.datatype);
  combine_at(call, win, target.rank, how, to, from, nullptr, from.bytes());
}

void get_accumulate(const Call& call, const void* address, MPI_Count count, MPI_Datatype handle, void* result,
                    MPI_Count result_count, TypeHandle& result_type, int rank, MPI_Aint displacement,
                    MPI_Count target_count, TypeHandle& target_type, OpHandle& op, Win& win) {
  const Target target{rank, displacement, target_count, target_type};
  if (is_to_nobody(win, target.rank)) return;
  const Elements kept = elements_at("result_addr", result, result_count, *committed("result_datatype", result_type));
  const Elements to = target_elements(win, target);
  check_fits("the result", kept.bytes(), "the target", to.bytes());
  if (to.bytes() == 0) return;
  const Accumulation how(op.predefined, *target.type.datatype);
  // Of MPI_NO_OP, there is no origin.
  if (how.only_reads()) return combine_at(call, win, target.rank, how, to, {}, &kept, to.bytes());
  TypeHandle& type = datatype_of(call, "origin_datatype", handle);
  const Elements from = origin_elements(address, count, type);
  how.check_origin(*type.datatype);
  if (from.bytes() != to.bytes())
    fail(from.bytes() > to.bytes() ? MPI_ERR_TRUNCATE : MPI_ERR_COUNT,
         fmt::format("the origin has {} bytes, the target {}; let counts and datatypes agree", from.bytes(),
                     to.bytes()));
  combine_at(call, win, target.rank, how, to, from, &kept, to.bytes());
}

// ---------------------------------------------------------------- requests

namespace {

/// Requests are for epochs without the target.
void check_passive(const Win& win, int rank) {
  if (!win.is_passive() && rank != MPI_PROC_NULL) [[unlikely]]
    fail(MPI_ERR_RMA_SYNC,
         "no rank is locked; call MPI_Win_lock or MPI_Win_lock_all before, or the call without a "
         "request");
}

/// Of what is over.
MPI_Request finished(const Call& call) { return handle_of<MPI_Request>(call.rank().sent()); }

}  // namespace

void rput(const Call& call, const void* address, MPI_Count count, TypeHandle& type, int rank, MPI_Aint displacement,
          MPI_Count target_count, TypeHandle& target_type, Win& win, MPI_Request* request) {
  check_passive(win, rank);
  put(call, address, count, type, rank, displacement, target_count, target_type, win);
  *request = finished(call);
}

void rget(const Call& call, void* address, MPI_Count count, TypeHandle& type, int rank, MPI_Aint displacement,
          MPI_Count target_count, TypeHandle& target_type, Win& win, MPI_Request* request) {
  check_passive(win, rank);
  get(call, address, count, type, rank, displacement, target_count, target_type, win);
  *request = finished(call);
}

void raccumulate(const Call& call, const void* address, MPI_Count count, TypeHandle& type, int rank,
                 MPI_Aint displacement, MPI_Count target_count, TypeHandle& target_type, OpHandle& op, Win& win,
                 MPI_Request* request) {
  check_passive(win, rank);
  accumulate(call, address, count, type, rank, displacement, target_count, target_type, op, win);
  *request = finished(call);
}

void rget_accumulate(const Call& call, const void* address, MPI_Count count, MPI_Datatype type, void* result,
                     MPI_Count result_count, TypeHandle& result_type, int rank, MPI_Aint displacement,
                     MPI_Count target_count, TypeHandle& target_type, OpHandle& op, Win& win, MPI_Request* request) {
  check_passive(win, rank);
  get_accumulate(call, address, count, type, result, result_count, result_type, rank, displacement, target_count,
                 target_type, op, win);
  *request = finished(call);
}

void fetch_and_op(const Call& call, const void* address, void* result, TypeHandle& type, int rank,
                  MPI_Aint displacement, OpHandle& op, Win& win) {
  if (is_to_nobody(win, rank)) return;
  const Datatype& datatype = *committed("datatype", type);
  if (datatype.code() == BasicType::null)
    fail(MPI_ERR_TYPE, "datatype is derived; use a predefined one, or MPI_Get_accumulate");
  const bool reads_origin = op.predefined != Operation::no_op;
  const Elements from = elements_at("origin_addr", reads_origin ? address : result, 1, datatype);
  const Elements kept = elements_at("result_addr", result, 1, datatype);
  const Elements to = target_elements(win, rank, displacement, 1, datatype);
  combine_at(call, win, rank, Accumulation(op.predefined, datatype), to, from, &kept, to.bytes());
}

void compare_and_swap(const Call& call, const void* address, const void* compared, void* result, TypeHandle& type,
                      int rank, MPI_Aint displacement, Win& win) {
  if (is_to_nobody(win, rank)) return;
  const Datatype& datatype = *committed("datatype", type);
  const BasicInfo& info = basic_info(datatype.code());
  if (info.kind != Kind::integer && info.kind != Kind::natural && info.kind != Kind::logical && info.kind != Kind::raw)
    fail(MPI_ERR_TYPE,
         "datatype is none for which MPI_Compare_and_swap is defined; use an integer, a logical type or "
         "MPI_BYTE");
  const Elements from = elements_at("origin_addr", address, 1, datatype);
  const Elements wanted = elements_at("compare_addr", compared, 1, datatype);
  const Elements kept = elements_at("result_addr", result, 1, datatype);
  const Elements to = target_elements(win, rank, displacement, 1, datatype);
  if (!win.member(rank).is_mapped()) {
    return RemoteTarget(call, win, rank).compare_and_swap(to, from.address, wanted.address, kept.address, info.size);
  }
  compare_and_swap(win.member(rank), to.address, from.address, wanted.address, kept.address, info.size);
}

}  // namespace aplib::mpi
