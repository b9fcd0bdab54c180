// SPDX-License-Identifier: MIT
// Fortran's functions that are no mere translation of C's: other parameters, results, arrays of strings, and those of
// MPI-1, whose addresses are plain integers.
#include "mpi/fortran/convert.hpp"

#include <climits>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace aplib::mpi::fortran {

int peers_of(int comm, const void* buffer) {
  if (is_in_place(buffer)) return 0;
  const auto handle = handle_of<MPI_Comm>(comm);
  int is_inter = 0;
  int size = 0;
  if (PMPI_Comm_test_inter(handle, &is_inter) != MPI_SUCCESS) return 0;
  (is_inter != 0 ? PMPI_Comm_remote_size : PMPI_Comm_size)(handle, &size);
  return size;
}

namespace {

struct Neighbours {
  int sources = 0;
  int destinations = 0;
};

Neighbours neighbours_of(int comm) {
  const auto handle = handle_of<MPI_Comm>(comm);
  Neighbours found;
  int kind = MPI_UNDEFINED;
  int count = 0;
  if (PMPI_Topo_test(handle, &kind) != MPI_SUCCESS) return found;
  if (kind == topology(MPI_DIST_GRAPH)) {
    PMPI_Dist_graph_neighbors_count(handle, &found.sources, &found.destinations, &count);
  } else if (kind == topology(MPI_CART)) {
    PMPI_Cartdim_get(handle, &count);
    found = {2 * count, 2 * count};
  } else if (kind == topology(MPI_GRAPH)) {
    int rank = 0;
    PMPI_Comm_rank(handle, &rank);
    PMPI_Graph_neighbors_count(handle, rank, &count);
    found = {count, count};
  }
  return found;
}

}  // namespace

const MPI_Datatype* kept_datatypes(const int* numbers, int count) {
  static std::mutex mutex;
  static std::set<std::vector<MPI_Datatype>> arrays;
  Handles<MPI_Datatype, true, false> datatypes(numbers, count);
  const std::lock_guard lock(mutex);
  return arrays.emplace(datatypes.data(), datatypes.data() + std::max(count, 0)).first->data();
}

int sources_of(int comm) { return neighbours_of(comm).sources; }
int destinations_of(int comm) { return neighbours_of(comm).destinations; }

namespace {

/// Tells the library what gfortran's types are, unless somebody has told it before.
void tell_of_types() {
  const MPI_Info none = handle_of<MPI_Info>(number_of(MPI_INFO_NULL));
  MPI_Info info = none;
  if (PMPI_Abi_get_fortran_info(&info) != MPI_SUCCESS) return;
  if (info != none) {
    PMPI_Info_free(&info);
    return;
  }
  static constexpr std::pair<const char*, const char*> types[] = {
      {"mpi_logical_size", "4"},
      {"mpi_integer_size", "4"},
      {"mpi_real_size", "4"},
      {"mpi_double_precision_size", "8"},
      {"mpi_logical1_supported", "true"},
      {"mpi_logical2_supported", "true"},
      {"mpi_logical4_supported", "true"},
      {"mpi_logical8_supported", "true"},
      {"mpi_logical16_supported", "true"},
      {"mpi_integer1_supported", "true"},
      {"mpi_integer2_supported", "true"},
      {"mpi_integer4_supported", "true"},
      {"mpi_integer8_supported", "true"},
      {"mpi_integer16_supported", "true"},
      {"mpi_real2_supported", "false"},
      {"mpi_real4_supported", "true"},
      {"mpi_real8_supported", "true"},
      {"mpi_real16_supported", "true"},
      {"mpi_complex4_supported", "false"},
      {"mpi_complex8_supported", "true"},
      {"mpi_complex16_supported", "true"},
      {"mpi_complex32_supported", "true"},
      {"mpi_double_complex_supported", "true"},
  };
  PMPI_Info_create(&info);
  for (const auto& [key, value] : types) PMPI_Info_set(info, key, value);
  PMPI_Abi_set_fortran_info(info);
  PMPI_Info_free(&info);
  int is_true = 1;
  int is_false = 0;
  int is_set = 0;
  PMPI_Abi_get_fortran_booleans(4, &is_true, &is_false, &is_set);
  if (is_set == 0) PMPI_Abi_set_fortran_booleans(4, &is_true, &is_false);
}

bool is_root(int comm, int root) {
  int rank = MPI_PROC_NULL;
  PMPI_Comm_rank(handle_of<MPI_Comm>(comm), &rank);
  return rank == root;
}

int* errcodes(int* codes) noexcept { return is_no_errcodes(codes) ? MPI_ERRCODES_IGNORE : codes; }

/// A list of strings that are `stride` strings apart, which a blank one ends, unless `count` says how many there are.
class Strings {
 public:
  Strings(const char* first, std::size_t length, std::size_t stride, long count = -1) {
    for (const char* at = first; count < 0 || static_cast<long>(texts_.size()) < count; at += stride * length) {
      const Text text(at, length);
      if (count < 0 && *text.data() == '\0') break;
      texts_.emplace_back(text.data());
    }
    for (std::string& text : texts_) pointers_.push_back(text.data());
    pointers_.push_back(nullptr);
  }
  [[nodiscard]] char** data() noexcept { return pointers_.data(); }

