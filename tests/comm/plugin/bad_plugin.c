/* SPDX-License-Identifier: MIT */
/* A plug-in with one fault, a different one each time it is built: see CMakeLists.txt in this folder. */
#include <aplib/comm_module.h>

#if defined(BAD_no_symbol)
int nothing = 0;
#elif defined(BAD_function)
__attribute__((visibility("default"))) void function(void) __asm__("aplib_comm_plugin_entry");
void function(void) {}
#elif defined(BAD_small)
__attribute__((visibility("default"))) const int small __asm__("aplib_comm_plugin_entry") = 1;
#else
APLIB_COMM_REQUIRE(1, 0);

/* Never called: APlib only looks whether the pointer is NULL. */
static void any(void) {}
#define ANY (void*)any
#if defined(BAD_unresolved)
void nobody_has_this(void);
void needs_it(void);
__attribute__((visibility("default"))) void needs_it(void) { nobody_has_this(); }
#endif

APLIB_COMM_EXPORT const aplib_comm_plugin aplib_comm_plugin_entry = {
#if defined(BAD_too_new)
    .head = {"APLIBCM", 3, 0, 0, 0, 900, 8},
#elif defined(BAD_too_old)
    .head = {"APLIBCM", 0, 9, 0, 0, 40, 8},
#elif defined(BAD_needs_newer)
    .head = {"APLIBCM", 1, 7, 7, 0, sizeof(aplib_comm_plugin), 8},
#elif defined(BAD_newer)
    .head = {"APLIBCM", 1, 7, 0, 0, sizeof(aplib_comm_plugin), 8},
#elif defined(BAD_older)
    .head = {"APLIBCM", 1, 0, 0, 0, offsetof(aplib_comm_plugin, let_go), 8},
    .let_go = ANY,
#elif defined(BAD_rubbish)
    .head = {"GARBAGE", 1, 0, 0, 0, sizeof(aplib_comm_plugin), 8},
#elif defined(BAD_wrong_size)
    .head = {"APLIBCM", 1, 0, 0, 0, 100000, 8},
#else
    .head = APLIB_COMM_HEAD,
#endif
#if defined(BAD_no_name)
    .name = "No Name",
#else
    .name = "newer",
#endif
    .version = "1",
    .description = "nothing",
    .usable = ANY,
    .open = ANY,
    .endpoint = ANY,
    .joins = ANY,
    .join = ANY,
    .close_port = ANY,
    .start = ANY,
#if !defined(BAD_no_send)
    .send = ANY,
#endif
    .queued = ANY,
    .flush = ANY,
    .poll = ANY,
    .wait = ANY,
    .wake = ANY,
    .close = ANY,
    .destroy = ANY,
    .traffic = ANY,
    .describe = ANY,
#if defined(BAD_no_read)
    .can = APLIB_COMM_REMOTE_MEMORY,
    .reaches_memory = ANY,
    .expose = ANY,
    .conceal = ANY,
    .write = ANY,
#endif
};
#endif
