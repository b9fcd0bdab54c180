// SPDX-License-Identifier: MIT
// Functions that need more than a conversion of each argument, and what only Open MPI has.
#include "mpi/openmpi/convert.hpp"

#include <climits>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace aplib::mpi::openmpi {

namespace {
const AplibMpiFunctions& own = aplib_mpi_functions;
}

MPI_Status standard_status(const ForeignStatus& status) noexcept {
  MPI_Status result{};
  result.MPI_SOURCE = static_cast<int>(standard_rank(status.source));
  result.MPI_TAG = static_cast<int>(standard_any_tag(status.tag));
  result.MPI_ERROR = static_cast<int>(standard_code(status.error));
  std::memcpy(result.MPI_internal, &status.bytes, sizeof status.bytes);
  result.MPI_internal[2] = status.is_cancelled;
  return result;
}

const MPI_Datatype* kept_datatypes(const MPI_Datatype* datatypes, int count) {
  static std::mutex mutex;
  static std::set<std::vector<MPI_Datatype>> arrays;
  if (datatypes == nullptr) return nullptr;
  const Handles<MPI_Datatype> handles(datatypes, count);
  const std::lock_guard lock(mutex);
  return arrays.emplace(handles.data(), handles.data() + std::max(count, 0)).first->data();
}

int peers_of(MPI_Comm comm, const void* buffer) {
  int is_inter = 0;
  int size = 0;
  if (buffer == MPI_IN_PLACE || own.Comm_test_inter(standard(comm), &is_inter) != MPI_SUCCESS) return 0;
  (is_inter != 0 ? own.Comm_remote_size : own.Comm_size)(standard(comm), &size);
  return size;
}

namespace {

struct Neighbours {
  int sources = 0;
  int destinations = 0;
};

Neighbours neighbours_of(MPI_Comm foreign_comm) {
  const MPI_Comm comm = standard(foreign_comm);
  Neighbours found;
  int topology = MPI_UNDEFINED;
  int count = 0;
  if (own.Topo_test(comm, &topology) != MPI_SUCCESS) return found;
  if (topology == MPI_DIST_GRAPH) {
    own.Dist_graph_neighbors_count(comm, &found.sources, &found.destinations, &count);
  } else if (topology == MPI_CART) {
    own.Cartdim_get(comm, &count);
    found = {2 * count, 2 * count};
  } else if (topology == MPI_GRAPH) {
    int rank = 0;
    own.Comm_rank(comm, &rank);
    own.Graph_neighbors_count(comm, rank, &count);
    found = {count, count};
  }
  return found;
}

}  // namespace

int sources_of(MPI_Comm comm) { return neighbours_of(comm).sources; }
int destinations_of(MPI_Comm comm) { return neighbours_of(comm).destinations; }

namespace {

using Convert = long (*)(long);

std::vector<int> converted(Convert convert, const int* values, long count) {
  std::vector<int> result(static_cast<std::size_t>(std::max(count, 0L)));
  if (values == nullptr) return result;
  std::transform(values, values + result.size(), result.begin(),
                 [convert](int value) { return static_cast<int>(convert(value)); });
  return result;
}

void convert_in_place(Convert convert, int* values, long count) {
  std::transform(values, values + std::max(count, 0L), values,
                 [convert](int value) { return static_cast<int>(convert(value)); });
}

/// The attribute of a predefined key, whose value is one of a few numbers: the foreign number's place.
int* place_of(int number) {
  static std::mutex mutex;
  static std::set<int> numbers;
  const std::lock_guard lock(mutex);
  return const_cast<int*>(&*numbers.insert(number).first);
}

/// `keyval`: the standard's.
void show_attribute(int keyval, void** value) {
  const Convert convert = keyval == MPI_HOST || keyval == MPI_IO ? foreign_rank
                          : keyval == MPI_WIN_CREATE_FLAVOR      ? foreign_flavor
                          : keyval == MPI_WIN_MODEL              ? foreign_model
                                                                 : nullptr;
  if (convert != nullptr) *value = place_of(static_cast<int>(convert(*static_cast<const int*>(*value))));
}

template <class Get, class Handle>
int get_attribute(Get* get, Handle object, int keyval, void* place, int* flag) {
  const int key = static_cast<int>(standard_keyval(keyval));
  const int error = get(standard(object), key, place, flag);
  if (error == MPI_SUCCESS && *flag != 0) show_attribute(key, static_cast<void**>(place));
  return returned(error);
}

/// The integers that a datatype was made of, where some stand for what has other numbers in Open MPI.
void show_integers(int combiner, int* integers) {
  if (combiner == MPI_COMBINER_SUBARRAY) {
    convert_in_place(foreign_order, integers + 1 + 3 * integers[0], 1);
  } else if (combiner == MPI_COMBINER_DARRAY) {
    const int dimensions = integers[2];
    convert_in_place(foreign_distribution, integers + 3 + dimensions, dimensions);
    convert_in_place(foreign_darg, integers + 3 + 2 * dimensions, dimensions);
    convert_in_place(foreign_order, integers + 3 + 4 * dimensions, 1);
  }
}

// A message that is sent by MPI_Bsend takes more of a buffer in the standard ABI than programs have made room for. The
// library uses none of the buffer, so it may believe that there is more.
constexpr int more_room = MPI_BSEND_OVERHEAD - 128;
int attached = 0;

int status_integers = 0;

}  // namespace
}  // namespace aplib::mpi::openmpi

