/* SPDX-License-Identifier: MIT */
/* What passes between APlib and a plug-in: versions, statuses, labels, settings, upcalls. Included by
 * aplib/comm_module.h, which says what it is for and what the [words] mean. */
#ifndef APLIB_COMM_TYPES_H
#define APLIB_COMM_TYPES_H

#include <stddef.h>
#include <stdint.h>

#define APLIB_COMM_MAJOR 1
#define APLIB_COMM_MINOR 0

/* At the top of a plug-in: the interface it is written for. Anything newer than this header is refused here and now;
 * a plug-in that uses nothing of a newer minor number states the older one, and then runs with older APlibs too. */
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
  APLIB_COMM_FAILED = -1,       /* It failed here and now. */
  APLIB_COMM_BAD_ARGUMENT = -2, /* The caller passed something impossible. */
  APLIB_COMM_EXHAUSTED = -3,    /* A resource ran out: memory, descriptors. */
  APLIB_COMM_BAD_OPTION = -4    /* An option of the user's is unknown or out of range. */
};

enum {
  APLIB_COMM_TEXT_BYTES = 1024,     /* Of an error text, with its end; longer ones are to be cut. */
  APLIB_COMM_ENDPOINT_BYTES = 4096, /* Of an endpoint, with its end. */
  APLIB_COMM_KEY_BYTES = 32,        /* Of the job's key. */
  APLIB_COMM_MEMORY_KEY_BYTES = 60, /* Of a memory key's words. */
  APLIB_COMM_LARGE_BYTES = 16384    /* Bodies of this size and more are received by large_begin() and large_end(). */
};
/* A larger body is refused by both sides. */
#define APLIB_COMM_BODY_BYTES_MAX ((uint64_t)1 << 40)

typedef struct aplib_comm_error {
  char text[APLIB_COMM_TEXT_BYTES];
} aplib_comm_error;

/* What a frame says about its body. A module carries labels and does not look inside. */
typedef struct aplib_comm_label {
  uint64_t key;
  uint32_t cell;
  uint32_t task;
  uint32_t kind;
  uint32_t extra;
} aplib_comm_label;

/* What another process needs to reach a piece of our memory: words of the module's own, carried between processes by
 * APlib. */
typedef struct aplib_comm_memory_key {
  uint32_t bytes; /* Of words, in use. */
  uint8_t words[APLIB_COMM_MEMORY_KEY_BYTES];
} aplib_comm_memory_key;

/* What a module has done so far. Counters only grow. `bytes` is set by the caller: members behind it are not to be
 * written. */
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
 * module's send(), queued(), wake(), and where it has them expose(), conceal(), write() and read(), but no other
 * function of it: so no lock that these take may be held. `host` is passed back as first argument. */
typedef struct aplib_comm_receiver {
  uint32_t bytes; /* sizeof, as the host knows it */
  uint32_t reserved;
  void* host;
  /* Shall frames of `from` be taken now? 0 (memory is short): they stay with the peer, whose send() then queues. To
   * be asked once per poll() and peer, before reading. */
  int32_t (*wants)(void* host, uint32_t from);
  /* A whole frame. `body` is the module's and valid during the call only. Bodies of up to APLIB_COMM_LARGE_BYTES - 1
   * bytes come this way. */
  void (*frame)(void* host, uint32_t from, const aplib_comm_label* label, const void* body, size_t bytes);
  /* A frame with a large body begins. Returns where the body goes: `bytes` bytes, the host's, which stay valid and
   * untouched until large_end(). NULL: refused; the module ends the connection, and calls peer_lost(). At most one
   * large frame per peer is under way, and no other frame of that peer comes in between. */
  void* (*large_begin)(void* host, uint32_t from, const aplib_comm_label* label, size_t bytes);
  /* The body is complete (1); or never will be (0): the peer is lost or the module is closed. */
  void (*large_end)(void* host, uint32_t from, const aplib_comm_label* label, size_t bytes, int32_t complete);
  /* Nothing comes from `peer` any more, and what is sent there is dropped. `why` for people: "connection reset by
   * peer". Once per peer; not after the peer's or our own close(). */
  void (*peer_lost)(void* host, uint32_t peer, const char* why);
  /* The write() or read() that was given `context` is over. ok = 1: what was written can be seen by the peer's
   * threads, or what was read is here. 0: the peer is lost or the memory is not open to us. Once each; also before
   * close() ends. */
  void (*memory_done)(void* host, uint64_t context, int32_t ok);
} aplib_comm_receiver;

/* The plug-in's own; APlib passes them back. */
typedef struct aplib_comm_port aplib_comm_port;
typedef struct aplib_comm_module aplib_comm_module;

/* Option "secure". */
enum { APLIB_COMM_SECURE_OFF = 0, APLIB_COMM_SECURE_AUTH = 1, APLIB_COMM_SECURE_TLS = 2 };

/* What a process knows of itself before it knows the others. */
typedef struct aplib_comm_port_settings {
  uint32_t bytes;        /* sizeof, as the host knows it */
  uint32_t secure;       /* APLIB_COMM_SECURE_... */
  const char* address;   /* Of this host, to listen on: "10.0.0.1". "": none is needed or known. */
  const char* ports;     /* "5100-5120", or "": the system chooses. */
  const char* host;      /* Equal for two processes exactly when they share a kernel and its shared memory. */
  const uint8_t* key;    /* APLIB_COMM_KEY_BYTES, a secret: proves to others that we belong to the job. Wipe copies. */
  const char* provider;  /* Option of the same name: a device or library below the module, or "": the best. */
  uint32_t streams;      /* Connections per pair for large messages; 0: as the module thinks. */
  uint32_t peer_timeout; /* Milliseconds: a host that acknowledges nothing for so long is lost. */
} aplib_comm_port_settings;

/* What a process knows once the others have spoken. */
typedef struct aplib_comm_join_settings {
  uint32_t bytes; /* sizeof, as the host knows it */
  uint32_t self;  /* Number of this process: 0 .. processes - 1. */
  uint32_t processes;
  uint32_t reserved;
  const char* machine; /* Name of the run, the same in all processes. */
  const char* const*
      endpoints;            /* By process: what its port said. "": it has none, no frame goes there by this module. */
  const char* const* names; /* By process, for messages: "ws1". */
} aplib_comm_join_settings;

/* What a plug-in can do. */
enum {
  APLIB_COMM_REMOTE_MEMORY = 1, /* Promise (6). */
  APLIB_COMM_KEEPS_AUTH = 2,    /* secure=auth: each connection proves the job's key, or cannot be any but the job's. */
  APLIB_COMM_KEEPS_TLS = 4,     /* secure=tls: and nobody on the way can read or change anything. */
  APLIB_COMM_ONE_HOST = 8       /* It joins processes of one host alone. */
};

/* The first words of aplib_comm_plugin, the same in all versions to come: what APlib looks at before anything else. */
typedef struct aplib_comm_head {
  char magic[8];  /* "APLIBCM" */
  uint16_t major; /* Of the header it was compiled with. */
  uint16_t minor;
  uint16_t required_minor; /* The least it runs with: APLIB_COMM_REQUIRE. */
  uint16_t reserved;
  uint32_t bytes;         /* sizeof(aplib_comm_plugin) */
  uint32_t pointer_bytes; /* sizeof(void*) */
} aplib_comm_head;

#if defined(__cplusplus)
}
#endif

#endif
