/* SPDX-License-Identifier: MIT */
/* Datatypes, attributes, errors, info objects, windows, files and threads. */
#include "check.h"

static void datatypes(void) {
  struct {
    int number;
    double value[2];
  } sent = {rank, {1, 2}}, got = {-1, {0, 0}};
  int lengths[2] = {1, 2}, combiner = -1, integers[16], counts[3], length = 0, bytes = 0;
  MPI_Aint places[2], addresses[4], lb, extent, base;
  MPI_Datatype types[2] = {MPI_INT, MPI_DOUBLE}, pair, parts[4], twin, found;
  char name[MPI_MAX_OBJECT_NAME];
  MPI_Get_address(&sent, &base);
  MPI_Get_address(&sent.number, places);
  MPI_Get_address(sent.value, places + 1);
  places[0] -= base;
  places[1] -= base;
  MPI_Type_create_struct(2, lengths, places, types, &pair);
  MPI_Type_create_resized(pair, 0, sizeof sent, &twin);
  MPI_Type_commit(&twin);
  MPI_Sendrecv(&sent, 1, twin, rank, 0, &got, 1, twin, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  CHECK(got.number == rank && got.value[1] == 2);
  MPI_Type_get_extent(twin, &lb, &extent);
  CHECK(lb == 0 && extent == sizeof sent);
  MPI_Type_get_envelope(pair, counts, counts + 1, counts + 2, &combiner);
  CHECK(combiner == MPI_COMBINER_STRUCT && counts[0] == 3 && counts[2] == 2);
  MPI_Type_get_contents(pair, counts[0], counts[1], counts[2], integers, addresses, parts);
  CHECK(integers[0] == 2 && parts[0] == MPI_INT && parts[1] == MPI_DOUBLE);
  MPI_Type_get_envelope(twin, counts, counts + 1, counts + 2, &combiner);
  CHECK(combiner == MPI_COMBINER_RESIZED);
  MPI_Type_get_envelope(MPI_INT, counts, counts + 1, counts + 2, &combiner);
  CHECK(combiner == MPI_COMBINER_NAMED);
  MPI_Type_free(&twin);
  MPI_Type_free(&pair);
  {
    int sizes[2] = {4, 6}, part[2] = {2, 3}, starts[2] = {1, 1};
    MPI_Type_create_subarray(2, sizes, part, starts, MPI_ORDER_FORTRAN, MPI_INT, &pair);
    MPI_Type_get_envelope(pair, counts, counts + 1, counts + 2, &combiner);
    CHECK(combiner == MPI_COMBINER_SUBARRAY);
    MPI_Type_get_contents(pair, counts[0], counts[1], counts[2], integers, addresses, parts);
    CHECK(integers[0] == 2 && integers[7] == MPI_ORDER_FORTRAN && parts[0] == MPI_INT);
    MPI_Type_free(&pair);
  }
  {
    int sizes[2] = {8, 8}, kinds[2] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE};
    int blocks[2] = {2, MPI_DISTRIBUTE_DFLT_DARG}, grid[2] = {2, 1};
    MPI_Type_create_darray(2, 1, 2, sizes, kinds, blocks, grid, MPI_ORDER_C, MPI_INT, &pair);
    MPI_Type_get_envelope(pair, counts, counts + 1, counts + 2, &combiner);
    MPI_Type_get_contents(pair, counts[0], counts[1], counts[2], integers, addresses, parts);
    MPI_Type_size(pair, &bytes);
    CHECK(combiner == MPI_COMBINER_DARRAY && bytes == 8 * 4 * (int)sizeof(int));
    CHECK(integers[5] == MPI_DISTRIBUTE_CYCLIC && integers[6] == MPI_DISTRIBUTE_NONE && integers[7] == 2);
    CHECK(integers[8] == MPI_DISTRIBUTE_DFLT_DARG && integers[11] == MPI_ORDER_C);
    MPI_Type_free(&pair);
  }
  MPI_Type_get_name(MPI_DOUBLE, name, &length);
  CHECK(strcmp(name, "MPI_DOUBLE") == 0 && length == 10);
  MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &found);
  MPI_Type_size(found, &bytes);
  CHECK(bytes == 8);
}

static int copies, deletes;
static int copy(MPI_Comm comm, int key, void* state, void* in, void* out, int* flag) {
  CHECK(comm == MPI_COMM_WORLD && *(int*)state == 5 && key != MPI_KEYVAL_INVALID);
  ++copies;
  *(void**)out = (char*)in + 1;
  *flag = 1;
  return MPI_SUCCESS;
}
static int delete(MPI_Comm comm, int key, void* value, void* state) {
  CHECK(comm != MPI_COMM_NULL && value != NULL && *(int*)state == 5 && key != MPI_KEYVAL_INVALID);
  ++deletes;
  return MPI_SUCCESS;
}

