// SPDX-License-Identifier: MIT
// Every function of the table that works, with every parameter wrong in every way that its kind can be: the call must
// come back with the class of the standard, and its message must name the call and the parameter. What the build makes
// of the table (calls.inc) says what there is to be wrong; what differs from a parameter's kind stands here.
#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <climits>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

/// An argument: a number, a handle or an address.
using Word = std::uintptr_t;

struct Parameter {
  std::string kind;
  std::string name;
  std::size_t bytes;  ///< Of a value: the argument itself, an element, or what it points to.
  bool is_array;
  bool is_out;
  bool is_inout;

  [[nodiscard]] bool is_place() const { return is_array || is_out; }
  [[nodiscard]] bool is_given() const { return !is_out || is_inout; }
};

struct Function {
  std::string name;
  std::vector<Parameter> parameters;
  int (*call)(const Word* words);

  /// Without the _c of the double.
  [[nodiscard]] std::string plain_name() const { return name.ends_with("_c") ? name.substr(0, name.size() - 2) : name; }
  [[nodiscard]] bool has(const std::string& kind) const {
    for (const Parameter& parameter : parameters) {
      if (parameter.kind == kind) return true;
    }
    return false;
  }
  friend void PrintTo(const Function& function, std::ostream* out) { *out << function.name; }
};

// The same as constants: a list of several hundred vectors and strings would take compilers minutes.
struct ParameterRow {
  const char* kind = nullptr;
  const char* name = nullptr;
  std::size_t bytes = 0;
  bool is_array = false;
  bool is_out = false;
  bool is_inout = false;
};
struct FunctionRow {
  const char* name;
  ParameterRow parameters[16];
  int (*call)(const Word* words);
};
constexpr FunctionRow rows[] = {
#include "calls.inc"
};

const std::vector<Function>& functions() {
  static const std::vector<Function> all = [] {
    std::vector<Function> made;
    for (const FunctionRow& row : rows) {
      made.push_back({row.name, {}, row.call});
      for (const ParameterRow& each : row.parameters) {
        if (each.kind == nullptr) break;
        made.back().parameters.push_back({each.kind, each.name, each.bytes, each.is_array, each.is_out, each.is_inout});
      }
    }
    return made;
  }();
  return all;
}

template <class Value>
Word word(Value value) {
  if constexpr (std::is_pointer_v<Value>) {
    return reinterpret_cast<Word>(value);
  } else {
    return static_cast<Word>(static_cast<std::intptr_t>(value));
  }
}

/// What the error handler was given. The cells of a test share it: they are carried by one processor.
std::string last_message;

template <class Handle>
void remember(Handle*, int* code, ...) {
  std::va_list rest;
  va_start(rest, code);
  last_message = va_arg(rest, const char*);
  va_end(rest);
}

void combine_nothing(void*, void*, int*, MPI_Datatype*) {}

struct Wrong {
  std::vector<Word> values;
  int error_class;
};