 private:
  std::vector<std::string> texts_;
  std::vector<char*> pointers_;
};

/// `value` as a plain integer, unless the call has failed or it does not fit.
void give_short(const char* call, MPI_Aint value, int* place, int* ierror) {
  if (*ierror != MPI_SUCCESS) return;
  if (value >= INT_MIN && value <= INT_MAX) {
    *place = static_cast<int>(value);
  } else {
    *ierror = aplib_mpi_raise(call, MPI_ERR_VALUE_TOO_LARGE,
                              "the address or size does not fit an INTEGER; use the function of MPI-2 in its place "
                              "(MPI_Get_address, MPI_Type_get_extent), with INTEGER(KIND=MPI_ADDRESS_KIND)");
    *ierror = code_of(*ierror);
  }
}

std::vector<MPI_Aint> widened(const int* values, int count) {
  return count > 0 ? std::vector<MPI_Aint>(values, values + count) : std::vector<MPI_Aint>(1);
}

}  // namespace
}  // namespace aplib::mpi::fortran

using namespace aplib::mpi::fortran;

extern "C" {
#pragma GCC visibility push(default)

// ---------------------------------------------------------------- begin, and time

APLIB_SUBROUTINE(init, (int* ierror)) {
  *ierror = PMPI_Init(nullptr, nullptr);
  if (*ierror == MPI_SUCCESS) tell_of_types();
}

APLIB_SUBROUTINE(init_thread, (const int* required, int* provided, int* ierror)) {
  *ierror = PMPI_Init_thread(nullptr, nullptr, *required, provided);
  if (*ierror == MPI_SUCCESS) tell_of_types();
}

APLIB_SUBROUTINE(pcontrol, (const int* level)) { PMPI_Pcontrol(*level); }

APLIB_SUBROUTINE(info_create_env, (int* info, int* ierror)) {
  Handles<MPI_Info, false, true> info_(info, 1);
  *ierror = PMPI_Info_create_env(0, nullptr, info_.data());
  info_.give();
}

double pmpi_wtime_() { return PMPI_Wtime(); }
double pmpi_wtick_() { return PMPI_Wtick(); }
MPI_Aint pmpi_aint_add_(const MPI_Aint* base, const MPI_Aint* disp) { return PMPI_Aint_add(*base, *disp); }
MPI_Aint pmpi_aint_diff_(const MPI_Aint* one, const MPI_Aint* other) { return PMPI_Aint_diff(*one, *other); }
[[gnu::weak, gnu::alias("pmpi_wtime_")]] double mpi_wtime_();
[[gnu::weak, gnu::alias("pmpi_wtick_")]] double mpi_wtick_();
[[gnu::weak, gnu::alias("pmpi_aint_add_")]] MPI_Aint mpi_aint_add_(const MPI_Aint* base, const MPI_Aint* disp);
[[gnu::weak, gnu::alias("pmpi_aint_diff_")]] MPI_Aint mpi_aint_diff_(const MPI_Aint* one, const MPI_Aint* other);

// ---------------------------------------------------------------- strings

// Lengths are without C's zero.
APLIB_SUBROUTINE(info_get_string, (const int* info, const char* key, int* buflen, char* value, int* flag, int* ierror,
                                   Length key_length, Length value_length)) {
  const Text key_(key, key_length, true);
  int room = *buflen > 0 && *buflen < INT_MAX ? *buflen + 1 : *buflen;
  Room value_(value, value_length, room);
  *ierror = PMPI_Info_get_string(handle_of<MPI_Info>(*info), key_.data(), &room, value_.data(), flag);
  value_.give();
  if (*ierror == MPI_SUCCESS && *flag != 0) *buflen = room - 1;
}

APLIB_SUBROUTINE(session_get_nth_pset, (const int* session, const int* info, const int* n, int* pset_len,
                                        char* pset_name, int* ierror, Length pset_name_length)) {
  int room = *pset_len > 0 && *pset_len < INT_MAX ? *pset_len + 1 : *pset_len;
  Room pset_name_(pset_name, pset_name_length, room);
  *ierror = PMPI_Session_get_nth_pset(handle_of<MPI_Session>(*session), handle_of<MPI_Info>(*info), *n, &room,
                                      pset_name_.data());
  pset_name_.give();
  if (*ierror == MPI_SUCCESS) *pset_len = room - 1;
}

APLIB_SUBROUTINE(comm_spawn, (const char* command, const char* argv, const int* maxprocs, const int* info,
                              const int* root, const int* comm, int* intercomm, int* array_of_errcodes, int* ierror,
                              Length command_length, Length argv_length)) {
  const bool reads = is_root(*comm, *root);
  const Text command_(reads ? command : "", reads ? command_length : 0);
  const bool has_arguments = reads && !is_no_argv(argv);
  Strings argv_(argv, argv_length, 1, has_arguments ? -1 : 0);
  Handles<MPI_Comm, false, true> intercomm_(intercomm, 1);
  *ierror = PMPI_Comm_spawn(command_.data(), has_arguments ? argv_.data() : MPI_ARGV_NULL, *maxprocs,
                            handle_of<MPI_Info>(*info), *root, handle_of<MPI_Comm>(*comm), intercomm_.data(),
                            errcodes(array_of_errcodes));
  intercomm_.give();
}

APLIB_SUBROUTINE(comm_spawn_multiple,
                 (const int* count, const char* array_of_commands, const char* array_of_argv,
                  const int* array_of_maxprocs, const int* array_of_info, const int* root, const int* comm,
                  int* intercomm, int* array_of_errcodes, int* ierror, Length command_length, Length argv_length)) {
  const long programs = is_root(*comm, *root) && *count > 0 ? *count : 0;
  const bool has_arguments = programs > 0 && !is_no_argv(array_of_argv);
  Strings commands(array_of_commands, command_length, 1, programs);
  std::vector<Strings> lists;
  std::vector<char**> arguments;
  for (long i = 0; has_arguments && i < programs; ++i) {
    lists.emplace_back(array_of_argv + static_cast<std::size_t>(i) * argv_length, argv_length,
                       static_cast<std::size_t>(programs));
  }
  for (Strings& list : lists) arguments.push_back(list.data());
  Handles<MPI_Info, true, false> infos(array_of_info, programs);
  Handles<MPI_Comm, false, true> intercomm_(intercomm, 1);
  *ierror = PMPI_Comm_spawn_multiple(*count, commands.data(), has_arguments ? arguments.data() : MPI_ARGVS_NULL,
                                     array_of_maxprocs, infos.data(), *root, handle_of<MPI_Comm>(*comm),
                                     intercomm_.data(), errcodes(array_of_errcodes));
  intercomm_.give();
}

// ---------------------------------------------------------------- MPI-1

APLIB_SUBROUTINE(address, (const void* location, int* address, int* ierror)) {
  MPI_Aint wide = 0;
  *ierror = PMPI_Get_address(buffer_at(location), &wide);
  give_short("MPI_Address", wide, address, ierror);
}

APLIB_SUBROUTINE(type_extent, (const int* datatype, int* extent, int* ierror)) {
  MPI_Aint lb = 0;
  MPI_Aint wide = 0;
  *ierror = PMPI_Type_get_extent(handle_of<MPI_Datatype>(*datatype), &lb, &wide);
  give_short("MPI_Type_extent", wide, extent, ierror);
}

APLIB_SUBROUTINE(type_lb, (const int* datatype, int* displacement, int* ierror)) {
  MPI_Aint lb = 0;
  MPI_Aint extent = 0;
  *ierror = PMPI_Type_get_extent(handle_of<MPI_Datatype>(*datatype), &lb, &extent);
  give_short("MPI_Type_lb", lb, displacement, ierror);
}

APLIB_SUBROUTINE(type_ub, (const int* datatype, int* displacement, int* ierror)) {
  MPI_Aint lb = 0;
  MPI_Aint extent = 0;
  *ierror = PMPI_Type_get_extent(handle_of<MPI_Datatype>(*datatype), &lb, &extent);
  give_short("MPI_Type_ub", lb + extent, displacement, ierror);
}

APLIB_SUBROUTINE(type_hvector, (const int* count, const int* blocklength, const int* stride, const int* oldtype,
                                int* newtype, int* ierror)) {
  Handles<MPI_Datatype, false, true> newtype_(newtype, 1);
  *ierror = PMPI_Type_create_hvector(*count, *blocklength, *stride, handle_of<MPI_Datatype>(*oldtype), newtype_.data());
  newtype_.give();
}

APLIB_SUBROUTINE(type_hindexed, (const int* count, const int* array_of_blocklengths, const int* array_of_displacements,
                                 const int* oldtype, int* newtype, int* ierror)) {
  const std::vector<MPI_Aint> displacements = widened(array_of_displacements, *count);
  Handles<MPI_Datatype, false, true> newtype_(newtype, 1);
  *ierror = PMPI_Type_create_hindexed(*count, array_of_blocklengths, displacements.data(),
                                      handle_of<MPI_Datatype>(*oldtype), newtype_.data());
  newtype_.give();
}

APLIB_SUBROUTINE(type_struct, (const int* count, const int* array_of_blocklengths, const int* array_of_displacements,
                               const int* array_of_types, int* newtype, int* ierror)) {
  const std::vector<MPI_Aint> displacements = widened(array_of_displacements, *count);
  Handles<MPI_Datatype, true, false> types(array_of_types, *count);
  Handles<MPI_Datatype, false, true> newtype_(newtype, 1);
  *ierror = PMPI_Type_create_struct(*count, array_of_blocklengths, displacements.data(), types.data(), newtype_.data());
  newtype_.give();
}

// ---------------------------------------------------------------- Fortran's own

/// The compiler believes that it changes the buffer.
void mpi_f_sync_reg_(void*) {}

// MPI_Sizeof of each type of the module mpi.
#define APLIB_SIZE(type, bytes)                                          \
  void aplib_mpi_sizeof_##type##_(const void*, int* size, int* ierror) { \
    *size = bytes;                                                       \
    *ierror = MPI_SUCCESS;                                               \
  }
APLIB_SIZE(integer1, 1)
APLIB_SIZE(integer2, 2)
APLIB_SIZE(integer4, 4)
APLIB_SIZE(integer8, 8)
APLIB_SIZE(integer16, 16)
APLIB_SIZE(real4, 4)
APLIB_SIZE(real8, 8)
APLIB_SIZE(real10, 16)
APLIB_SIZE(real16, 16)
APLIB_SIZE(complex4, 8)
APLIB_SIZE(complex8, 16)
APLIB_SIZE(complex10, 32)
APLIB_SIZE(complex16, 32)
APLIB_SIZE(logical1, 1)
APLIB_SIZE(logical2, 2)
APLIB_SIZE(logical4, 4)
APLIB_SIZE(logical8, 8)
APLIB_SIZE(logical16, 16)
APLIB_SIZE(character1, 1)

#pragma GCC visibility pop
}
