/* SPDX-License-Identifier: MIT */
/* Preloaded: gives a process as many threads as TEST_THREADS says, as where the system has no more. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  static atomic_int made;
  const char* most = getenv("TEST_THREADS");
  int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) = dlsym(RTLD_NEXT, "pthread_create");
  if (create == NULL || (most != NULL && atomic_fetch_add(&made, 1) >= atoi(most))) return EAGAIN;
  return create(thread, attributes, run, argument);
}