/// Arguments that are right, by the kind of their parameter or by "MPI_X.parameter": of arrays all elements.
const std::map<std::string, std::vector<Word>> right_constants = {
    {"datatype", {word(MPI_INT)}},
    {"op", {word(MPI_SUM)}},
    {"message", {word(MPI_MESSAGE_NO_PROC)}},
    {"errhandler", {word(MPI_ERRORS_RETURN)}},
    {"hints", {word(MPI_INFO_NULL)}},
    {"count", {1}},
    {"size", {1}},
    {"length", {1}},
    {"entries", {1}},
    {"code", {word(MPI_ERR_OTHER)}},
    {"string", {word("text")}},
    {"extent_fn", {word(combine_nothing)}},
    {"range", {0, 1}},  // three ints: 0..0, stride 1
    {"op_fn", {word(combine_nothing)}},
    {"comm_error_fn", {word(remember<MPI_Comm>)}},
    {"win_error_fn", {word(remember<MPI_Win>)}},
    {"file_error_fn", {word(remember<MPI_File>)}},
    {"session_error_fn", {word(remember<MPI_Session>)}},
    {"MPI_Abi_get_fortran_booleans.logical_size", {4}},
    {"MPI_Abi_set_fortran_booleans.logical_size", {4}},
    {"MPI_Cart_create.ndims", {1}},
    {"MPI_Cart_create.dims", {1}},
    {"MPI_Cart_map.ndims", {1}},
    {"MPI_Cart_map.dims", {1}},
    {"MPI_Dims_create.nnodes", {1}},
    {"MPI_Dims_create.ndims", {1}},
    {"MPI_Dist_graph_create.degrees", {1}},
    {"MPI_Dist_graph_create.weights", {1}},
    {"MPI_Dist_graph_create_adjacent.indegree", {1}},
    {"MPI_Dist_graph_create_adjacent.outdegree", {1}},
    {"MPI_File_open.amode", {word(MPI_MODE_RDONLY)}},
    {"MPI_File_seek.whence", {word(MPI_SEEK_SET)}},
    {"MPI_File_seek_shared.whence", {word(MPI_SEEK_SET)}},
    {"MPI_File_set_view.datarep", {word("native")}},
    {"MPI_Graph_create.nnodes", {1}},
    {"MPI_Graph_create.indx", {1}},
    {"MPI_Graph_map.nnodes", {1}},
    {"MPI_Graph_map.indx", {1}},
    {"MPI_Info_get.valuelen", {16}},
    {"MPI_Info_get_string.buflen", {16}},
    {"MPI_Intercomm_create.peer_comm", {word(MPI_COMM_WORLD)}},
    {"MPI_Pack.outsize", {64}},
    {"MPI_Pack_external.outsize", {64}},
    {"MPI_Pack_external.datarep", {word("external32")}},
    {"MPI_Pack_external_size.datarep", {word("external32")}},
    {"MPI_Unpack.insize", {64}},
    {"MPI_Unpack_external.insize", {64}},
    {"MPI_Unpack_external.datarep", {word("external32")}},
    {"MPI_Group_from_session_pset.pset_name", {word("mpi://SELF")}},
    {"MPI_Precv_init.count", {1}},
    {"MPI_Precv_init.partitions", {1}},
    {"MPI_Psend_init.count", {1}},
    {"MPI_Psend_init.partitions", {1}},
    {"MPI_Session_get_nth_pset.pset_len", {16}},
    {"MPI_Session_get_pset_info.pset_name", {word("mpi://SELF")}},
    {"MPI_Type_create_darray.size", {1}},
    {"MPI_Type_create_darray.array_of_distribs", {word(MPI_DISTRIBUTE_BLOCK)}},
    {"MPI_Type_create_darray.array_of_dargs", {word(MPI_DISTRIBUTE_DFLT_DARG)}},
    {"MPI_Type_create_darray.array_of_psizes", {1}},
    {"MPI_Type_create_darray.order", {word(MPI_ORDER_C)}},
    {"MPI_Type_create_f90_complex.p", {6}},
    {"MPI_Type_create_f90_complex.r", {30}},
    {"MPI_Type_create_f90_integer.r", {4}},
    {"MPI_Type_create_f90_real.p", {6}},
    {"MPI_Type_create_f90_real.r", {30}},
    {"MPI_Type_create_subarray.array_of_starts", {0}},
    {"MPI_Type_create_subarray.order", {word(MPI_ORDER_C)}},
    {"MPI_Type_get_value_index.value_type", {word(MPI_INT)}},
    {"MPI_Type_hindexed.array_of_blocklengths", {1}},
    {"MPI_Type_struct.array_of_blocklengths", {1}},
    {"MPI_Type_match_size.typeclass", {word(MPI_TYPECLASS_INTEGER)}},
    {"MPI_Type_match_size.size", {4}},
    {"MPI_Win_allocate.disp_unit", {1}},
    {"MPI_Win_allocate_shared.disp_unit", {1}},
    {"MPI_Win_create.disp_unit", {1}},
    {"MPI_Win_lock.lock_type", {word(MPI_LOCK_SHARED)}},
};
/// What is wrong. What has a line of its own is not looked up by its kind;
const std::map<std::string, Wrong> wrong_constants = {
    {"count", {{word(-1)}, MPI_ERR_COUNT}},
    {"entries", {{word(-1)}, MPI_ERR_COUNT}},
    {"size", {{word(-1)}, MPI_ERR_SIZE}},
    {"length", {{word(-1)}, MPI_ERR_ARG}},
    {"rank", {{word(-7), 5}, MPI_ERR_RANK}},
    {"range", {{5 | Word{5} << 32}, MPI_ERR_RANK}},
    {"dest", {{word(-7), 5, word(MPI_ANY_SOURCE)}, MPI_ERR_RANK}},
    {"source", {{word(-7), 5}, MPI_ERR_RANK}},
    {"root", {{word(-7), 5, word(MPI_PROC_NULL)}, MPI_ERR_ROOT}},
    {"tag", {{word(-7), word(INT_MAX), word(MPI_ANY_TAG)}, MPI_ERR_TAG}},
    {"any_tag", {{word(-7), word(INT_MAX)}, MPI_ERR_TAG}},
    {"keyval", {{word(MPI_KEYVAL_INVALID), 12345}, MPI_ERR_KEYVAL}},
    {"code", {{word(-1), 12345678}, MPI_ERR_ARG}},
    {"buffer", {{0, word(MPI_IN_PLACE)}, MPI_ERR_BUFFER}},
    {"string", {{0}, MPI_ERR_ARG}},
    {"offset", {{word(-1)}, MPI_ERR_ARG}},
    {"extent_fn", {{0}, MPI_ERR_ARG}},
    {"op_fn", {{0}, MPI_ERR_ARG}},
    {"comm_error_fn", {{0}, MPI_ERR_ARG}},
    {"win_error_fn", {{0}, MPI_ERR_ARG}},
    {"file_error_fn", {{0}, MPI_ERR_ARG}},
    {"session_error_fn", {{0}, MPI_ERR_ARG}},
    {"MPI_Abi_get_fortran_booleans.logical_size", {{3}, MPI_ERR_ARG}},
    {"MPI_Abi_set_fortran_booleans.logical_size", {{3}, MPI_ERR_ARG}},
    {"MPI_Cancel.request", {{word(MPI_REQUEST_NULL)}, MPI_ERR_REQUEST}},
    {"MPI_Cart_create.dims", {{word(-1), 0, 2}, MPI_ERR_DIMS}},
    {"MPI_Cart_create.ndims", {{word(-1)}, MPI_ERR_DIMS}},
    {"MPI_Cart_map.dims", {{word(-1), 0, 2}, MPI_ERR_DIMS}},
    {"MPI_Cart_map.ndims", {{word(-1)}, MPI_ERR_DIMS}},
    {"MPI_Cart_shift.direction", {{word(-1), 1}, MPI_ERR_DIMS}},
    {"MPI_Comm_split.color", {{word(-5)}, MPI_ERR_ARG}},
    {"MPI_Comm_split_type.split_type", {{12345}, MPI_ERR_ARG}},
    {"MPI_Dims_create.dims", {{word(-1), 2}, MPI_ERR_DIMS}},
    {"MPI_Dims_create.ndims", {{word(-1)}, MPI_ERR_DIMS}},
    {"MPI_Dims_create.nnodes", {{word(-1), 0}, MPI_ERR_ARG}},
    {"MPI_Dist_graph_create.degrees", {{word(-1)}, MPI_ERR_ARG}},
    {"MPI_Dist_graph_create.weights", {{word(-1)}, MPI_ERR_ARG}},
    {"MPI_Dist_graph_create_adjacent.destweights", {{word(-1)}, MPI_ERR_ARG}},
    {"MPI_Dist_graph_create_adjacent.indegree", {{word(-1)}, MPI_ERR_ARG}},
    {"MPI_Dist_graph_create_adjacent.outdegree", {{word(-1)}, MPI_ERR_ARG}},
    {"MPI_Dist_graph_create_adjacent.sourceweights", {{word(-1)}, MPI_ERR_ARG}},
    {"MPI_File_open.amode", {{0, word(MPI_MODE_RDONLY | MPI_MODE_RDWR), 1 << 20}, MPI_ERR_AMODE}},
    {"MPI_File_seek.whence", {{0, 12345}, MPI_ERR_ARG}},
    {"MPI_File_seek_shared.whence", {{0, 12345}, MPI_ERR_ARG}},
    {"MPI_Graph_create.edges", {{word(-7), 5}, MPI_ERR_ARG}},
    {"MPI_Graph_create.indx", {{word(-1)}, MPI_ERR_ARG}},
    {"MPI_Graph_create.nnodes", {{word(-1), 2}, MPI_ERR_ARG}},
    {"MPI_Graph_map.edges", {{word(-7), 5}, MPI_ERR_ARG}},
    {"MPI_Graph_map.indx", {{word(-1)}, MPI_ERR_ARG}},
    {"MPI_Graph_map.nnodes", {{word(-1), 2}, MPI_ERR_ARG}},
    {"MPI_Info_get.valuelen", {{word(-1)}, MPI_ERR_ARG}},
    {"MPI_Info_get_nthkey.n", {{word(-1), 7}, MPI_ERR_ARG}},
    {"MPI_Info_get_string.buflen", {{word(-1)}, MPI_ERR_ARG}},
    {"MPI_Pack.position", {{word(-1), 65}, MPI_ERR_ARG}},
    {"MPI_Pack_external.position", {{word(-1), 65}, MPI_ERR_ARG}},
    {"MPI_Precv_init.count", {{word(-1)}, MPI_ERR_COUNT}},
    {"MPI_Precv_init.dest", {{word(-7), 5, word(MPI_ANY_SOURCE)}, MPI_ERR_RANK}},
    {"MPI_Precv_init.partitions", {{word(-1), 0}, MPI_ERR_ARG}},
    {"MPI_Precv_init.tag", {{word(-7), word(INT_MAX), word(MPI_ANY_TAG)}, MPI_ERR_TAG}},
    {"MPI_Psend_init.count", {{word(-1)}, MPI_ERR_COUNT}},
    {"MPI_Psend_init.partitions", {{word(-1), 0}, MPI_ERR_ARG}},
    {"MPI_Session_get_nth_pset.n", {{word(-1), 7}, MPI_ERR_ARG}},
    {"MPI_Session_get_nth_pset.pset_len", {{word(-1)}, MPI_ERR_ARG}},
    {"MPI_Type_create_darray.array_of_gsizes", {{word(-1), 0}, MPI_ERR_ARG}},
    {"MPI_Type_create_darray.array_of_dargs", {{word(-2), 0}, MPI_ERR_ARG}},
    {"MPI_Type_create_darray.array_of_distribs", {{12345}, MPI_ERR_ARG}},
    {"MPI_Type_create_darray.array_of_psizes", {{word(-1), 0, 2}, MPI_ERR_ARG}},
    {"MPI_Type_create_darray.order", {{12345}, MPI_ERR_ARG}},
    {"MPI_Type_create_darray.rank", {{word(-1), 5}, MPI_ERR_ARG}},
    {"MPI_Type_create_subarray.array_of_sizes", {{word(-1), 0}, MPI_ERR_ARG}},
    {"MPI_Type_create_subarray.array_of_starts", {{word(-1), 1}, MPI_ERR_ARG}},
    {"MPI_Type_create_subarray.array_of_subsizes", {{word(-1), 2}, MPI_ERR_ARG}},
    {"MPI_Type_create_subarray.order", {{12345}, MPI_ERR_ARG}},
    {"MPI_Type_match_size.size", {{3}, MPI_ERR_ARG}},
    {"MPI_Type_match_size.typeclass", {{12345}, MPI_ERR_ARG}},
    {"MPI_Unpack.position", {{word(-1), 65}, MPI_ERR_ARG}},
    {"MPI_Unpack_external.position", {{word(-1), 65}, MPI_ERR_ARG}},
    {"MPI_Win_allocate.disp_unit", {{word(-1), 0}, MPI_ERR_DISP}},
    {"MPI_Win_allocate_shared.disp_unit", {{word(-1), 0}, MPI_ERR_DISP}},
    {"MPI_Win_create.disp_unit", {{word(-1), 0}, MPI_ERR_DISP}},
    {"MPI_Win_detach.base", {{word("text")}, MPI_ERR_RMA_ATTACH}},
    {"MPI_Win_fence.assert", {{1, word(MPI_MODE_NOCHECK)}, MPI_ERR_ASSERT}},
    {"MPI_Win_lock.assert", {{1, word(MPI_MODE_NOPUT)}, MPI_ERR_ASSERT}},
    {"MPI_Win_lock.lock_type", {{word(-1), 12345}, MPI_ERR_LOCKTYPE}},
    {"MPI_Win_lock_all.assert", {{1, word(MPI_MODE_NOPUT)}, MPI_ERR_ASSERT}},
    {"MPI_Win_post.assert", {{1, word(MPI_MODE_NOSUCCEED)}, MPI_ERR_ASSERT}},
    {"MPI_Win_start.assert", {{1, word(MPI_MODE_NOPUT)}, MPI_ERR_ASSERT}},
    {"MPI_Start.request", {{word(MPI_REQUEST_NULL)}, MPI_ERR_REQUEST}},
    {"MPI_Startall.array_of_requests", {{word(MPI_REQUEST_NULL)}, MPI_ERR_REQUEST}},
    {"MPI_Request_free.request", {{word(MPI_REQUEST_NULL)}, MPI_ERR_REQUEST}},
};

