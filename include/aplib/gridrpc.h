/* SPDX-License-Identifier: MIT */
/* GridRPC (GFD.52 of the Open Grid Forum), with the extensions of Ninf-G (_np) that docs/gridrpc.md lists.
 *
 *   #include <aplib/gridrpc.h>                                 link with aplib::gridrpc, or -laplib_gridrpc
 *   grpc_function_handle_t handle;
 *   if (grpc_initialize("servers.toml") != GRPC_NO_ERROR ||    or NULL: the programs of APLIB_GRIDRPC_PATH
 *       grpc_function_handle_default(&handle, "sample/dmmul") != GRPC_NO_ERROR ||
 *       grpc_call(&handle, n, a, b, c) != GRPC_NO_ERROR)
 *     grpc_perror_np("dmmul");
 *
 * Arguments are those of the function's IDL, in its order. IN scalars are passed by value, as C passes them to f(...);
 * complex ones as C's complex numbers, or structures of two reals. All others are passed by the address of their first
 * element; WORK arguments are not looked at. string: IN char *; OUT and INOUT char **, which is set to memory of
 * malloc(). filename: char *, a file of the caller's, whose contents travel. Arrays of these have one char * for each.
 *
 * All functions may be called from any thread. IN arguments must stay as they are, and OUT arguments in place, until
 * the call is over; of grpc_call_async() until it has been waited for. */
#ifndef APLIB_GRIDRPC_H
#define APLIB_GRIDRPC_H

#include <stddef.h>

#if defined(APLIB_STATIC)
#define APLIB_GRPC_API
#else
#define APLIB_GRPC_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef int grpc_error_t;
typedef int grpc_sessionid_t;

/* No session. */
#define GRPC_SESSIONID_VOID (-1)

/* What functions return, and what grpc_get_error() says of a session. */
enum {
  GRPC_NO_ERROR = 0,
  GRPC_NOT_INITIALIZED = 1,
  GRPC_CONFIGFILE_NOT_FOUND = 2,
  GRPC_CONFIGFILE_ERROR = 3,
  GRPC_SERVER_NOT_FOUND = 4,
  GRPC_FUNCTION_NOT_FOUND = 5,
  GRPC_INVALID_FUNCTION_HANDLE = 6,
  GRPC_INVALID_SESSION_ID = 7,
  GRPC_RPC_REFUSED = 8, /* The server cannot be spoken to. */
  GRPC_COMMUNICATION_FAILED = 9,
  GRPC_SESSION_FAILED = 10, /* The call failed: the server died, refused an argument, or said so. */
  GRPC_NOT_COMPLETED = 11,
  GRPC_NONE_COMPLETED = 12,
  GRPC_OTHER_ERROR_CODE = 13, /* An argument of this interface is wrong, or a resource ran out. */
  GRPC_UNKNOWN_ERROR_CODE = 14,
  GRPC_ALREADY_INITIALIZED = 15,
  GRPC_LAST_ERROR_CODE = 16,
  GRPC_CANCELED_NP = 17,
  GRPC_TIMEOUT_NP = 18
};

/* A function of a server. What is in it is the library's; a handle may not be copied. */
typedef struct grpc_function_handle_s {
  unsigned long long number;
} grpc_function_handle_t;

/* An object: a process that keeps its state between calls of its methods. */
typedef struct grpc_object_handle_s_np {
  unsigned long long number;
} grpc_object_handle_t_np;

/* Arguments of a call, from first to last: the address of each. */
typedef struct grpc_arg_stack_s grpc_arg_stack_t;

/* --- Beginning and end --- */

/* Reads the file of servers; NULL: servers are the programs of APLIB_GRIDRPC_PATH (files and folders, with : between
 * them), and those that grpc_function_handle_init() names. GRPC_CONFIGFILE_NOT_FOUND, GRPC_CONFIGFILE_ERROR,
 * GRPC_ALREADY_INITIALIZED. */
APLIB_GRPC_API grpc_error_t grpc_initialize(const char* config_file_name);
/* Cancels what runs, destructs all handles, ends their processes. */
APLIB_GRPC_API grpc_error_t grpc_finalize(void);

/* --- Function handles --- */

