/* SPDX-License-Identifier: MIT */
/* The plug-in interface of APlib's modules: a shared object that carries frames between the processes of a machine.
 * docs/write-a-module.md walks through it with an example.
 *
 *   #include <aplib/comm_module.h>
 *   APLIB_COMM_REQUIRE(1, 0);                                what this source needs, checked when it is compiled
 *   static int32_t my_open(...) { ... }
 *   const aplib_comm_plugin aplib_comm_plugin_entry = {
 *       .head = APLIB_COMM_HEAD, .name = "mine", .open = my_open, ...};
 *
 * Life: APlib opens the file, reads aplib_comm_plugin_entry, and never closes the file again. For a machine of
 * several processes, in each of them:
 *
 *   usable(settings)?  ->  port = open(settings)  ->  port's endpoint goes to the others, theirs come
 *   ->  module = join(port, theirs)  ->  close_port(port)
 *   ->  start(module, receiver)  ->  send, poll, wait, ... from any number of threads
 *   ->  close(module)  ->  destroy(module)
 *
 * A frame is a label and a body of 0 or more bytes. The promises that every module keeps; aplib-module-test checks
 * them:
 *  (1) Frames of one process to another arrive once each, in the order of the send() calls, with the bodies that were
 *      given. A frame that cannot arrive any more is followed by peer_lost(), and after that nothing comes from that
 *      peer.
 *  (2) send() does not wait for the receiver. What the system does not take at once is copied, and goes out later, by
 *      whichever thread next calls poll(), flush() or send(), or by a thread of the module's own.
 *  (3) Upcalls (aplib_comm_receiver) are made by poll() alone (large_end and memory_done also by close() and
 *      destroy()), on the thread that called it, and never overlap.
 *  (4) What comes from the network is hostile until proved otherwise: it ends a connection, never the process. What
 *      is no peer at all is dropped and counted.
 *  (5) Nothing spins or ticks while nothing is sent and nothing comes.
 *  (6) Remote memory, where reaches_memory() says so: write() and read() reach the peer's memory without its program.
 *      A frame sent behind a write() to the same peer is received after what was written can be seen there. The other
 *      way round nothing is promised: a write may overtake frames.
 *
 * Rules for every function:
 *  - Errors. Functions that return int32_t return a value >= 0 or a negative APLIB_COMM_... status, and then have
 *    written a text for a person into error->text: subject, cause, remedy ("mine: send to process 3: ..."). `error`
 *    is never NULL; its text is looked at only where a status is returned. The others cannot fail.
 *  - Ownership. What is passed in is the caller's and valid during the call, unless the card says otherwise; what a
 *    failing function was given stays as it was, and whatever it had begun it has undone. Strings end with 0; those
 *    returned are the plug-in's, valid as long as the object (or, of the plug-in, for ever).
 *  - Exceptions, longjmp and thread exits must not leave a function, in neither direction. Upcalls do not throw.
 *  - Threads. "any thread" means: also several at once. Functions may be called on small stacks (64 KiB) of
 *    user-level threads: no large local arrays; thread-local variables are to be used only within a call. Signal
 *    handlers, the signal mask and the locale are the host's.
 *  - Cards below: [threads] [blocks?] and then what it does.
 *
 * Versions. The major number changes when something here changes its meaning; the minor one when members are
 * appended: to structures, at their end, never between. Structures begin with their size, as their maker knew it;
 * what lies behind it must not be touched: if (receiver->bytes >= offsetof(aplib_comm_receiver, x) + sizeof
 * receiver->x). A plug-in runs with every APlib of the same major number whose minor number is at least what it
 * requires. */
#ifndef APLIB_COMM_MODULE_H
#define APLIB_COMM_MODULE_H

#include "aplib/comm_types.h"

