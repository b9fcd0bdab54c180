/* SPDX-License-Identifier: MIT */
/* What Open MPI 5 and 6 and MPICH 4.1 to 5 have beyond Open MPI 4 and MPICH 4.0, with their numbers. Older headers do
   not declare it, so it is declared here. */
#include "check.h"

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
typedef struct ompi_instance_t* MPI_Session;
extern char ompi_mpi_errors_abort, ompi_mpi_instance_null;
#define MPI_ERRORS_ABORT ((MPI_Errhandler)(void*)&ompi_mpi_errors_abort)
#define MPI_SESSION_NULL ((MPI_Session)(void*)&ompi_mpi_instance_null)
enum { MPI_COMM_TYPE_HW_UNGUIDED = 12, MPI_COMM_TYPE_HW_GUIDED = 13 };
enum { MPI_ERR_SESSION = 78, MPI_ERR_VALUE_TOO_LARGE = 79 };
int MPI_Session_init(MPI_Info info, MPI_Errhandler errhandler, MPI_Session* session);
int MPI_Session_finalize(MPI_Session* session);
int MPI_Session_get_info(MPI_Session session, MPI_Info* info);
int MPI_Group_from_session_pset(MPI_Session session, const char* pset, MPI_Group* group);
int MPI_Comm_create_from_group(MPI_Group group, const char* tag, MPI_Info info, MPI_Errhandler errhandler,
                               MPI_Comm* comm);
#endif
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 6
extern struct ompi_predefined_datatype_t ompi_mpi_complex4, ompi_mpi_integer16, ompi_mpi_logical16, ompi_mpi_real2;
#define MPI_COMPLEX4 ((MPI_Datatype)(void*)&ompi_mpi_complex4)
#define MPI_INTEGER16 ((MPI_Datatype)(void*)&ompi_mpi_integer16)
#define MPI_LOGICAL16 ((MPI_Datatype)(void*)&ompi_mpi_logical16)
#define MPI_REAL2 ((MPI_Datatype)(void*)&ompi_mpi_real2)
#define MPI_BUFFER_AUTOMATIC ((void*)4)
enum { MPI_COMM_TYPE_RESOURCE_GUIDED = 14, MPI_COMBINER_VALUE_INDEX = 19 };
enum { MPI_ERR_ERRHANDLER = 80, MPI_T_ERR_NOT_ACCESSIBLE = 81, MPI_T_ERR_NOT_SUPPORTED = 82, MPI_ERR_ABI = 83 };
int MPI_Type_get_value_index(MPI_Datatype value, MPI_Datatype index, MPI_Datatype* pair);
#endif

#if defined(MPICH) && MPICH_NUMVERSION < 40100000
enum { MPI_COMM_TYPE_RESOURCE_GUIDED = 4, MPI_COMBINER_VALUE_INDEX = 20, MPI_ERR_ERRHANDLER = 80 };
#define MPI_BUFFER_AUTOMATIC ((void*)-2)
int MPI_Type_get_value_index(MPI_Datatype value, MPI_Datatype index, MPI_Datatype* pair);
#endif
#if defined(MPICH) && MPICH_NUMVERSION < 50000000
#define MPI_COMPLEX4 ((MPI_Datatype)0x4c00042e)
#define MPI_LOGICAL1 ((MPI_Datatype)0x4c000147)
#define MPI_LOGICAL2 ((MPI_Datatype)0x4c000248)
#define MPI_LOGICAL4 ((MPI_Datatype)0x4c000449)
#define MPI_LOGICAL8 ((MPI_Datatype)0x4c00084a)
#define MPI_LOGICAL16 ((MPI_Datatype)0x4c00104b)
#undef MPI_INTEGER16
#define MPI_INTEGER16 ((MPI_Datatype)0x4c001032)
#define MPI_REAL2 ((MPI_Datatype)0x4c000226)
enum { MPI_ERR_ABI = 81 };
int MPIX_Op_create_x(void (*)(void*, void*, MPI_Count, MPI_Datatype, void*), void (*)(void*), int, void*, MPI_Op*);
int MPIX_Comm_create_errhandler_x(void (*)(MPI_Comm, int, void*), void (*)(void*), void*, MPI_Errhandler*);
int MPIX_File_create_errhandler_x(void (*)(MPI_File, int, void*), void (*)(void*), void*, MPI_Errhandler*);
int MPIX_Win_create_errhandler_x(void (*)(MPI_Win, int, void*), void (*)(void*), void*, MPI_Errhandler*);
int MPIX_Session_create_errhandler_x(void (*)(MPI_Session, int, void*), void (*)(void*), void*, MPI_Errhandler*);
int MPIX_Request_is_complete(MPI_Request request);
#endif

