// SPDX-License-Identifier: MIT
// Sessions, and the process sets that they know: all ranks, and the caller alone.
#include "mpi/session.hpp"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "mpi/comm.hpp"
#include "mpi/info.hpp"
#include "mpi/rank.hpp"

namespace aplib::mpi {

namespace {

constexpr const char* level_key = "thread_level";
constexpr std::array<Name, 4> levels = {{{MPI_THREAD_SINGLE, "MPI_THREAD_SINGLE", ""},
                                         {MPI_THREAD_FUNNELED, "MPI_THREAD_FUNNELED", ""},
                                         {MPI_THREAD_SERIALIZED, "MPI_THREAD_SERIALIZED", ""},
                                         {MPI_THREAD_MULTIPLE, "MPI_THREAD_MULTIPLE", ""}}};

int wanted_level(const Info* hints) {
  const std::string* const text = hints != nullptr ? hints->find(level_key) : nullptr;
  if (text == nullptr) return MPI_THREAD_SINGLE;
  for (const Name& level : levels) {
    if (*text == level.name) return level.value;
  }
  fail(MPI_ERR_INFO_VALUE,
       fmt::format("info has the {} {}; use MPI_THREAD_SINGLE, _FUNNELED, _SERIALIZED or _MULTIPLE", level_key, *text));
}

constexpr std::array<const char*, 2> process_sets = {"mpi://WORLD", "mpi://SELF"};

/// Case does not matter in names of the standard's.
Group& process_set(Rank& rank, const char* name) {
  if (::strcasecmp(name, process_sets[0]) == 0) return rank.world_group();
  if (::strcasecmp(name, process_sets[1]) == 0) return *rank.self().group;
  fail(MPI_ERR_ARG, fmt::format("pset_name is {}; there are {} and {}", name, process_sets[0], process_sets[1]));
}

MPI_Info give_info(Rank& rank, const char* key, std::string value) {
  auto& info = *new Info(rank);
  info.set(key, std::move(value));
  return handle_of<MPI_Info>(info);
}

}  // namespace

Session& session_of(const Call&, const char* parameter, MPI_Session handle) {
  return object_of<Session>(MPI_ERR_SESSION, parameter, handle, "a session");
}

// Its error handler is there for this call, too.
void session_init(const Call& call, Info* hints, Errhandler& handler, MPI_Session* place) {
  Rank& rank = call.rank();
  auto& session = *new Session(rank, handler);
  try {
    rank.sessions.reserve(rank.sessions.size() + 1);
    rank.begin(call, wanted_level(hints));
  } catch (Failure& failure) {
    failure.on = &session;
    throw;
  }
  rank.sessions.push_back(&session);
  *place = handle_of<MPI_Session>(session);
}

void session_finalize(const Call& call, MPI_Session* place) {
  Rank& rank = call.rank();
  Session& session = session_of(call, "session", *place);
  if (rank.sessions.size() == 1 && rank.world_phase != Rank::Phase::initialized) {
    rank.pending_calls.go_on(call.name());
    rank.pending_calls.check_over();
  }
  std::erase(rank.sessions, &session);
  session.release();
  *place = MPI_SESSION_NULL;
  rank.end(call);
}

void session_get_info(const Call& call, Session&, MPI_Info* place) {
  const auto* const level = std::ranges::find(levels, call.rank().thread_level, &Name::value);
  *place = give_info(call.rank(), level_key, level->name);
}

void session_get_num_psets(const Call&, Session&, Info*, int* count) { *count = static_cast<int>(process_sets.size()); }

// Without room it only tells how much there must be.
void session_get_nth_pset(const Call& call, Session&, Info*, int n, int* length, char* name) {
  if (n < 0 || n >= static_cast<int>(process_sets.size()))
    fail(MPI_ERR_ARG, fmt::format("n is {}; process sets have the numbers 0..{}", n, process_sets.size() - 1));
  if (*length < 0) fail_length("pset_len", *length);
  const char* const text = process_sets.at(static_cast<std::size_t>(n));
  if (*length > 0) {
    check_place(call, "pset_name", name);
    const std::size_t count = std::min(std::strlen(text), static_cast<std::size_t>(*length) - 1);
    std::memcpy(name, text, count);
    name[count] = '\0';
  }
  *length = static_cast<int>(std::strlen(text)) + 1;
}

void session_get_pset_info(const Call& call, Session&, const char* name, MPI_Info* place) {
  *place = give_info(call.rank(), "mpi_size", std::to_string(process_set(call.rank(), name).size()));
}

void group_from_session_pset(const Call& call, Session&, const char* name, MPI_Group* place) {
  Group& group = process_set(call.rank(), name);
  group.hold();
  *place = handle_of<MPI_Group>(group);
}

}  // namespace aplib::mpi