static void attributes(void) {
  static int five = 5;
  int key = MPI_KEYVAL_INVALID, key_of_type, flag = 0, *number = NULL;
  char text[4] = "abc", *value = NULL;
  MPI_Comm comm;
  MPI_Datatype type;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &number, &flag);
  CHECK(flag && *number >= 32767);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &number, &flag);
  CHECK(!flag || *number >= size);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &number, &flag);
  CHECK(flag && *number >= MPI_ERR_LASTCODE);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_HOST, &number, &flag);
  CHECK(!flag || *number == MPI_PROC_NULL);
  MPI_Comm_create_keyval(copy, delete, &key, &five);
  CHECK(key != MPI_KEYVAL_INVALID);
  MPI_Comm_set_attr(MPI_COMM_WORLD, key, text);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_get_attr(comm, key, &value, &flag);
  CHECK(flag && value == text + 1 && copies == 1);
  MPI_Comm_free(&comm);
  CHECK(deletes == 1);
  MPI_Comm_delete_attr(MPI_COMM_WORLD, key);
  CHECK(deletes == 2);
  MPI_Comm_get_attr(MPI_COMM_WORLD, key, &value, &flag);
  CHECK(!flag);
  MPI_Comm_free_keyval(&key);
  CHECK(key == MPI_KEYVAL_INVALID);
  MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, &key_of_type, NULL);
  MPI_Type_set_attr(MPI_INT, key_of_type, text);
  MPI_Type_dup(MPI_INT, &type);
  MPI_Type_get_attr(type, key_of_type, &value, &flag);
  CHECK(flag && value == text);
  MPI_Type_free(&type);
  MPI_Type_delete_attr(MPI_INT, key_of_type);
  MPI_Type_free_keyval(&key_of_type);
}

static int handled, last_code;
static void handle(MPI_Comm* comm, int* code, ...) {
  CHECK(*comm == MPI_COMM_WORLD);
  last_code = *code;
  ++handled;
}
static void handle_file(MPI_File* file, int* code, ...) {
  CHECK(*file == MPI_FILE_NULL);
  MPI_Error_class(*code, &last_code);
  ++handled;
}

