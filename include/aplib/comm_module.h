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
 * Life: APlib opens the file, reads aplib_comm_plugin_entry, and never closes the file. In each process of a machine of
 * several:
 *
 *   usable(settings)?  ->  port = open(settings)  ->  APlib exchanges the endpoints of all ports
 *   ->  module = join(port, endpoints)  ->  close_port(port)
 *   ->  start(module, receiver)  ->  send, poll, wait, ... from any number of threads
 *   ->  close(module)  ->  destroy(module)
 *
 * A frame is a label and a body of 0 or more bytes. Every module keeps these promises, and aplib-module-test checks
 * them:
 *  (1) Frames from one process to another arrive once each, in the order of the send() calls, with the bodies that were
 *      given. If a frame can no longer arrive, peer_lost() follows, and after that nothing comes from that peer.
 *  (2) send() does not wait for the receiver. It copies what the system does not take at once. The next thread that
 *      calls poll(), flush() or send(), or a thread of the module's own, sends that later.
 *  (3) Only poll() makes upcalls (aplib_comm_receiver), on the thread that called it, and they never overlap. close()
 *      and destroy() may also make large_end() and memory_done().
 *  (4) What comes from the network is hostile until proved otherwise: it may end a connection, never the process.
 *      Strangers are dropped and counted.
 *  (5) Nothing runs while nothing is sent and nothing comes.
 *  (6) Where reaches_memory() says so, write() and read() reach the peer's memory without help by its program. A frame
 *      sent after a write() to the same peer is received after what was written can be seen there. The reverse is not
 *      promised: a write may overtake frames.
 *
 * Rules for every function:
 *  - Errors. Functions that return int32_t return a value >= 0, or a negative APLIB_COMM_... status. With a status,
 *    they have written a text for a person into error->text: subject, cause, remedy ("mine: send to process 3: ...").
 *    `error` is never NULL, and APlib reads its text only after a status. The other functions cannot fail.
 *  - Ownership. What is passed in is the caller's, and valid during the call, unless the card says otherwise. A
 *    function that fails leaves what it was given unchanged and undoes what it has begun. Strings end with 0. Returned
 *    strings are the plug-in's, and valid as long as the object; those of the plug-in itself are valid for ever.
 *  - Exceptions, longjmp and thread exits must not leave a function, in either direction. Upcalls do not throw.
 *  - Threads. "any thread" includes several at once. The caller may be a user-level thread with a small stack (64 KiB):
 *    use no large local arrays, and thread-local variables only within a call. Signal handlers, the signal mask and the
 *    locale are the host's.
 *  - The cards below say: [threads] [blocks?], and then what the function does.
 *
 * Versions. The major number changes when something here changes its meaning. The minor number changes when members
 * are appended to structures, always at their end. A structure begins with its size, as its maker knew it. Do not touch
 * members beyond that size: if (receiver->bytes >= offsetof(aplib_comm_receiver, x) + sizeof receiver->x). A plug-in
 * runs with every APlib of the same major number whose minor number is at least the required one. */
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

  /* [may block, for a second at most] >= 0: the module can be used now, on this host, with these settings. Otherwise
   * the error says why not: "no RDMA device is there". Leaves nothing behind. */
  int32_t (*usable)(const aplib_comm_plugin* plugin, const aplib_comm_port_settings* settings, aplib_comm_error* error);
  /* [may block, for a second at most] Begins to listen. On success sets *port, which the caller owns and ends by
   * close_port(). On failure *port is not touched. */
  int32_t (*open)(const aplib_comm_plugin* plugin, const aplib_comm_port_settings* settings, aplib_comm_port** port,
                  aplib_comm_error* error);
  /* [does not block] The port's address for other processes: printable, without blanks, commas and semicolons, shorter
   * than APLIB_COMM_ENDPOINT_BYTES. It belongs to the port, is valid until close_port(), and does not change. */
  const char* (*endpoint)(const aplib_comm_port* port);
  /* [does not block] Can two processes with these endpoints exchange frames by this module? 0 or 1, the same on both
   * sides, for (a, b) and (b, a). Endpoints come from other processes: the function must accept any text. */
  int32_t (*joins)(const aplib_comm_plugin* plugin, const char* endpoint, const char* other);
  /* [may block, for a second at most] Makes the module, once per port. On success sets *module, which the caller owns
   * and ends by destroy(). The module takes what it needs from the port, which the caller closes soon. On failure
   * *module is not touched, and the caller still closes the port. */
  int32_t (*join)(aplib_comm_port* port, const aplib_comm_join_settings* settings, aplib_comm_module** module,
                  aplib_comm_error* error);
  /* [does not block] Ends a port, joined or not. */
  void (*close_port)(aplib_comm_port* port);

  /* --- A module --- */

  /* [one thread, once, before all below except destroy()] [may block, for a second at most] Connects as far as needed
   * now. `receiver` outlives the module. */
  int32_t (*start)(aplib_comm_module* module, const aplib_comm_receiver* receiver, aplib_comm_error* error);
  /* [any thread; also in an upcall; not async-signal-safe] [never waits for the receiver's program; may spin while the
   * system takes bytes of a large body, which saves a copy] Sends a frame to another process, not to this one. `body`
   * is the caller's again when the call returns. Small frames may be held back, to be sent together, until more come or
   * poll() or flush() is called. Frames to a lost peer are dropped: OK. EXHAUSTED: no memory for the copy, and nothing
   * was sent. BAD_ARGUMENT: larger than APLIB_COMM_BODY_BYTES_MAX, or no such process. */
  int32_t (*send)(aplib_comm_module* module, uint32_t to, const aplib_comm_label* label, const void* body, size_t bytes,
                  aplib_comm_error* error);
  /* [any thread; also in an upcall] [does not block] Bytes that send() has accepted and the system has not taken yet,
   * as a snapshot. 0 if `to` is no peer. */
  uint64_t (*queued)(const aplib_comm_module* module, uint32_t to);
  /* [any thread] [does not block] Sends what was held back. Cheap when there is nothing. */
  void (*flush)(aplib_comm_module* module);
  /* [one thread at a time, any] [does not block] Calls flush(), then takes what has come, from every peer in turn, for
   * a bounded time: at most some 64 KiB or one large read per peer. 1: it took something, that is, made an upcall or
   * read a part of a large body. 0: nothing was there. */
  int32_t (*poll)(aplib_comm_module* module, aplib_comm_error* error);
  /* [any thread; several may wait, and may be woken together] [blocks] Returns when poll() has something to do, wake()
   * was called, or `nanoseconds` have passed (negative: never). May return early. A wake() that came before a wait()
   * makes that wait() return at once. */
  int32_t (*wait)(aplib_comm_module* module, int64_t nanoseconds, aplib_comm_error* error);
  /* [any thread; async-signal-safe] [does not block] Ends wait(). */
  void (*wake)(aplib_comm_module* module);
  /* [no thread in another call] [blocks for at most `linger_nanoseconds`] Sends everything that is queued, and tells
   * all peers that this is the ordered end, so that they see no loss. What still arrives is discarded. Large bodies and
   * remote accesses under way end by their upcalls. 1: everything was sent. 0: something could not be sent. Afterwards
   * send() drops, and poll() takes nothing. A second close() does nothing. */
  int32_t (*close)(aplib_comm_module* module, int64_t linger_nanoseconds, aplib_comm_error* error);
  /* [no thread in another call] [does not block] Frees the module, started or not. If it was not closed, close(0)
   * first. */
  void (*destroy)(aplib_comm_module* module);
  /* [any thread] [does not block] Sets the counters; does not add to them. */
  void (*traffic)(const aplib_comm_module* module, aplib_comm_traffic* traffic);
  /* [any thread] [does not block] Writes how the pair is connected, for people: "mine 10.0.0.1:5100, 1 stream, auth",
   * at most `bytes` bytes with the end. */
  void (*describe)(const aplib_comm_module* module, uint32_t peer, char* text, size_t bytes);

  /* --- What a module may leave out: NULL --- */

  /* [no thread in another call] [does not block] For tests: ends everything at once, as the death of the process would,
   * so that the others see a loss. poll() then takes nothing. 1: done. 0: not possible. */
  int32_t (*abandon)(aplib_comm_module* module);

  /* Sleeping on several modules at once: all three functions or none. Without them APlib uses the module only where it
   * is the only one of a process. */

  /* [any thread] [does not block] A descriptor for poll(2) and epoll. From arm() to disarm() it is readable while
   * poll() has something to do or a wake() has not been handled. It belongs to the module and is always the same. -1:
   * there is none after all. */
  int32_t (*descriptor)(aplib_comm_module* module);
  /* [any thread] [does not block] Calls flush(), and arms the descriptor. 0: something is there already, do not sleep.
   * 1: sleep. After each arm(), even one that returned 0 or a status, the same thread calls disarm(). Several threads
   * may be between the two. */
  int32_t (*arm)(aplib_comm_module* module, aplib_comm_error* error);
  /* [any thread] [does not block] The sleep is over: the descriptor need not become readable any more, and a wake()
   * counts as handled. */
  void (*disarm)(aplib_comm_module* module);

  /* Remote memory: all five functions and APLIB_COMM_REMOTE_MEMORY, or none. All: [any thread; also in an upcall]. */

  /* [does not block] 1: we can reach the peer's memory, and it can reach ours. Constant once start() has returned. */
  int32_t (*reaches_memory)(const aplib_comm_module* module, uint32_t peer);
  /* [may block: a system call or more] Opens memory of this process to write() and read() by `peer`, until conceal().
   * The memory stays the caller's, who keeps it mapped readable and writable all that time. The same memory may be
   * opened to many peers at the cost of one. On success fills in *key. BAD_ARGUMENT: this kind of memory cannot be
   * opened. May also return EXHAUSTED. */
  int32_t (*expose)(aplib_comm_module* module, uint32_t peer, void* memory, size_t bytes, aplib_comm_memory_key* key,
                    aplib_comm_error* error);
  /* [may block: a system call or more] Closes it to that peer: later accesses fail. */
  void (*conceal)(aplib_comm_module* module, uint32_t peer, const aplib_comm_memory_key* key);
  /* [does not wait for the peer] Begins to write `bytes` bytes of `local` to `address` (the peer's own) in the memory
   * that the peer has opened with `key`. On success `local` stays valid and unchanged until memory_done(context), which
   * a poll() on another thread may make before write() returns. After a failure (EXHAUSTED) there is no memory_done().
   */
  int32_t (*write)(aplib_comm_module* module, uint32_t to, const aplib_comm_memory_key* key, uint64_t address,
                   const void* local, size_t bytes, uint64_t context, aplib_comm_error* error);
  /* [does not wait for the peer] Begins to read from there into `local`, which is the module's until
   * memory_done(context). Otherwise as write(). */
  int32_t (*read)(aplib_comm_module* module, uint32_t from, const aplib_comm_memory_key* key, uint64_t address,
                  void* local, size_t bytes, uint64_t context, aplib_comm_error* error);

  /* --- Since 1.1; may be left out --- */

  /* [any thread; not in an upcall] [may block: a system call or more] The machine stops, and APlib takes back the
   * memory of all large bodies, writes and reads. When the function returns, the module no longer touches it, even if
   * that costs the connections. APlib calls poll() no more; upcalls that are missing follow in close(). NULL: the
   * module touches such memory only during poll(). */
  void (*let_go)(aplib_comm_module* module);
};

/* For the plug-in's source: what it was compiled with and what it requires. */
#define APLIB_COMM_HEAD                                                                                               \
  {                                                                                                                   \
    "APLIBCM", APLIB_COMM_MAJOR, APLIB_COMM_MINOR, aplib_comm_required_minor, 0, (uint32_t)sizeof(aplib_comm_plugin), \
        (uint32_t)sizeof(void*)                                                                                       \
  }

/* The only symbol that a plug-in exports. */
extern APLIB_COMM_EXPORT const aplib_comm_plugin aplib_comm_plugin_entry;

#if defined(__cplusplus)
}
#endif

#endif
