/* SPDX-License-Identifier: MIT */
/* libcurl: easy and multi handles with the resolver's threads, from a server that is a thread of rank 0. Callbacks meet
   others. */
#include <arpa/inet.h>
#include <curl/curl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stress.h"

/* Answers "GET /N" with N times the letter. */
static void* serve(void* listener) {
  for (;;) {
    char text[4096] = "";
    const int guest = accept(*(int*)listener, NULL, NULL);
    if (guest < 0) return NULL;
    size_t size = 0;
    while (strstr(text, "\r\n\r\n") == NULL) {
      const ssize_t got = read(guest, text + size, sizeof text - 1 - size);
      if (got <= 0) break;
      size += (size_t)got;
    }
    const int count = atoi(text + strcspn(text, "/") + 1);
    dprintf(guest, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%0*d", count, count, 0);
    close(guest);
    if (count == 999) return NULL;
  }
}

static size_t count_bytes(char* bytes, size_t size, size_t items, void* sum) {
  check(bytes[0] == '0', "what came");
  *(size_t*)sum += size * items;
  return size * items;
}

static CURL* make(int port, int count, size_t* sum) {
  char address[64];
  CURL* handle = curl_easy_init();
  snprintf(address, sizeof address, "http://localhost:%d/%d", port, count);
  curl_easy_setopt(handle, CURLOPT_URL, address);
  curl_easy_setopt(handle, CURLOPT_PROXY, "");
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, count_bytes);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, sum);
  *sum = 0;
  return handle;
}

static void at_once(int port, int round) {
  CURL* handles[4];
  size_t sums[4];
  int running = 1;
  CURLM* multi = curl_multi_init();
  for (int i = 0; i < 4; ++i) curl_multi_add_handle(multi, handles[i] = make(port, 100 + 10 * i + rank, &sums[i]));
  while (running > 0) {
    check(curl_multi_perform(multi, &running) == CURLM_OK, "multi_perform");
    if (running > 0) curl_multi_poll(multi, NULL, 0, 1000, NULL);
  }
  meet(round);
  for (int i = 0; i < 4; ++i) {
    check(sums[i] == (size_t)(100 + 10 * i + rank), "one of several files");
    curl_multi_remove_handle(multi, handles[i]);
    curl_easy_cleanup(handles[i]);
  }
  curl_multi_cleanup(multi);
}

static void one(int port, int count) {
  size_t sum = 0;
  CURL* handle = make(port, count, &sum);
  check(curl_easy_perform(handle) == CURLE_OK && sum == (size_t)count, "a file");
  curl_easy_cleanup(handle);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  pthread_t server;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  if (rank == 0) {
    check(bind(listener, (struct sockaddr*)&address, size) == 0 && listen(listener, 64) == 0, "the server");
    getsockname(listener, (struct sockaddr*)&address, &size);
    pthread_create(&server, NULL, serve, &listener);
  }
  int port = ntohs(address.sin_port);
  MPI_Bcast(&port, 1, MPI_INT, 0, MPI_COMM_WORLD);
  curl_global_init(CURL_GLOBAL_ALL);
  for (int round = 0; round < 5; ++round) {
    one(port, 50 + rank);
    at_once(port, round);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) one(port, 999);
  if (rank == 0) pthread_join(server, NULL);
  curl_global_cleanup();
  return end();
}