/// but with one here it is.
const std::map<std::string, Wrong> also_wrong_constants = {
    {"MPI_Comm_free.comm", {{word(MPI_COMM_WORLD), word(MPI_COMM_SELF)}, MPI_ERR_COMM}},
    {"MPI_File_set_view.datarep", {{word("other")}, MPI_ERR_UNSUPPORTED_DATAREP}},
    {"MPI_Group_from_session_pset.pset_name", {{word("mpi://OTHERS")}, MPI_ERR_ARG}},
    {"MPI_Info_delete.info", {{word(MPI_INFO_ENV)}, MPI_ERR_INFO}},
    {"MPI_Info_free.info", {{word(MPI_INFO_ENV)}, MPI_ERR_INFO}},
    {"MPI_Info_set.info", {{word(MPI_INFO_ENV)}, MPI_ERR_INFO}},
    {"MPI_Op_free.op", {{word(MPI_SUM)}, MPI_ERR_OP}},
    {"MPI_Pack_external.datarep", {{word("native")}, MPI_ERR_ARG}},
    {"MPI_Pack_external_size.datarep", {{word("native")}, MPI_ERR_ARG}},
    {"MPI_Register_datarep.datarep", {{word("native")}, MPI_ERR_DUP_DATAREP}},
    {"MPI_Session_get_pset_info.pset_name", {{word("mpi://OTHERS")}, MPI_ERR_ARG}},
    {"MPI_Type_free.datatype", {{word(MPI_INT)}, MPI_ERR_TYPE}},
    {"MPI_Type_get_contents.datatype", {{word(MPI_INT)}, MPI_ERR_TYPE}},
    {"MPI_Unpack_external.datarep", {{word("native")}, MPI_ERR_ARG}},
};

