/* SPDX-License-Identifier: MIT */
/* GLib: types and signals, its main loop with sources that meet others, a pool of threads, quarks, its log. */
#include <glib-object.h>
#include <string.h>

#include "stress.h"

typedef struct {
  GObject base;
  int value;
} Thing;
typedef GObjectClass ThingClass;
G_DEFINE_TYPE(Thing, thing, G_TYPE_OBJECT)

static void thing_init(Thing* thing) { thing->value = rank; }
static void thing_class_init(ThingClass* class) {
  g_signal_new("moved", G_TYPE_FROM_CLASS(class), G_SIGNAL_RUN_LAST, 0, NULL, NULL, NULL, G_TYPE_NONE, 1, G_TYPE_INT);
}
static void moved(Thing* thing, int by, gpointer unused) {
  (void)unused;
  meet(by);
  thing->value += by;
}

static GMainLoop* loop;
static int ticks;
static gboolean tick(gpointer unused) {
  (void)unused;
  meet(ticks);
  if (++ticks % 10 == 0) g_main_loop_quit(loop);
  return ticks % 10 != 0;
}
static void add(gpointer number, gpointer sum) { g_atomic_int_add((gint*)sum, GPOINTER_TO_INT(number)); }
static void count_line(const char* domain, GLogLevelFlags level, const char* text, gpointer lines) {
  check(domain != NULL && (level & G_LOG_LEVEL_INFO) && atoi(text) == rank, "a line of the log");
  ++*(int*)lines;
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  int lines = 0;
  g_log_set_handler("stress", G_LOG_LEVEL_INFO, count_line, &lines);
  loop = g_main_loop_new(NULL, FALSE);
  for (int round = 0; round < 10; ++round) {
    Thing* thing = g_object_new(thing_get_type(), NULL);
    g_signal_connect(thing, "moved", G_CALLBACK(moved), NULL);
    for (int by = 0; by < 5; ++by) g_signal_emit_by_name(thing, "moved", by);
    check(thing->value == rank + 10, "a signal");
    g_object_unref(thing);
    if (round % 2 == 0)
      g_idle_add(tick, NULL);
    else
      g_timeout_add(1, tick, NULL);
    g_main_loop_run(loop);
    check(ticks == 10 * (round + 1), "the main loop");
    int sum = 0;
    GThreadPool* pool = g_thread_pool_new(add, &sum, 2, round % 2, NULL);
    for (int i = 1; i <= 100; ++i) g_thread_pool_push(pool, GINT_TO_POINTER(i), NULL);
    g_thread_pool_free(pool, FALSE, TRUE);
    check(sum == 5050, "a pool of threads");
    char name[32];
    g_snprintf(name, sizeof name, "quark of %d in %d", rank, round);
    const GQuark quark = g_quark_from_string(name);
    meet(round);
    check(strcmp(g_quark_to_string(quark), name) == 0 && g_intern_string(name) == g_quark_to_string(quark), "a quark");
    g_log("stress", G_LOG_LEVEL_INFO, "%d", rank);
  }
  check(lines == 10, "the log");
  return end();
}
