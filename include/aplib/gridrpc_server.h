/* SPDX-License-Identifier: MIT */
/* What a server of GridRPC is made of. apgen writes a program that uses this; docs/gridrpc.md. */
#ifndef APLIB_GRIDRPC_SERVER_H
#define APLIB_GRIDRPC_SERVER_H

#include <aplib/gridrpc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A note in the program's file says that it is a server, so that nobody needs to run it to find out (version 1). */
__asm__(
    ".pushsection .note.aplib.gridrpc, \"a\", %note\n.balign 4\n.long 6, 4, 2\n.asciz \"APlib\"\n.balign 4\n.long 1\n"
    ".popsection");

/* Carries a function out: `arguments` has the address of each one's first element; of a string or filename, the
 * address of a char *. */
typedef void (*grpc_server_function_np)(void** arguments);

/* Serves whoever is at the other end of standard input, until it closes that. `idl`: the interface; `functions`: first
 * its functions, then the methods of its classes, in its order. Returns the exit status. */
APLIB_GRPC_API int grpc_server_main_np(int argc, char** argv, const char* idl, const grpc_server_function_np* functions,
                                       size_t count);

/* In a function, any thread: when it returns, the session fails with this text. The first one counts. */
APLIB_GRPC_API void grpc_server_fail_np(const char* text);

#ifdef __cplusplus
}
#endif

#endif