static void errors_of_calls(void) {
  int value = 0, code, error_class = -1, length = 0, added;
  char text[MPI_MAX_ERROR_STRING];
  MPI_Errhandler handler, before;
  MPI_File file;
  MPI_Info info;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
  CHECK(before == MPI_ERRORS_ARE_FATAL);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  CHECK(MPI_Send(&value, 1, MPI_INT, size + 7, 0, MPI_COMM_WORLD) == MPI_ERR_RANK);
  CHECK(MPI_Send(&value, -1, MPI_INT, rank, 0, MPI_COMM_WORLD) == MPI_ERR_COUNT);
  CHECK(MPI_Send(&value, 1, MPI_DATATYPE_NULL, rank, 0, MPI_COMM_WORLD) == MPI_ERR_TYPE);
  CHECK(MPI_Send(&value, 1, MPI_INT, rank, MPI_ANY_TAG, MPI_COMM_WORLD) == MPI_ERR_TAG);
  {
    int sent[2] = {1, 2}, got = 0;
    MPI_Request request;
    MPI_Isend(sent, 2, MPI_INT, rank, 9, MPI_COMM_WORLD, &request);
    CHECK(MPI_Recv(&got, 1, MPI_INT, rank, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_ERR_TRUNCATE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  {
    int sent[2] = {1, 2}, got[2];
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Irecv(got, 1, MPI_INT, rank, 21, MPI_COMM_WORLD, requests);
    MPI_Irecv(got + 1, 1, MPI_INT, rank, 22, MPI_COMM_WORLD, requests + 1);
    MPI_Send(sent, 1, MPI_INT, rank, 22, MPI_COMM_WORLD);
    MPI_Send(sent, 2, MPI_INT, rank, 21, MPI_COMM_WORLD);
    code = MPI_Waitall(2, requests, statuses);
    CHECK(code == MPI_ERR_IN_STATUS);
    CHECK(statuses[0].MPI_ERROR == MPI_ERR_TRUNCATE && statuses[1].MPI_ERROR == MPI_SUCCESS);
  }
  MPI_Error_class(MPI_ERR_IN_STATUS, &error_class);
  CHECK(error_class == MPI_ERR_IN_STATUS);
  MPI_Error_string(MPI_ERR_RMA_SYNC, text, &length);
  CHECK(strstr(text, "MPI_ERR_RMA_SYNC") != NULL && length == (int)strlen(text));
  MPI_Add_error_class(&added);
  MPI_Add_error_code(added, &code);
  MPI_Add_error_string(code, "of our own");
  MPI_Error_string(code, text, &length);
  CHECK(strcmp(text, "of our own") == 0);
  MPI_Error_class(code, &error_class);
  CHECK(error_class == added);
  MPI_Comm_create_errhandler(handle, &handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
  MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_WIN);
  CHECK(handled == 1 && last_code == MPI_ERR_WIN);
  MPI_Errhandler_free(&handler);
  CHECK(handler == MPI_ERRHANDLER_NULL);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_File_create_errhandler(handle_file, &handler);
  MPI_File_set_errhandler(MPI_FILE_NULL, handler);
  handled = 0;
  MPI_File_open(MPI_COMM_SELF, "/nowhere/at/all", MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
  CHECK(handled == 1 && last_code == MPI_ERR_NO_SUCH_FILE);
  MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
  MPI_Errhandler_free(&handler);
  MPI_Info_create(&info);
  MPI_Info_set(info, "key", "value");
  MPI_Info_get_nkeys(info, &length);
  CHECK(length == 1);
  {
    char key[MPI_MAX_INFO_KEY], found[16];
    int flag = 0;
    MPI_Info_get_nthkey(info, 0, key);
    MPI_Info_get(info, key, 15, found, &flag);
    CHECK(strcmp(key, "key") == 0 && flag && strcmp(found, "value") == 0);
  }
  MPI_Info_free(&info);
  CHECK(info == MPI_INFO_NULL);
}

static void windows(void) {
  int memory[2] = {rank, -1}, got = -1, flag = 0, *flavor = NULL, *model = NULL, *unit = NULL;
  const int right = (rank + 1) % size;
  MPI_Aint* bytes = NULL;
  MPI_Win win;
  MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &flavor, &flag);
  CHECK(flag && *flavor == MPI_WIN_FLAVOR_CREATE);
  MPI_Win_get_attr(win, MPI_WIN_MODEL, &model, &flag);
  CHECK(flag && (*model == MPI_WIN_UNIFIED || *model == MPI_WIN_SEPARATE));
  MPI_Win_get_attr(win, MPI_WIN_SIZE, &bytes, &flag);
  CHECK(flag && *bytes == sizeof memory);
  MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &unit, &flag);
  CHECK(flag && *unit == sizeof(int));
  MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
  MPI_Put(&rank, 1, MPI_INT, right, 1, 1, MPI_INT, win);
  MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
  CHECK(memory[1] == (rank + size - 1) % size);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, right, MPI_MODE_NOCHECK, win);
  MPI_Get(&got, 1, MPI_INT, right, 0, 1, MPI_INT, win);
  MPI_Win_unlock(right, win);
  CHECK(got == right);
  MPI_Win_free(&win);
  CHECK(win == MPI_WIN_NULL);
}

static void files(const char* name) {
  MPI_File file;
  MPI_Offset bytes = 0, offset = -1;
  MPI_Status status;
  MPI_Datatype etype, filetype;
  char representation[MPI_MAX_DATAREP_STRING];
  int mode = 0, count = 0, got = -1;
  if (MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                    &file) != MPI_SUCCESS) {
    CHECK(!"the file opens");
    return;
  }
  MPI_File_get_amode(file, &mode);
  CHECK(mode == (MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE));
  MPI_File_write_at_all(file, rank * (MPI_Offset)sizeof(int), &rank, 1, MPI_INT, &status);
  MPI_Get_count(&status, MPI_INT, &count);
  CHECK(count == 1);
  MPI_File_sync(file);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_get_size(file, &bytes);
  CHECK(bytes == size * (MPI_Offset)sizeof(int));
  MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
  MPI_File_get_view(file, &offset, &etype, &filetype, representation);
  CHECK(offset == 0 && etype == MPI_INT && strcmp(representation, "native") == 0);
  MPI_File_seek(file, -1, MPI_SEEK_END);
  MPI_File_read(file, &got, 1, MPI_INT, MPI_STATUS_IGNORE);
  CHECK(got == size - 1);
  MPI_File_seek(file, rank, MPI_SEEK_SET);
  MPI_File_read(file, &got, 1, MPI_INT, MPI_STATUS_IGNORE);
  CHECK(got == rank);
  MPI_File_close(&file);
  CHECK(file == MPI_FILE_NULL);
}

int main(int argc, char** argv) {
  int provided = -1, again = -1, length = 0;
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Query_thread(&again);
  CHECK(provided >= MPI_THREAD_FUNNELED && provided <= MPI_THREAD_MULTIPLE && again == provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_library_version(text, &length);
  CHECK(length == (int)strlen(text) && length > 0);
  datatypes();
  attributes();
  errors_of_calls();
  windows();
  if (argc > 1) files(argv[1]);
  return finish();
}