#if defined(__cplusplus)
extern "C" {
#endif

typedef struct aplib_comm_plugin aplib_comm_plugin;
struct aplib_comm_plugin {
  aplib_comm_head head; /* APLIB_COMM_HEAD */
  const char* name; /* "mine": what users write in module = "..."; lower-case letters, digits, '-' and '_', up to 32. */
  const char* version;     /* "1.2" */
  const char* description; /* One line for people: "frames over carrier pigeons, anywhere". */
  int32_t rank; /* Of two modules that reach a peer, "auto" takes the higher one: shm 300, rdma 200, tcp 100. */
  uint32_t can; /* Bits: APLIB_COMM_REMOTE_MEMORY ... */
  void* own;    /* The plug-in's; APlib does not touch it. */

  /* --- Before a machine: [any thread] --- */

  /* [may block, for a second at most] >= 0: the module can be used here and now with these settings; else why it
   * cannot: "no RDMA device is there". Leaves nothing behind. */
  int32_t (*usable)(const aplib_comm_plugin* plugin, const aplib_comm_port_settings* settings, aplib_comm_error* error);
  /* [may block, for a second at most] Begins to listen. On success *port is set; the caller's, to be ended by
   * close_port(). On failure *port is not touched. */
  int32_t (*open)(const aplib_comm_plugin* plugin, const aplib_comm_port_settings* settings, aplib_comm_port** port,
                  aplib_comm_error* error);
  /* [does not block] For the others: printable, without blanks, commas and semicolons, below
   * APLIB_COMM_ENDPOINT_BYTES. The port's, valid until close_port(). Constant. */
  const char* (*endpoint)(const aplib_comm_port* port);
  /* [does not block] Can two processes with these endpoints exchange frames by this module? 0 or 1; the same answer
   * on both sides, given (a, b) or (b, a). Endpoints come from other processes: any text must be borne. */
  int32_t (*joins)(const aplib_comm_plugin* plugin, const char* endpoint, const char* other);
  /* [may block, for a second at most] Makes the module, once per port. On success *module is set, the caller's, to be
   * ended by destroy(); it takes what it needs from the port, which the caller ends soon. On failure *module is not
   * touched, and the port still is to be closed. */
  int32_t (*join)(aplib_comm_port* port, const aplib_comm_join_settings* settings, aplib_comm_module** module,
                  aplib_comm_error* error);
  /* [does not block] Ends a port, joined or not. */
  void (*close_port)(aplib_comm_port* port);

  /* --- A module --- */

  /* [one thread, once, before all below but destroy()] [may block, for a second at most] `receiver` outlives the
   * module. */
  int32_t (*start)(aplib_comm_module* module, const aplib_comm_receiver* receiver, aplib_comm_error* error);
  /* [any thread; also in an upcall; not async-signal-safe] [never for the receiver's program; may spin as long as the
   * system goes on taking bytes of a large body, which saves a copy] Sends a frame to another process (not to
   * oneself). `body` is the caller's again at return. Small frames may be held back, to go out together: until more
   * come, or poll() or flush() is called. Frames to a lost peer are dropped: OK. EXHAUSTED: no memory for the copy,
   * nothing was sent; BAD_ARGUMENT: above APLIB_COMM_BODY_BYTES_MAX, no such process. */
  int32_t (*send)(aplib_comm_module* module, uint32_t to, const aplib_comm_label* label, const void* body, size_t bytes,
                  aplib_comm_error* error);
  /* [any thread; also in an upcall] [does not block] Bytes accepted by send() that the system has not taken yet; a
   * snapshot. 0 for what is no peer. */
  uint64_t (*queued)(const aplib_comm_module* module, uint32_t to);
  /* [any thread] [does not block] Puts out what was held back. Cheap when there is nothing. */
  void (*flush)(aplib_comm_module* module);
  /* [one thread at a time, whichever] [does not block] flush(), and then takes what has come, from every peer in
   * turn, for a bounded time: at most some 64 KiB or one large read per peer. 1: it took something: made an upcall,
   * or read a part of a large body. 0: nothing. */
  int32_t (*poll)(aplib_comm_module* module, aplib_comm_error* error);
  /* [any thread, several may wait, and may be woken together] [blocks] Until poll() would have something to do,
   * wake() was called, or `nanoseconds` have passed (negative: for ever). May return early. A wake() that came before
   * a wait() makes the next one return at once. */
  int32_t (*wait)(aplib_comm_module* module, int64_t nanoseconds, aplib_comm_error* error);
  /* [any thread; async-signal-safe] [does not block] Ends wait(). */
  void (*wake)(aplib_comm_module* module);
  /* [no thread in another call] [blocks for at most `linger_nanoseconds`] Sends all that is queued, and tells all
   * peers that this is the ordered end, so that they see no loss. What is still coming is thrown away; large bodies
   * and remote accesses under way end by their upcalls. 1: all was sent; 0: something could not be. Afterwards send()
   * drops, poll() takes nothing. A second close() does nothing. */
  int32_t (*close)(aplib_comm_module* module, int64_t linger_nanoseconds, aplib_comm_error* error);
  /* [no thread in another call] [does not block] Ends the module, started or not. close(0), where it was not closed. */
  void (*destroy)(aplib_comm_module* module);
  /* [any thread] [does not block] Adds nothing up: sets the counters. */
  void (*traffic)(const aplib_comm_module* module, aplib_comm_traffic* traffic);
  /* [any thread] [does not block] How the pair is connected, for people: "mine 10.0.0.1:5100, 1 stream, auth", at
   * most `bytes` with its end. */
  void (*describe)(const aplib_comm_module* module, uint32_t peer, char* text, size_t bytes);

  /* --- What a module may leave out: NULL --- */

  /* [no thread in another call] [does not block] For tests: ends all here and now, as the death of the process would,
   * so that the others see a loss; poll() takes nothing any more. 1: done; 0: it cannot. */
  int32_t (*abandon)(aplib_comm_module* module);

  /* Sleeping on several modules at once: all three or none. Without them APlib uses the module only where it is the
   * only one of a process. */

  /* [any thread] [does not block] A descriptor that is readable while poll() has something to do or a wake() has not
   * been heard, from arm() to disarm(): for poll(2) and epoll. The module's; always the same. -1: there is none after
   * all. */
  int32_t (*descriptor)(aplib_comm_module* module);
  /* [any thread] [does not block] flush(), and makes the descriptor tell. 0: something is there already, do not
   * sleep; 1: sleep. Each arm(), also one that returned 0 or a status, is followed by a disarm() of the same thread.
   * Several threads may be between the two. */
  int32_t (*arm)(aplib_comm_module* module, aplib_comm_error* error);
  /* [any thread] [does not block] The sleep is over: the descriptor need not tell any more, and a wake() has been
   * heard. */
  void (*disarm)(aplib_comm_module* module);

  /* Remote memory: all five or none, and APLIB_COMM_REMOTE_MEMORY. [any thread; also in an upcall], all. */

  /* [does not block] 1: the peer's memory can be reached, and ours by it. Constant once start() has returned. */
  int32_t (*reaches_memory)(const aplib_comm_module* module, uint32_t peer);
  /* [may block: a system call or more] Opens memory of this process to write() and read() of `peer`, until conceal().
   * It stays the caller's, mapped readable and writable all that time. The same memory may be opened to many peers,
   * at the cost of one. On success *key is filled in. EXHAUSTED; BAD_ARGUMENT where the memory is not of a kind that
   * can be opened. */
  int32_t (*expose)(aplib_comm_module* module, uint32_t peer, void* memory, size_t bytes, aplib_comm_memory_key* key,
                    aplib_comm_error* error);
  /* [may block: a system call or more] Closes it to that peer: who still writes there fails. */
  void (*conceal)(aplib_comm_module* module, uint32_t peer, const aplib_comm_memory_key* key);
  /* [does not wait for the peer] Begins to write `bytes` bytes of `local` at `address` (the peer's own) of the memory
   * that the peer has opened with `key`. On success `local` stays valid and unchanged until memory_done(context),
   * which may come before write() returns to nobody but poll(); on a failure (EXHAUSTED) there is no memory_done(). */
  int32_t (*write)(aplib_comm_module* module, uint32_t to, const aplib_comm_memory_key* key, uint64_t address,
                   const void* local, size_t bytes, uint64_t context, aplib_comm_error* error);
  /* [does not wait for the peer] Begins to read from there into `local`, which is the module's until
   * memory_done(context). As write(). */
  int32_t (*read)(aplib_comm_module* module, uint32_t from, const aplib_comm_memory_key* key, uint64_t address,
                  void* local, size_t bytes, uint64_t context, aplib_comm_error* error);
};

/* Of the plug-in's source: what it was compiled with and what it requires. */
#define APLIB_COMM_HEAD                                                                                               \
  {                                                                                                                   \
    "APLIBCM", APLIB_COMM_MAJOR, APLIB_COMM_MINOR, aplib_comm_required_minor, 0, (uint32_t)sizeof(aplib_comm_plugin), \
        (uint32_t)sizeof(void*)                                                                                       \
  }

/* The one symbol that a plug-in exports. */
extern APLIB_COMM_EXPORT const aplib_comm_plugin aplib_comm_plugin_entry;

#if defined(__cplusplus)
}
#endif

#endif