/// One of each kind. Communicators have one rank, so that all arguments have a meaning.
struct Handles {
  Handles() {
    const int zero = 0;
    const int one = 1;
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_create_errhandler(remember<MPI_Comm>, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_File_create_errhandler(remember<MPI_File>, &handler);
    MPI_File_set_errhandler(MPI_FILE_NULL, handler);
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Cart_create(comm, 1, &one, &one, 0, &grid);
    MPI_Graph_create(comm, 1, &one, &zero, 0, &graph);
    MPI_Dist_graph_create_adjacent(comm, 1, &zero, MPI_UNWEIGHTED, 1, &zero, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                   &neighbours);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Intercomm_create(comm, 0, MPI_COMM_WORLD, 1 - rank, 7, &intercomm);
    MPI_Comm_group(comm, &group);
    MPI_Type_contiguous(2, MPI_INT, &uncommitted);
    MPI_Info_create(&info);
    MPI_Info_set(info, "text", "value");
    MPI_Recv_init(nullptr, 0, MPI_INT, MPI_PROC_NULL, 0, comm, &request);
    MPI_Op_create(combine_nothing, 1, &op);
    const std::string name = testing::TempDir() + "argument_test." + std::to_string(getpid() * 2 + rank);
    MPI_File_open(MPI_COMM_SELF, name.c_str(), MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file);
    MPI_File_delete(name.c_str(), MPI_INFO_NULL);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &keyvals[0], nullptr);
    MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &keyvals[1], nullptr);
    MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, &keyvals[2], nullptr);
    MPI_Add_error_class(&code);
    MPI_Errhandler of_windows = MPI_ERRHANDLER_NULL;
    MPI_Win_create_errhandler(remember<MPI_Win>, &of_windows);
    void* memory = nullptr;
    MPI_Win_allocate(64, 1, MPI_INFO_NULL, comm, static_cast<void*>(&memory), &win);
    MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &dynamic_win);
    MPI_Win_set_errhandler(win, of_windows);
    MPI_Win_set_errhandler(dynamic_win, of_windows);
    MPI_Win_lock_all(0, win);
    MPI_Errhandler of_sessions = MPI_ERRHANDLER_NULL;
    MPI_Session_create_errhandler(remember<MPI_Session>, &of_sessions);
    MPI_Session_init(MPI_INFO_NULL, of_sessions, &session);
  }

  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm grid = MPI_COMM_NULL;
  MPI_Comm graph = MPI_COMM_NULL;
  MPI_Comm neighbours = MPI_COMM_NULL;
  MPI_Comm intercomm = MPI_COMM_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Datatype uncommitted = MPI_DATATYPE_NULL;
  MPI_Info info = MPI_INFO_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Op op = MPI_OP_NULL;
  MPI_File file = MPI_FILE_NULL;
  MPI_Win win = MPI_WIN_NULL;  ///< Its only rank is locked.
  MPI_Win dynamic_win = MPI_WIN_NULL;
  MPI_Session session = MPI_SESSION_NULL;
  std::array<int, 3> keyvals{};  ///< Of communicators, datatypes and windows.
  int rank = 0;
  int code = 0;  ///< Of an error that the test has added.
};