/* Of the first server that has the function. GRPC_FUNCTION_NOT_FOUND, GRPC_SERVER_NOT_FOUND (there are none). */
APLIB_GRPC_API grpc_error_t grpc_function_handle_default(grpc_function_handle_t* handle, const char* func_name);
/* `server_name`: of the file, or the path of a program, with a slash. GRPC_SERVER_NOT_FOUND,
 * GRPC_FUNCTION_NOT_FOUND, GRPC_RPC_REFUSED, GRPC_COMMUNICATION_FAILED. */
APLIB_GRPC_API grpc_error_t grpc_function_handle_init(grpc_function_handle_t* handle, const char* server_name,
                                                      const char* func_name);
/* Sessions of the handle that are not over are cancelled. */
APLIB_GRPC_API grpc_error_t grpc_function_handle_destruct(grpc_function_handle_t* handle);
/* The handle of a session. GRPC_INVALID_SESSION_ID. */
APLIB_GRPC_API grpc_error_t grpc_get_handle(grpc_function_handle_t** handle, grpc_sessionid_t session);
/* `count` handles side by side: all, or none. */
APLIB_GRPC_API grpc_error_t grpc_function_handle_array_default_np(grpc_function_handle_t* handles, size_t count,
                                                                  const char* func_name);
APLIB_GRPC_API grpc_error_t grpc_function_handle_array_init_np(grpc_function_handle_t* handles, size_t count,
                                                               const char* server_name, const char* func_name);
APLIB_GRPC_API grpc_error_t grpc_function_handle_array_destruct_np(grpc_function_handle_t* handles, size_t count);

/* --- Calls --- */

/* Waits for the function. GRPC_INVALID_FUNCTION_HANDLE, GRPC_SESSION_FAILED, GRPC_COMMUNICATION_FAILED,
 * GRPC_TIMEOUT_NP. */
APLIB_GRPC_API grpc_error_t grpc_call(grpc_function_handle_t* handle, ...);
/* Returns at once. Sessions of a handle run at the same time, in as many processes as the server may have; others wait
 * for these. */
APLIB_GRPC_API grpc_error_t grpc_call_async(grpc_function_handle_t* handle, grpc_sessionid_t* session, ...);

/* NULL: no memory, or a size below 0. */
APLIB_GRPC_API grpc_arg_stack_t* grpc_arg_stack_new(int max_args);
/* 0, or -1: it is full. `arg`: where the argument is; of a string or filename, the char * itself, unless it is OUT or
 * an array. */
APLIB_GRPC_API int grpc_arg_stack_push_arg(grpc_arg_stack_t* stack, void* arg);
/* NULL: it is empty. */
APLIB_GRPC_API void* grpc_arg_stack_pop_arg(grpc_arg_stack_t* stack);
APLIB_GRPC_API int grpc_arg_stack_destruct(grpc_arg_stack_t* stack);
APLIB_GRPC_API grpc_error_t grpc_call_arg_stack(grpc_function_handle_t* handle, grpc_arg_stack_t* stack);
/* Returns the session, or GRPC_SESSIONID_VOID. */
APLIB_GRPC_API int grpc_call_arg_stack_async(grpc_function_handle_t* handle, grpc_arg_stack_t* stack);

/* --- Sessions --- */

/* GRPC_NO_ERROR: it is over. GRPC_NOT_COMPLETED, GRPC_INVALID_SESSION_ID. */
APLIB_GRPC_API grpc_error_t grpc_probe(grpc_sessionid_t session);
/* Finds one that is over. GRPC_NONE_COMPLETED, GRPC_INVALID_SESSION_ID. */
APLIB_GRPC_API grpc_error_t grpc_probe_or(grpc_sessionid_t* sessions, size_t count, grpc_sessionid_t* over);
/* Kills the process that carries the call out. Does not wait: grpc_wait() then returns GRPC_SESSION_FAILED, and
 * grpc_get_error() GRPC_CANCELED_NP. */
APLIB_GRPC_API grpc_error_t grpc_cancel(grpc_sessionid_t session);
APLIB_GRPC_API grpc_error_t grpc_cancel_all(void);

