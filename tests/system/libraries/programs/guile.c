/* SPDX-License-Identifier: MIT */
/* Guile in each rank: its collector scans the task's stack, and a procedure of C meets others. */
#include <libguile.h>

#include "stress.h"

static SCM meet_others(SCM round) {
  meet(scm_to_int(round));
  return scm_from_int(scm_to_int(round) + rank);
}

static const char work[] =
    "(define (build n) (if (= n 0) '() (cons (make-vector 10 (+ n rank)) (build (- n 1)))))"
    "(define (total l) (apply + (map (lambda (v) (vector-ref v 3)) l)))"
    "(define (round i)"
    "  (let* ((l (build 500)) (met (meet i)) (s (total l)))"
    "    (gc)"
    "    (and (= met (+ i rank)) (= s (total l)) (= s (+ 125250 (* 500 rank)))"
    "      (equal? (catch 'mine (lambda () (meet 1) (throw 'mine rank)) (lambda (key value) (meet 2) value)) rank)"
    "      (string=? (number->string (expt (+ rank 2) 100)) (number->string (* (expt (+ rank 2) 60)"
    "        (expt (+ rank 2) 40)))))))"
    "(define (all i) (or (= i 20) (and (round i) (all (+ i 1)))))"
    "(all 0)";

static void* inside(void* unused) {
  (void)unused;
  scm_c_define("rank", scm_from_int(rank));
  scm_c_define_gsubr("meet", 1, 0, 0, (scm_t_subr)meet_others);
  check(scm_is_true(scm_c_eval_string(work)), "the script");
  return NULL;
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  scm_with_guile(inside, NULL);
  return end();
}