const std::vector<std::string> among_neighbours = {"Neighbor_allgather", "Neighbor_allgatherv", "Neighbor_alltoall",
                                                   "Neighbor_alltoallv", "Neighbor_alltoallw"};

/// Blocking, nonblocking and persistent calls: MPI_Bcast, MPI_Ibcast, MPI_Bcast_init.
std::vector<std::string> forms_of(const std::vector<std::string>& calls) {
  std::vector<std::string> all;
  for (const std::string& name : calls) {
    std::string small = name;
    small[0] = static_cast<char>(std::tolower(small[0]));
    all.insert(all.end(), {"MPI_" + name, "MPI_I" + small, "MPI_" + name + "_init"});
  }
  return all;
}

/// The tables above, with what depends on handles.
class Arguments : Handles {
 public:
  Arguments() {
    add_right();
    add_wrong();
    add_also_wrong();
    if (sanitized) return;  // reading what was freed is an error there
    forget(comm, "comm", MPI_Comm_dup, MPI_Comm_free);
    forget(MPI_INT, "datatype", MPI_Type_dup, MPI_Type_free);
    forget(info, "info", MPI_Info_dup, MPI_Info_free);
  }

  [[nodiscard]] const std::vector<Word>& right(const Function& function, const Parameter& parameter) const {
    static const std::vector<Word> nothing = {0};
    if (const auto place = right_.find(key(function, parameter)); place != right_.end()) return place->second;
    const auto place = right_.find(parameter.kind);
    return place != right_.end() ? place->second : nothing;
  }

  /// Nothing that the call could refuse, or no call that a test can make.
  static bool is_free(const Function& function, const Parameter& parameter) {
    static const std::set<std::string> functions = {"MPI_Abort", "MPI_Finalize", "MPI_Init", "MPI_Init_thread"};
    static const std::set<std::string> parameters = {
        "MPI_Address.location",
        "MPI_Dist_graph_neighbors.destweights",
        "MPI_Dist_graph_neighbors.sourceweights",
        "MPI_Exscan.recvbuf",         // rank 0 has none
        "MPI_File_read_all_end.buf",  // was given at the begin
        "MPI_File_read_at_all_end.buf",
        "MPI_File_read_ordered_end.buf",
        "MPI_File_write_all_end.buf",
        "MPI_File_write_at_all_end.buf",
        "MPI_File_write_ordered_end.buf",
        "MPI_Exscan_init.recvbuf",
        "MPI_Iexscan.recvbuf",
        "MPI_Free_mem.base",
        "MPI_Get_address.location",
        "MPI_Status_set_error.error",
        "MPI_Status_set_source.source",
        "MPI_Status_set_tag.tag",
    };
    return functions.contains(function.name) || parameters.contains(key(function, parameter));
  }