static void sessions(void) {
  MPI_Session session = MPI_SESSION_NULL;
  MPI_Group group;
  MPI_Comm comm;
  MPI_Info info;
  int all = 0;
  CHECK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS && session != MPI_SESSION_NULL);
  CHECK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group) == MPI_SUCCESS);
  CHECK(MPI_Comm_create_from_group(group, "newer", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) == MPI_SUCCESS);
  MPI_Comm_size(comm, &all);
  CHECK(all == size);
  MPI_Group_free(&group);
  MPI_Comm_free(&comm);
  CHECK(MPI_Session_finalize(&session) == MPI_SUCCESS && session == MPI_SESSION_NULL);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  CHECK(MPI_Session_get_info(MPI_SESSION_NULL, &info) == MPI_ERR_SESSION);
}

static void error_classes(void) {
  const int classes[] = {MPI_ERR_SESSION, MPI_ERR_VALUE_TOO_LARGE, MPI_ERR_ERRHANDLER, MPI_ERR_ABI};
  const char* const names[] = {"MPI_ERR_SESSION", "MPI_ERR_VALUE_TOO_LARGE", "MPI_ERR_ERRHANDLER", "MPI_ERR_ABI"};
  char text[MPI_MAX_ERROR_STRING];
  MPI_Errhandler got;
  for (int i = 0; i < 4; ++i) {
    int length = 0, class = -1;
    MPI_Error_class(classes[i], &class);
    MPI_Error_string(classes[i], text, &length);
    CHECK(class == classes[i] && strncmp(text, names[i], strlen(names[i])) == 0);
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ABORT);
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &got);
  CHECK(got == MPI_ERRORS_ABORT);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  CHECK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRHANDLER_NULL) == MPI_ERR_ERRHANDLER);
}

static void splits(void) {
  const int guided[] = {MPI_COMM_TYPE_HW_GUIDED, MPI_COMM_TYPE_RESOURCE_GUIDED};
  MPI_Info info;
  MPI_Comm part;
  MPI_Info_create(&info);
  MPI_Info_set(info, "mpi_hw_resource_type", "mpi_shared_memory");
  for (int i = 0; i < 2; ++i) {
    CHECK(MPI_Comm_split_type(MPI_COMM_WORLD, guided[i], rank, info, &part) == MPI_SUCCESS);
    if (part != MPI_COMM_NULL) MPI_Comm_free(&part);
  }
  MPI_Info_free(&info);
  CHECK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_UNGUIDED, rank, MPI_INFO_NULL, &part) == MPI_SUCCESS);
  if (part != MPI_COMM_NULL) MPI_Comm_free(&part);
}

static void expect_type(MPI_Datatype type, const char* wanted, int wanted_size) {
  char name[MPI_MAX_OBJECT_NAME];
  int length = 0, bytes = -1;
  MPI_Type_size(type, &bytes);
  MPI_Type_get_name(type, name, &length);
  CHECK(bytes == wanted_size && strcmp(name, wanted) == 0);
}

