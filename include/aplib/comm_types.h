/* SPDX-License-Identifier: MIT */
/* What APlib and a plug-in exchange: versions, statuses, labels, settings, upcalls. aplib/comm_module.h includes this
 * header, and explains it and the [words]. */
#ifndef APLIB_COMM_TYPES_H
#define APLIB_COMM_TYPES_H

#include <stddef.h>
#include <stdint.h>

#define APLIB_COMM_MAJOR 1
#define APLIB_COMM_MINOR 1

/* At the top of a plug-in: the interface for which it is written. It does not compile if that is newer than this
 * header. A plug-in that uses nothing of a newer minor number names the older one, and then runs with older APlibs too.
 */
#define APLIB_COMM_REQUIRE(major, minor)                                                                          \
  APLIB_COMM_STATIC_ASSERT((major) == APLIB_COMM_MAJOR && (minor) <= APLIB_COMM_MINOR,                            \
                           "this module needs plug-in interface " #major "." #minor                               \
                           "; <aplib/comm_module.h> has another (see APLIB_COMM_MAJOR, APLIB_COMM_MINOR there): " \
                           "compile it with the headers of an APlib that has it");                                \
  enum { aplib_comm_required_minor = (minor) }
#if defined(__cplusplus)
#define APLIB_COMM_STATIC_ASSERT(condition, text) static_assert(condition, text)
extern "C" {
#else
#define APLIB_COMM_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif
#define APLIB_COMM_EXPORT __attribute__((visibility("default")))

/* Statuses. */
enum {
  APLIB_COMM_OK = 0,
  APLIB_COMM_FAILED = -1,       /* It failed this time. */
  APLIB_COMM_BAD_ARGUMENT = -2, /* The caller passed something impossible. */
  APLIB_COMM_EXHAUSTED = -3,    /* A resource ran out: memory, descriptors. */
  APLIB_COMM_BAD_OPTION = -4    /* An option of the user's is unknown or out of range. */
};

enum {
  APLIB_COMM_TEXT_BYTES = 1024,     /* Of an error text, with its end; cut longer ones. */
  APLIB_COMM_ENDPOINT_BYTES = 4096, /* Of an endpoint, with its end. */
  APLIB_COMM_KEY_BYTES = 32,        /* Of the job's key. */
  APLIB_COMM_MEMORY_KEY_BYTES = 60, /* Of a memory key's words. */
  APLIB_COMM_LARGE_BYTES = 16384    /* Bodies of this size and more use large_begin() and large_end(). */
};
/* Both sides refuse a larger body. */
#define APLIB_COMM_BODY_BYTES_MAX ((uint64_t)1 << 40)

typedef struct aplib_comm_error {
  char text[APLIB_COMM_TEXT_BYTES];
} aplib_comm_error;

/* What a frame says about its body. A module carries labels and does not interpret them. */
typedef struct aplib_comm_label {
  uint64_t key;
  uint32_t cell;
  uint32_t task;
  uint32_t kind;
  uint32_t extra;
} aplib_comm_label;

/* What another process needs to reach a piece of our memory. The words are the module's own; APlib carries them between
 * processes. */
typedef struct aplib_comm_memory_key {
  uint32_t bytes; /* Used bytes of `words`. */
  uint8_t words[APLIB_COMM_MEMORY_KEY_BYTES];
} aplib_comm_memory_key;

/* What a module has done so far. Counters only grow. The caller sets `bytes`: do not write members beyond that size. */
typedef struct aplib_comm_traffic {
  uint64_t bytes;
  uint64_t frames_sent;
  uint64_t frames_received;
  uint64_t bytes_sent;     /* Bodies. */
  uint64_t bytes_received; /* Bodies. */
  uint64_t system_calls;   /* Of sending and receiving. */
  uint64_t refused;        /* Connections of strangers that were dropped. */
} aplib_comm_traffic;

/* Upcalls, implemented by APlib. All: [the thread in poll(), during it] [does not block]. An upcall may call the
 * module's send(), queued() and wake(), and if the module has them, expose(), conceal(), write() and read(), but no
 * other function of it. So the module must hold no lock that these take. `host` is passed back as first argument. */
typedef struct aplib_comm_receiver {
  uint32_t bytes; /* sizeof, as the host knows it */
  uint32_t reserved;
  void* host;
  /* May frames from `from` be taken now? 0: memory is short, so they stay with the peer, whose send() then queues. Ask
   * once per poll() and peer, before reading. */
  int32_t (*wants)(void* host, uint32_t from);
  /* A whole frame, with a body of up to APLIB_COMM_LARGE_BYTES - 1 bytes. `body` is the module's, and valid only during
   * the call. */
  void (*frame)(void* host, uint32_t from, const aplib_comm_label* label, const void* body, size_t bytes);
  /* A frame with a large body begins. Returns where the body goes: `bytes` bytes of the host, which stay valid, and
   * which the host does not touch until large_end(). NULL: refused; the module ends the connection and calls
   * peer_lost(). At most one large frame per peer is under way, and no other frame of that peer comes in between. */
  void* (*large_begin)(void* host, uint32_t from, const aplib_comm_label* label, size_t bytes);
  /* The body is complete (1), or never will be (0), because the peer is lost or the module is closed. After a loss, the
   * module may still write to the memory until let_go() or close(), so the host keeps it until then. */
  void (*large_end)(void* host, uint32_t from, const aplib_comm_label* label, size_t bytes, int32_t complete);
  /* Nothing more comes from `peer`, and what is sent there is dropped. `why` is for people: "connection reset by peer".
   * Called once per peer, and not after the peer's or our own close(). */
  void (*peer_lost)(void* host, uint32_t peer, const char* why);
  /* The write() or read() with this `context` is over. ok = 1: the peer's threads can see what was written, or what was
   * read has arrived. 0: the peer is lost, or the memory is not open to us; after a loss, the host keeps the memory
   * until let_go() or close(), as after large_end(). Called once each, at the latest before close() ends. */
  void (*memory_done)(void* host, uint64_t context, int32_t ok);
} aplib_comm_receiver;

/* The plug-in's own; APlib passes them back. */
typedef struct aplib_comm_port aplib_comm_port;
typedef struct aplib_comm_module aplib_comm_module;

/* Option "secure". */
enum { APLIB_COMM_SECURE_OFF = 0, APLIB_COMM_SECURE_AUTH = 1, APLIB_COMM_SECURE_TLS = 2 };

/* What a process knows about itself before it knows the others. */
typedef struct aplib_comm_port_settings {
  uint32_t bytes;        /* sizeof, as the host knows it */
  uint32_t secure;       /* APLIB_COMM_SECURE_... */
  const char* address;   /* This host's, to listen on: "10.0.0.1". "": none is needed or known. */
  const char* ports;     /* "5100-5120", or "": the system chooses. */
  const char* host;      /* Two processes have the same one exactly when they share a kernel and its shared memory. */
  const uint8_t* key;    /* APLIB_COMM_KEY_BYTES, secret: proves that a process belongs to the job. Wipe copies. */
  const char* provider;  /* The option: a device or library below the module, or "": the best. */
  uint32_t streams;      /* Connections per pair for large messages; 0: the module decides. */
  uint32_t peer_timeout; /* Milliseconds: a host that acknowledges nothing for that long is lost. */
} aplib_comm_port_settings;

/* What a process knows when all endpoints have been exchanged. */
typedef struct aplib_comm_join_settings {
  uint32_t bytes; /* sizeof, as the host knows it */
  uint32_t self;  /* Number of this process: 0 .. processes - 1. */
  uint32_t processes;
  uint32_t reserved;
  const char* machine; /* Name of the run, the same in all processes. */
  const char* const*
      endpoints; /* By process: its port's endpoint. "": it has none, and no frame goes there by this module. */
  const char* const* names; /* By process: its name, for messages: "ws1". */
} aplib_comm_join_settings;

/* What a plug-in can do. */
enum {
  APLIB_COMM_REMOTE_MEMORY = 1, /* Promise (6). */
  APLIB_COMM_KEEPS_AUTH = 2,    /* secure=auth: each connection proves the job's key, or can only be the job's. */
  APLIB_COMM_KEEPS_TLS = 4,     /* secure=tls: also, nobody on the way can read or change anything. */
  APLIB_COMM_ONE_HOST = 8       /* It joins only processes of one host. */
};

/* The first words of aplib_comm_plugin. They stay the same in all versions, and APlib looks at them first. */
typedef struct aplib_comm_head {
  char magic[8];  /* "APLIBCM" */
  uint16_t major; /* Those of the header it was compiled with. */
  uint16_t minor;
  uint16_t required_minor; /* The lowest it runs with: APLIB_COMM_REQUIRE. */
  uint16_t reserved;
  uint32_t bytes;         /* sizeof(aplib_comm_plugin) */
  uint32_t pointer_bytes; /* sizeof(void*) */
} aplib_comm_head;

#if defined(__cplusplus)
}
#endif

#endif