  [[nodiscard]] std::vector<Wrong> wrong(const Function& function, const Parameter& parameter) const {
    std::vector<Wrong> all;
    const std::string own = key(function, parameter);
    if (const auto place = also_wrong_.find(own); place != also_wrong_.end()) all.push_back(place->second);
    const auto place = wrong_.find(wrong_.contains(own) ? own : parameter.kind);
    if (place != wrong_.end()) all.push_back(place->second);
    if (parameter.kind == "datatype" && function.has("buffer")) all.push_back({{word(uncommitted)}, MPI_ERR_TYPE});
    return all;
  }

  static std::string key(const Function& function, const Parameter& parameter) {
    return function.plain_name() + "." + parameter.name;
  }

 private:
  void add_right() {
    right_.insert({
        {"comm", {word(comm)}},
        {"group", {word(group)}},
        {"request", {word(request)}},
        {"info", {word(info)}},
        {"file", {word(file)}},
        {"win", {word(win)}},
        {"session", {word(session)}},
        {"keyval", {word(keyvals[0])}},
        {"MPI_Add_error_class.errorclass", {word(code)}},
        {"MPI_Add_error_string.errorcode", {word(code)}},
        {"MPI_Info_free.info", {word(info)}},
        {"MPI_Intercomm_create.remote_leader", {word(1 - rank)}},
        {"MPI_Intercomm_merge.intercomm", {word(intercomm)}},
        {"MPI_Op_free.op", {word(op)}},
        {"MPI_Type_commit.datatype", {word(uncommitted)}},
        {"MPI_Type_delete_attr.type_keyval", {word(keyvals[1])}},
        {"MPI_Type_free.datatype", {word(uncommitted)}},
        {"MPI_Type_free_keyval.type_keyval", {word(keyvals[1])}},
        {"MPI_Type_get_attr.type_keyval", {word(keyvals[1])}},
        {"MPI_Type_get_contents.datatype", {word(uncommitted)}},
        {"MPI_Type_set_attr.type_keyval", {word(keyvals[1])}},
        {"MPI_Win_attach.win", {word(dynamic_win)}},
        {"MPI_Win_detach.win", {word(dynamic_win)}},
    });
    for (const char* name : {"delete_attr", "free_keyval", "get_attr", "set_attr"})
      right_["MPI_Win_" + std::string(name) + ".win_keyval"] = {word(keyvals[2])};
    for (const char* name : {"Cart_coords", "Cart_get", "Cart_rank", "Cart_shift", "Cart_sub", "Cartdim_get"})
      right_["MPI_" + std::string(name) + ".comm"] = {word(grid)};
    for (const char* name : {"Graph_get", "Graph_neighbors", "Graph_neighbors_count", "Graphdims_get"})
      right_["MPI_" + std::string(name) + ".comm"] = {word(graph)};
    for (const char* name : {"Dist_graph_neighbors", "Dist_graph_neighbors_count"})
      right_["MPI_" + std::string(name) + ".comm"] = {word(neighbours)};
    for (const std::string& name : forms_of(among_neighbours)) right_[name + ".comm"] = {word(neighbours)};
    for (const char* name : {"Comm_remote_group", "Comm_remote_size"})
      right_["MPI_" + std::string(name) + ".comm"] = {word(intercomm)};
  }