using namespace aplib::mpi::openmpi;

extern "C" {
#pragma GCC visibility push(default)

// The code is the program's exit status, and no error class.
APLIB_FUNCTION(Abort, (MPI_Comm comm, int errorcode)) { return returned(own.Abort(standard(comm), errorcode)); }

APLIB_FUNCTION(Pcontrol, (int level, ...)) { return returned(own.Pcontrol(level)); }

APLIB_FUNCTION(Buffer_attach, (void* buffer, int size)) {
  const int error = own.Buffer_attach(buffer, size > 0 && size <= INT_MAX - more_room ? size + more_room : size);
  if (error == MPI_SUCCESS) attached = size;
  return returned(error);
}
APLIB_FUNCTION(Buffer_detach, (void* buffer_addr, int* size)) {
  const int error = own.Buffer_detach(buffer_addr, size);
  if (error == MPI_SUCCESS) *size = std::exchange(attached, 0);
  return returned(error);
}

APLIB_FUNCTION(Comm_spawn_multiple, (int count, char** array_of_commands, char*** array_of_argv,
                                     const int array_of_maxprocs[], const MPI_Info array_of_info[], int root,
                                     MPI_Comm comm, MPI_Comm* intercomm, int array_of_errcodes[])) {
  return returned(own.Comm_spawn_multiple(count, array_of_commands, array_of_argv, array_of_maxprocs, array_of_info,
                                          root, standard(comm), intercomm, array_of_errcodes));
}

APLIB_FUNCTION(Group_translate_ranks, (MPI_Group group1, int n, const int ranks1[], MPI_Group group2, int ranks2[])) {
  const std::vector<int> ranks = converted(standard_rank, ranks1, n);
  const int error = own.Group_translate_ranks(standard(group1), n, ranks1 == nullptr ? nullptr : ranks.data(),
                                              standard(group2), ranks2);
  if (error == MPI_SUCCESS) convert_in_place(foreign_rank, ranks2, n);
  return returned(error);
}

// ---------------------------------------------------------------- attributes

APLIB_FUNCTION(Comm_get_attr, (MPI_Comm comm, int comm_keyval, void* attribute_val, int* flag)) {
  return get_attribute(own.Comm_get_attr, comm, comm_keyval, attribute_val, flag);
}
APLIB_FUNCTION(Attr_get, (MPI_Comm comm, int keyval, void* attribute_val, int* flag)) {
  return get_attribute(own.Attr_get, comm, keyval, attribute_val, flag);
}
APLIB_FUNCTION(Win_get_attr, (MPI_Win win, int win_keyval, void* attribute_val, int* flag)) {
  return get_attribute(own.Win_get_attr, win, win_keyval, attribute_val, flag);
}

// ---------------------------------------------------------------- datatypes

APLIB_FUNCTION(Type_create_darray,
               (int size, int rank, int ndims, const int array_of_gsizes[], const int array_of_distribs[],
                const int array_of_dargs[], const int array_of_psizes[], int order, MPI_Datatype oldtype,
                MPI_Datatype* newtype)) {
  const std::vector<int> distribs = converted(standard_distribution, array_of_distribs, ndims);
  const std::vector<int> dargs = converted(standard_darg, array_of_dargs, ndims);
  const int error = own.Type_create_darray(size, rank, ndims, array_of_gsizes,
                                           array_of_distribs == nullptr ? nullptr : distribs.data(),
                                           array_of_dargs == nullptr ? nullptr : dargs.data(), array_of_psizes,
                                           static_cast<int>(standard_order(order)), standard(oldtype), newtype);
  show(newtype);
  return returned(error);
}

APLIB_FUNCTION(Type_get_contents,
               (MPI_Datatype datatype, int max_integers, int max_addresses, int max_datatypes, int array_of_integers[],
                MPI_Aint array_of_addresses[], MPI_Datatype array_of_datatypes[])) {
  const MPI_Datatype type = standard(datatype);
  const int error = own.Type_get_contents(type, max_integers, max_addresses, max_datatypes, array_of_integers,
                                          array_of_addresses, array_of_datatypes);
  int integers = 0;
  int addresses = 0;
  int datatypes = 0;
  int combiner = 0;
  if (error != MPI_SUCCESS || own.Type_get_envelope(type, &integers, &addresses, &datatypes, &combiner) != MPI_SUCCESS)
    return returned(error);
  show_integers(combiner, array_of_integers);
  show(array_of_datatypes, datatypes);
  return returned(error);
}

// ---------------------------------------------------------------- Open MPI's own

int MPIX_Query_cuda_support() { return 0; }

// A status as Fortran has it: the same bytes.
APLIB_FUNCTION(Status_c2f, (const MPI_Status* c_status, MPI_Fint* f_status)) {
  std::memcpy(f_status, c_status, sizeof(ForeignStatus));
  return MPI_SUCCESS;
}
APLIB_FUNCTION(Status_f2c, (const MPI_Fint* f_status, MPI_Status* c_status)) {
  std::memcpy(c_status, f_status, sizeof(ForeignStatus));
  return MPI_SUCCESS;
}

MPI_Fint* MPI_F_STATUS_IGNORE = &status_integers;
MPI_Fint* MPI_F_STATUSES_IGNORE = &status_integers;

#pragma GCC visibility pop
}