/* GRPC_SESSION_FAILED: grpc_get_error() has the reason. */
APLIB_GRPC_API grpc_error_t grpc_wait(grpc_sessionid_t session);
/* For all of them. GRPC_SESSION_FAILED: some failed, as grpc_get_failed_sessionid() says. */
APLIB_GRPC_API grpc_error_t grpc_wait_and(grpc_sessionid_t* sessions, size_t count);
/* For one of them, which may have failed: GRPC_SESSION_FAILED. */
APLIB_GRPC_API grpc_error_t grpc_wait_or(grpc_sessionid_t* sessions, size_t count, grpc_sessionid_t* over);
/* For all that nobody has waited for yet. */
APLIB_GRPC_API grpc_error_t grpc_wait_all(void);
/* For one of these. There is none: GRPC_NONE_COMPLETED and GRPC_SESSIONID_VOID. */
APLIB_GRPC_API grpc_error_t grpc_wait_any(grpc_sessionid_t* over);

/* --- Errors --- */

/* How a session ended; GRPC_NOT_COMPLETED, GRPC_INVALID_SESSION_ID. The latest 65,536 sessions are remembered. */
APLIB_GRPC_API grpc_error_t grpc_get_error(grpc_sessionid_t session);
/* A few words. */
APLIB_GRPC_API const char* grpc_error_string(grpc_error_t code);
/* Of those that failed in the latest grpc_wait_all() or grpc_wait_and(), one after the other, then
 * GRPC_SESSIONID_VOID. */
APLIB_GRPC_API grpc_error_t grpc_get_failed_sessionid(grpc_sessionid_t* session);
/* Prints "PREFIX: what was wrong" on standard error, with the reason, of this thread's latest call that failed. */
APLIB_GRPC_API grpc_error_t grpc_perror_np(const char* prefix);
APLIB_GRPC_API grpc_error_t grpc_perror(const char* prefix);
APLIB_GRPC_API grpc_error_t grpc_last_error_get_np(void);
/* What grpc_perror_np() prints; valid until the thread's next call. */
APLIB_GRPC_API const char* grpc_last_error_text_np(void);
/* What was wrong with a session; "" where nothing was. The same. */
APLIB_GRPC_API const char* grpc_session_error_text_np(grpc_sessionid_t session);

/* --- Objects (Ninf-G) --- */

/* As of function handles; `class_name`: of a DefClass. The object is there at once, and nowhere else. */
APLIB_GRPC_API grpc_error_t grpc_object_handle_default_np(grpc_object_handle_t_np* handle, const char* class_name);
APLIB_GRPC_API grpc_error_t grpc_object_handle_init_np(grpc_object_handle_t_np* handle, const char* server_name,
                                                       const char* class_name);
APLIB_GRPC_API grpc_error_t grpc_object_handle_destruct_np(grpc_object_handle_t_np* handle);
APLIB_GRPC_API grpc_error_t grpc_object_handle_array_default_np(grpc_object_handle_t_np* handles, size_t count,
                                                                const char* class_name);
APLIB_GRPC_API grpc_error_t grpc_object_handle_array_init_np(grpc_object_handle_t_np* handles, size_t count,
                                                             const char* server_name, const char* class_name);
APLIB_GRPC_API grpc_error_t grpc_object_handle_array_destruct_np(grpc_object_handle_t_np* handles, size_t count);
APLIB_GRPC_API grpc_error_t grpc_object_handle_get_from_session_np(grpc_object_handle_t_np** handle,
                                                                   grpc_sessionid_t session);
/* Calls of one object are carried out one after the other, in their order. A session that is cancelled or times out
 * takes the object with it. */
APLIB_GRPC_API grpc_error_t grpc_invoke_np(grpc_object_handle_t_np* handle, const char* method_name, ...);
APLIB_GRPC_API grpc_error_t grpc_invoke_async_np(grpc_object_handle_t_np* handle, const char* method_name,
                                                 grpc_sessionid_t* session, ...);
APLIB_GRPC_API grpc_error_t grpc_invoke_arg_stack_np(grpc_object_handle_t_np* handle, const char* method_name,
                                                     grpc_arg_stack_t* stack);
APLIB_GRPC_API int grpc_invoke_arg_stack_async_np(grpc_object_handle_t_np* handle, const char* method_name,
                                                  grpc_arg_stack_t* stack);

#ifdef __cplusplus
}
#endif

#endif