  void add_wrong() {
    wrong_.insert({
        {"comm", {{word(MPI_COMM_NULL), word(MPI_INT), word(info), 77}, MPI_ERR_COMM}},
        {"group", {{word(MPI_GROUP_NULL), word(MPI_INT), word(comm)}, MPI_ERR_GROUP}},
        {"datatype", {{word(MPI_DATATYPE_NULL), word(MPI_COMM_WORLD), word(comm)}, MPI_ERR_TYPE}},
        {"op", {{word(MPI_OP_NULL), word(MPI_INT), word(comm)}, MPI_ERR_OP}},
        {"request", {{word(MPI_INT), word(comm)}, MPI_ERR_REQUEST}},
        {"message", {{word(MPI_MESSAGE_NULL), word(MPI_INT), word(request)}, MPI_ERR_REQUEST}},
        {"errhandler", {{word(MPI_ERRHANDLER_NULL), word(MPI_INT), word(comm)}, MPI_ERR_ERRHANDLER}},
        {"info", {{word(MPI_INFO_NULL), word(MPI_INT), word(comm)}, MPI_ERR_INFO}},
        {"hints", {{word(MPI_INT), word(comm)}, MPI_ERR_INFO}},
        {"file", {{word(MPI_FILE_NULL), word(MPI_INT), word(comm)}, MPI_ERR_FILE}},
        {"win", {{word(MPI_WIN_NULL), word(MPI_INT), word(comm)}, MPI_ERR_WIN}},
        {"session", {{word(MPI_SESSION_NULL), word(MPI_INT), word(comm)}, MPI_ERR_SESSION}},
    });
    for (const char* name : {"File_call_errhandler.fh", "File_get_errhandler.file", "File_set_errhandler.file"})
      wrong_["MPI_" + std::string(name)] = {{word(MPI_INT), word(comm)}, MPI_ERR_FILE};
    // Null handles have names.
    wrong_["MPI_Comm_get_name.comm"] = {{word(MPI_INT), word(info), 77}, MPI_ERR_COMM};
    wrong_["MPI_Type_get_name.datatype"] = {{word(MPI_COMM_WORLD), word(comm)}, MPI_ERR_TYPE};
    wrong_["MPI_Win_get_name.win"] = {{word(MPI_INT), word(comm)}, MPI_ERR_WIN};
    // They may be MPI_IN_PLACE.
    for (const std::string& name :
         forms_of({"Allgather", "Allgatherv", "Allreduce", "Alltoall", "Alltoallv", "Alltoallw", "Exscan", "Gather",
                   "Gatherv", "Reduce", "Reduce_scatter", "Reduce_scatter_block", "Scan"}))
      wrong_[name + ".sendbuf"] = {{0}, MPI_ERR_BUFFER};
    for (const std::string& name : forms_of({"Scatter", "Scatterv"})) wrong_[name + ".recvbuf"] = {{0}, MPI_ERR_BUFFER};
  }

  void add_also_wrong() {
    also_wrong_.insert({
        {"MPI_Comm_free_keyval.comm_keyval", {{word(keyvals[1]), word(MPI_TAG_UB)}, MPI_ERR_KEYVAL}},
        {"MPI_Comm_remote_group.comm", {{word(comm)}, MPI_ERR_COMM}},
        {"MPI_Comm_remote_size.comm", {{word(comm)}, MPI_ERR_COMM}},
        {"MPI_Comm_set_attr.comm_keyval", {{word(keyvals[1]), word(MPI_TAG_UB)}, MPI_ERR_KEYVAL}},
        {"MPI_Info_set.key", {{word(""), word(long_text_.c_str())}, MPI_ERR_INFO_KEY}},
        {"MPI_Info_set.value", {{word(long_text_.c_str())}, MPI_ERR_INFO_VALUE}},
        {"MPI_Intercomm_merge.intercomm", {{word(comm)}, MPI_ERR_COMM}},
        {"MPI_Type_set_attr.type_keyval", {{word(keyvals[0])}, MPI_ERR_KEYVAL}},
        {"MPI_Win_attach.win", {{word(win)}, MPI_ERR_RMA_FLAVOR}},
        {"MPI_Win_detach.win", {{word(win)}, MPI_ERR_RMA_FLAVOR}},
        {"MPI_Win_set_attr.win_keyval", {{word(keyvals[1]), word(MPI_WIN_BASE)}, MPI_ERR_KEYVAL}},
        {"MPI_Win_shared_query.win", {{word(dynamic_win)}, MPI_ERR_RMA_FLAVOR}},
    });
    for (const char* name :
         {"Cart_create.comm_old", "Cart_map.comm", "Comm_create_group.comm", "Dist_graph_create.comm_old",
          "Dist_graph_create_adjacent.comm_old", "File_open.comm", "Graph_create.comm_old", "Graph_map.comm",
          "Intercomm_create.local_comm", "Win_allocate.comm", "Win_allocate_shared.comm", "Win_create.comm",
          "Win_create_dynamic.comm"})
      also_wrong_["MPI_" + std::string(name)] = {{word(intercomm)}, MPI_ERR_COMM};
    for (const std::string& name : forms_of({"Exscan", "Scan"}))
      also_wrong_[name + ".comm"] = {{word(intercomm)}, MPI_ERR_COMM};
    for (const char* name :
         {"Cart_coords", "Cart_get", "Cart_rank", "Cart_shift", "Cart_sub", "Cartdim_get", "Dist_graph_neighbors",
          "Dist_graph_neighbors_count", "Graph_get", "Graph_neighbors", "Graph_neighbors_count", "Graphdims_get"})
      also_wrong_["MPI_" + std::string(name) + ".comm"] = {{word(comm)}, MPI_ERR_TOPOLOGY};
    for (const std::string& name : forms_of(among_neighbours))
      also_wrong_[name + ".comm"] = {{word(comm)}, MPI_ERR_TOPOLOGY};
    for (const char* name : {"Accumulate", "Fetch_and_op", "Get_accumulate", "Raccumulate", "Rget_accumulate"})
      also_wrong_["MPI_" + std::string(name) + ".op"] = {{word(op)}, MPI_ERR_OP};
    for (const std::string& name :
         forms_of({"Allreduce", "Exscan", "Reduce", "Reduce_local", "Reduce_scatter", "Reduce_scatter_block", "Scan"}))
      also_wrong_[name + ".op"] = {{word(MPI_MAXLOC), word(MPI_REPLACE)}, MPI_ERR_OP};
  }