static void datatypes(void) {
  MPI_Datatype pair;
  int counts[3], combiner = -1;
  expect_type(MPI_COMPLEX4, "MPI_COMPLEX4", MPI_UNDEFINED); /* no compiler has it */
  expect_type(MPI_LOGICAL1, "MPI_LOGICAL1", 1);
  expect_type(MPI_LOGICAL2, "MPI_LOGICAL2", 2);
  expect_type(MPI_LOGICAL4, "MPI_LOGICAL4", 4);
  expect_type(MPI_LOGICAL8, "MPI_LOGICAL8", 8);
  expect_type(MPI_LOGICAL16, "MPI_LOGICAL16", 16);
  expect_type(MPI_INTEGER16, "MPI_INTEGER16", 16);
  expect_type(MPI_REAL2, "MPI_REAL2", MPI_UNDEFINED);
  CHECK(MPI_Type_get_value_index(MPI_DOUBLE, MPI_INT, &pair) == MPI_SUCCESS && pair == MPI_DOUBLE_INT);
  CHECK(MPI_Type_get_value_index(MPI_DOUBLE, MPI_LONG, &pair) == MPI_SUCCESS);
  if (pair == MPI_DATATYPE_NULL) return;
  MPI_Type_get_envelope(pair, counts, counts + 1, counts + 2, &combiner);
  CHECK(combiner == MPI_COMBINER_VALUE_INDEX);
}

static void buffers(void) {
  int sent = rank, got = -1, bytes = -1;
  void* buffer = NULL;
  CHECK(MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0) == MPI_SUCCESS);
  MPI_Bsend(&sent, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
  MPI_Recv(&got, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  CHECK(got == (rank + size - 1) % size);
  CHECK(MPI_Buffer_detach(&buffer, &bytes) == MPI_SUCCESS && buffer == MPI_BUFFER_AUTOMATIC);
}

#ifdef MPICH
static void add_weighted(void* in, void* inout, MPI_Count length, MPI_Datatype datatype, void* weight) {
  CHECK(datatype == MPI_INT);
  for (MPI_Count i = 0; i < length; ++i) ((int*)inout)[i] += ((int*)in)[i] + *(int*)weight;
}
static void note(MPI_Comm comm, int code, void* noted) { *(int*)noted = comm == MPI_COMM_SELF ? code : -1; }
static void note_window(MPI_Win win, int code, void* noted) { *(int*)noted = win != MPI_WIN_NULL ? code : -1; }

/* The functions with a state, by which MPICH 5 has operations and error handlers of Fortran and C++. */
static void functions_with_state(void) {
  static int ten = 10, code, code_of_window;
  int value = 1, sum = -1;
  MPI_Op op;
  MPI_Errhandler handler;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Win win;
  CHECK(MPIX_Op_create_x(add_weighted, NULL, 1, &ten, &op) == MPI_SUCCESS);
  MPI_Allreduce(&value, &sum, 1, MPI_INT, op, MPI_COMM_WORLD);
  CHECK(sum == size + 10 * (size - 1));
  MPI_Op_free(&op);
  CHECK(MPIX_Comm_create_errhandler_x(note, NULL, &code, &handler) == MPI_SUCCESS);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
  MPI_Errhandler_free(&handler);
  MPI_Send(&value, 1, MPI_INT, 99, 0, MPI_COMM_SELF);
  CHECK(code == MPI_ERR_RANK);
  MPI_Win_create(&value, sizeof value, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  CHECK(MPIX_Win_create_errhandler_x(note_window, NULL, &code_of_window, &handler) == MPI_SUCCESS);
  MPI_Win_set_errhandler(win, handler);
  MPI_Errhandler_free(&handler);
  MPI_Put(&value, 1, MPI_INT, 99, 0, 1, MPI_INT, win);
  CHECK(code_of_window != 0 && code_of_window != -1);
  MPI_Win_free(&win);
  CHECK(MPIX_File_create_errhandler_x(NULL, NULL, NULL, &handler) != MPI_SUCCESS);
  CHECK(MPIX_Session_create_errhandler_x(NULL, NULL, NULL, &handler) != MPI_SUCCESS);
  CHECK(MPIX_Request_is_complete(request));
  MPI_Irecv(&value, 1, MPI_INT, rank, 5, MPI_COMM_WORLD, &request);
  CHECK(!MPIX_Request_is_complete(request));
  MPI_Send(&sum, 1, MPI_INT, rank, 5, MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}
#else
static void functions_with_state(void) {}
#endif

int main(int argc, char** argv) {
  start(&argc, &argv);
  sessions();
  error_classes();
  splits();
  datatypes();
  buffers();
  functions_with_state();
  return finish();
}
