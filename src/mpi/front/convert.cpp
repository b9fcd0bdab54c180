// SPDX-License-Identifier: MIT
// Functions that need more than a conversion of each argument.
#include "mpi/front/convert.hpp"

#include <climits>
#include <mutex>
#include <set>
#include <vector>

namespace aplib::mpi::front {

const MPI_Datatype* kept_datatypes(const Foreign<MPI_Datatype>* datatypes, int count) {
  static std::mutex mutex;
  static std::set<std::vector<MPI_Datatype>> arrays;
  if (datatypes == nullptr) return nullptr;
  const Handles<MPI_Datatype> handles(datatypes, count);
  const std::lock_guard lock(mutex);
  return arrays.emplace(handles.data(), handles.data() + std::max(count, 0)).first->data();
}

int peers_of(Foreign<MPI_Comm> foreign_comm, const void* buffer) {
  const MPI_Comm comm = standard(foreign_comm);
  int is_inter = 0;
  int size = 0;
  if (buffer == MPI_IN_PLACE || own.Comm_test_inter(comm, &is_inter) != MPI_SUCCESS) return 0;
  (is_inter != 0 ? own.Comm_remote_size : own.Comm_size)(comm, &size);
  return size;
}

namespace {

struct Neighbours {
  int sources = 0;
  int destinations = 0;
};

Neighbours neighbours_of(Foreign<MPI_Comm> foreign_comm) {
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

int sources_of(Foreign<MPI_Comm> comm) { return neighbours_of(comm).sources; }
int destinations_of(Foreign<MPI_Comm> comm) { return neighbours_of(comm).destinations; }

namespace {

/// `keyval`: the standard's.
void show_attribute(int keyval, void** value) {
  const Convert convert = keyval == MPI_HOST || keyval == MPI_IO ? foreign_rank
                          : keyval == MPI_LASTUSEDCODE           ? foreign_code
                          : keyval == MPI_WIN_CREATE_FLAVOR      ? foreign_flavor
                          : keyval == MPI_WIN_MODEL              ? foreign_model
                                                                 : nullptr;
  if (convert != nullptr) *value = place_of(static_cast<int>(convert(*static_cast<const int*>(*value))));
}

template <class Handle>
int get_attribute(int (*get)(Handle, int, void*, int*), Foreign<Handle> object, int keyval, void* place, int* flag) {
  const int key = static_cast<int>(standard_keyval(keyval));
  const int error = get(standard(object), key, place, flag);
  if (error == MPI_SUCCESS && *flag != 0) show_attribute(key, static_cast<void**>(place));
  return returned(error);
}

/// The integers that a datatype was made of, where some stand for what has other numbers there. `large`: its sizes are
/// not among them.
void show_integers(int combiner, bool large, int* integers) {
  if (combiner == MPI_COMBINER_SUBARRAY) {
    convert_in_place(foreign_order, integers + 1 + (large ? 0 : 3 * integers[0]), 1);
  } else if (combiner == MPI_COMBINER_DARRAY) {
    const int dimensions = integers[2];
    int* const distributions = integers + 3 + (large ? 0 : dimensions);
    convert_in_place(foreign_distribution, distributions, dimensions);
    convert_in_place(foreign_darg, distributions + dimensions, dimensions);
    convert_in_place(foreign_order, distributions + 3 * dimensions, 1);
  }
}

/// What to give for the contents of a datatype: the integers, and the datatypes.
void show_contents(MPI_Datatype type, int* integers, MadeArray<MPI_Datatype, false>& datatypes) {
  MPI_Count numbers = 0;
  MPI_Count addresses = 0;
  MPI_Count large_counts = 0;
  MPI_Count types = 0;
  int combiner = 0;
  if (own.Type_get_envelope_c(type, &numbers, &addresses, &large_counts, &types, &combiner) != MPI_SUCCESS) return;
  show_integers(combiner, large_counts != 0, integers);
  datatypes.give();
}

/// Of a darray: some of its arguments.
struct Distribution {
  std::vector<int> kinds;
  std::vector<int> arguments;

  Distribution(int dimensions, const int* foreign_kinds, const int* foreign_arguments)
      : kinds(converted(standard_distribution, foreign_kinds, dimensions)),
        arguments(converted(standard_darg, foreign_arguments, dimensions)) {}
};

template <class Count>
int create_darray(int (*create)(int, int, int, const Count*, const int*, const int*, const int*, int, MPI_Datatype,
                                MPI_Datatype*),
                  int size, int rank, int ndims, const Count* gsizes, const int* distribs, const int* dargs,
                  const int* psizes, int order, Foreign<MPI_Datatype> oldtype, Foreign<MPI_Datatype>* newtype) {
  const Distribution distribution(ndims, distribs, dargs);
  Made<MPI_Datatype, false> made(newtype);
  const int error = create(size, rank, ndims, gsizes, distribs == nullptr ? nullptr : distribution.kinds.data(),
                           dargs == nullptr ? nullptr : distribution.arguments.data(), psizes,
                           static_cast<int>(standard_order(order)), standard(oldtype), made.data());
  made.give();
  return returned(error);
}

// A message that is sent by MPI_Bsend takes more of a buffer in the standard ABI than programs have made room for. The
// library uses none of the buffer, so it may believe that there is more.
constexpr int more_room = MPI_BSEND_OVERHEAD - foreign_MPI_BSEND_OVERHEAD;

/// `few` takes an int.
template <class Few, class Many>
int attach(void* buffer, MPI_Count size, const Few& few, const Many& many) {
  void* const place = buffer_at(buffer);
  const MPI_Count bytes = size > 0 && place != MPI_BUFFER_AUTOMATIC ? size + more_room : size;
  return returned(bytes <= INT_MAX ? few(place, static_cast<int>(bytes)) : many(place, bytes));
}

template <class Size, class Detach>
int detach(void* place, Size* size, const Detach& detach_buffer) {
  MPI_Count bytes = 0;
  const int error = detach_buffer(place, size == nullptr ? nullptr : &bytes);
  if (error != MPI_SUCCESS) return returned(error);
  *size = static_cast<Size>(bytes > more_room ? bytes - more_room : bytes);
  void*& buffer = *static_cast<void**>(place);
  buffer = foreign_buffer(buffer);
  return MPI_SUCCESS;
}

}  // namespace
}  // namespace aplib::mpi::front

using namespace aplib::mpi::front;

extern "C" {
#pragma GCC visibility push(default)

// The functions have not the standard ABI, so it is of no version.
APLIB_FUNCTION(Abi_get_version, (int* abi_major, int* abi_minor)) {
  const int error = own.Abi_get_version(abi_major, abi_minor);
  if (error == MPI_SUCCESS) *abi_major = *abi_minor = -1;
  return returned(error);
}

// The code is the program's exit status, and no error class.
APLIB_FUNCTION(Abort, (Foreign<MPI_Comm> comm, int errorcode)) {
  return returned(own.Abort(standard(comm), errorcode));
}

APLIB_FUNCTION(Pcontrol, (int level, ...)) { return returned(own.Pcontrol(level)); }

APLIB_FUNCTION(Buffer_attach, (void* buffer, int size)) {
  return attach(buffer, size, own.Buffer_attach, own.Buffer_attach_c);
}
APLIB_FUNCTION(Buffer_attach_c, (void* buffer, MPI_Count size)) {
  return attach(buffer, size, own.Buffer_attach, own.Buffer_attach_c);
}
APLIB_FUNCTION(Buffer_detach, (void* buffer_addr, int* size)) { return detach(buffer_addr, size, own.Buffer_detach_c); }
APLIB_FUNCTION(Buffer_detach_c, (void* buffer_addr, MPI_Count* size)) {
  return detach(buffer_addr, size, own.Buffer_detach_c);
}

#define APLIB_BUFFER(suffix, Size)                                                                                 \
  APLIB_FUNCTION(Comm_attach_buffer##suffix, (Foreign<MPI_Comm> foreign_comm, void* buffer, Size size)) {          \
    const MPI_Comm comm = standard(foreign_comm);                                                                  \
    return attach(                                                                                                 \
        buffer, size, [comm](void* place, int bytes) { return own.Comm_attach_buffer(comm, place, bytes); },       \
        [comm](void* place, MPI_Count bytes) { return own.Comm_attach_buffer_c(comm, place, bytes); });            \
  }                                                                                                                \
  APLIB_FUNCTION(Comm_detach_buffer##suffix, (Foreign<MPI_Comm> foreign_comm, void* buffer_addr, Size* size)) {    \
    const MPI_Comm comm = standard(foreign_comm);                                                                  \
    return detach(buffer_addr, size,                                                                               \
                  [comm](void* place, MPI_Count* bytes) { return own.Comm_detach_buffer_c(comm, place, bytes); }); \
  }
APLIB_BUFFER(, int)
APLIB_BUFFER(_c, MPI_Count)

APLIB_FUNCTION(Comm_spawn_multiple, (int count, char** array_of_commands, char*** array_of_argv,
                                     const int array_of_maxprocs[], const Foreign<MPI_Info> array_of_info[], int root,
                                     Foreign<MPI_Comm> comm, Foreign<MPI_Comm>* intercomm, int array_of_errcodes[])) {
  const Handles<MPI_Info> info(array_of_info, array_of_info == nullptr ? 0 : count);
  Made<MPI_Comm, false> made(intercomm);
  const int error = own.Comm_spawn_multiple(count, array_of_commands, array_of_argv, array_of_maxprocs, info.data(),
                                            root, standard(comm), made.data(), array_of_errcodes);
  made.give();
  return returned(error);
}

APLIB_FUNCTION(Group_translate_ranks,
               (Foreign<MPI_Group> group1, int n, const int ranks1[], Foreign<MPI_Group> group2, int ranks2[])) {
  const std::vector<int> ranks = converted(standard_rank, ranks1, n);
  const int error = own.Group_translate_ranks(standard(group1), n, ranks1 == nullptr ? nullptr : ranks.data(),
                                              standard(group2), ranks2);
  if (error == MPI_SUCCESS) convert_in_place(foreign_rank, ranks2, n);
  return returned(error);
}

// ---------------------------------------------------------------- attributes

APLIB_FUNCTION(Comm_get_attr, (Foreign<MPI_Comm> comm, int comm_keyval, void* attribute_val, int* flag)) {
  return get_attribute(own.Comm_get_attr, comm, comm_keyval, attribute_val, flag);
}
APLIB_FUNCTION(Attr_get, (Foreign<MPI_Comm> comm, int keyval, void* attribute_val, int* flag)) {
  return get_attribute(own.Attr_get, comm, keyval, attribute_val, flag);
}
APLIB_FUNCTION(Win_get_attr, (Foreign<MPI_Win> win, int win_keyval, void* attribute_val, int* flag)) {
  return get_attribute(own.Win_get_attr, win, win_keyval, attribute_val, flag);
}

// ---------------------------------------------------------------- datatypes

#define APLIB_DARRAY(name, Count)                                                                                    \
  APLIB_FUNCTION(name, (int size, int rank, int ndims, const Count array_of_gsizes[], const int array_of_distribs[], \
                        const int array_of_dargs[], const int array_of_psizes[], int order,                          \
                        Foreign<MPI_Datatype> oldtype, Foreign<MPI_Datatype>* newtype)) {                            \
    return create_darray<Count>(own.name, size, rank, ndims, array_of_gsizes, array_of_distribs, array_of_dargs,     \
                                array_of_psizes, order, oldtype, newtype);                                           \
  }
APLIB_DARRAY(Type_create_darray, int)
APLIB_DARRAY(Type_create_darray_c, MPI_Count)

APLIB_FUNCTION(Type_get_contents,
               (Foreign<MPI_Datatype> datatype, int max_integers, int max_addresses, int max_datatypes,
                int array_of_integers[], MPI_Aint array_of_addresses[], Foreign<MPI_Datatype> array_of_datatypes[])) {
  const MPI_Datatype type = standard(datatype);
  MadeArray<MPI_Datatype, false> datatypes(array_of_datatypes, max_datatypes);
  const int error = own.Type_get_contents(type, max_integers, max_addresses, max_datatypes, array_of_integers,
                                          array_of_addresses, datatypes.data());
  if (error == MPI_SUCCESS) show_contents(type, array_of_integers, datatypes);
  return returned(error);
}
APLIB_FUNCTION(Type_get_contents_c, (Foreign<MPI_Datatype> datatype, MPI_Count max_integers, MPI_Count max_addresses,
                                     MPI_Count max_large_counts, MPI_Count max_datatypes, int array_of_integers[],
                                     MPI_Aint array_of_addresses[], MPI_Count array_of_large_counts[],
                                     Foreign<MPI_Datatype> array_of_datatypes[])) {
  const MPI_Datatype type = standard(datatype);
  MadeArray<MPI_Datatype, false> datatypes(array_of_datatypes, max_datatypes);
  const int error =
      own.Type_get_contents_c(type, max_integers, max_addresses, max_large_counts, max_datatypes, array_of_integers,
                              array_of_addresses, array_of_large_counts, datatypes.data());
  if (error == MPI_SUCCESS) show_contents(type, array_of_integers, datatypes);
  return returned(error);
}

// ---------------------------------------------------------------- statuses as Fortran has them: the same bytes

APLIB_FUNCTION(Status_c2f, (const ForeignStatus* c_status, MPI_Fint* f_status)) {
  std::memcpy(f_status, c_status, sizeof *c_status);
  return MPI_SUCCESS;
}
APLIB_FUNCTION(Status_f2c, (const MPI_Fint* f_status, ForeignStatus* c_status)) {
  std::memcpy(c_status, f_status, sizeof *c_status);
  return MPI_SUCCESS;
}

#define APLIB_SAME_STATUS(name)                                          \
  APLIB_FUNCTION(name, (const ForeignStatus* from, ForeignStatus* to)) { \
    *to = *from;                                                         \
    return MPI_SUCCESS;                                                  \
  }
APLIB_SAME_STATUS(Status_c2f08)
APLIB_SAME_STATUS(Status_f082c)
APLIB_SAME_STATUS(Status_f2f08)
APLIB_SAME_STATUS(Status_f082f)

#pragma GCC visibility pop
}