  /// A handle that was freed is wrong, too.
  template <class Handle, class Dup, class Free>
  void forget(Handle handle, const std::string& kind, Dup* dup, Free* free) {
    Handle copy{};
    dup(handle, &copy);
    wrong_[kind].values.push_back(word(copy));
    free(&copy);
  }

  const std::string long_text_ = std::string(MPI_MAX_INFO_VAL, 'x');
  std::map<std::string, std::vector<Word>> right_ = right_constants;
  std::map<std::string, Wrong> wrong_ = wrong_constants;
  std::map<std::string, Wrong> also_wrong_ = also_wrong_constants;
};

/// One call's arguments, with memory for those that are places.
class Given {
 public:
  Given(const Arguments& arguments, const Function& function) : function_(function) {
    const std::size_t count = function.parameters.size();
    memory_.resize(count);
    words_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const Parameter& parameter = function.parameters[i];
      const std::vector<Word>& right = arguments.right(function, parameter);
      words_[i] = right[0];
      if (!parameter.is_place() && parameter.kind != "buffer" && parameter.kind != "pointer" &&
          parameter.kind != "status" && parameter.kind != "strings")
        continue;
      words_[i] = word(memory_[i].data());
      if (!parameter.is_given() || parameter.kind == "buffer") continue;
      for (std::size_t element = 0; element < 4; ++element) put(i, element, right);
    }
  }

  void give(std::size_t i, Word value) { words_[i] = value; }
  /// Element 0 of an array, or what a place has.
  void put(std::size_t i, Word value) { put(i, 0, {value, 1}); }
  int call() const { return function_.call(words_.data()); }

 private:
  void put(std::size_t i, std::size_t element, const std::vector<Word>& value) {
    const std::size_t bytes = function_.parameters[i].bytes;
    std::memcpy(memory_[i].data() + element * bytes, value.data(), std::min(bytes, value.size() * sizeof(Word)));
  }

  const Function& function_;
  std::vector<std::array<std::byte, 8192>> memory_;
  std::vector<Word> words_;
};

std::string name_of_class(int error_class) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(error_class, text.data(), &length);
  return text.data();
}

/// By its name, without what all arrays have, or by a word for what it is.
bool names(const std::string& message, const Parameter& parameter) {
  static const std::map<std::string, std::string> words = {
      {"code", "error c"}, {"comm_error_fn", "_fn"}, {"keyval", " key"}, {"range", "rank "}, {"rank", "rank "}};
  constexpr const char* of_arrays = "array_of_";
  const std::string name =
      parameter.name.starts_with(of_arrays) ? parameter.name.substr(std::strlen(of_arrays)) : parameter.name;
  if (message.find(name) != std::string::npos) return true;
  const auto word = words.find(parameter.kind);
  return word != words.end() && message.find(word->second) != std::string::npos;
}

void check_call(const Given& given, const Function& function, const Parameter& parameter, const std::string& what,
                int error_class) {
  last_message.clear();
  const int code = given.call();
  const std::string subject = function.name + " with " + parameter.name + " " + what;
  EXPECT_EQ(name_of_class(code), name_of_class(error_class)) << subject << ": " << last_message;
  if (code == MPI_SUCCESS) return;
  EXPECT_TRUE(last_message.starts_with(function.name + ": ")) << last_message;
  EXPECT_TRUE(names(last_message, parameter)) << subject << ": " << last_message;
}

void check_parameter(const Arguments& arguments, const Function& function, std::size_t i) {
  const Parameter& parameter = function.parameters[i];
  if (Arguments::is_free(function, parameter)) return;
  if (parameter.is_place() && parameter.kind != "buffer") {
    if (parameter.kind != "status") {
      Given given(arguments, function);
      given.give(i, 0);
      check_call(given, function, parameter, "null", MPI_ERR_ARG);
    }
    if (!parameter.is_given()) return;
  }
  for (const auto& [values, error_class] : arguments.wrong(function, parameter)) {
    for (const Word value : values) {
      Given given(arguments, function);
      if (parameter.is_place() && parameter.kind != "buffer") {
        given.put(i, value);
      } else {
        given.give(i, value);
      }
      check_call(given, function, parameter, "= " + std::to_string(static_cast<std::intptr_t>(value)), error_class);
    }
  }
}

class WrongArgument : public testing::TestWithParam<Function> {};

TEST_P(WrongArgument, IsRefusedWithItsClassAndName) {
  run_well({{2, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    {
      const Arguments arguments;
      const Function& function = GetParam();
      for (std::size_t i = 0; i < function.parameters.size(); ++i) check_parameter(arguments, function, i);
    }
    MPI_Finalize();
  });
}

INSTANTIATE_TEST_SUITE_P(Of, WrongArgument, testing::ValuesIn(functions()),
                         [](const testing::TestParamInfo<Function>& info) { return info.param.name; });

}  // namespace
}  // namespace aplib
