/* SPDX-License-Identifier: MIT */
/* The reductions of the CellOS interface. Include cellos.h, which explains the words of the cards.
 *
 *   double mine = 0.5, total;
 *   xy_dsum(mine, &total);
  * Every cell gets bitwise the same result, for any number of threads, because values are combined in one fixed tree
 * over cids. All return 1. [cell] [waits]
 * REQUIRES: as the collectives of cellos.h: all cells (xy_), all of the caller's row (x_) or of its column (y_) make
 * the same call, one task per cell at a time; none of them has ended. The host takes no part. Results are not NULL. */
#ifndef APLIB_CELLOS_REDUCTIONS_H
#define APLIB_CELLOS_REDUCTIONS_H

#include "cellos.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sum. Integers wrap around. The result may overwrite the variable that gave the value. xy A; x, y C */
APLIB_C_API int xy_isum(int value, int* result);
APLIB_C_API int xy_fsum(float value, float* result);
APLIB_C_API int xy_dsum(double value, double* result);
APLIB_C_API int x_isum(int value, int* result);
APLIB_C_API int x_fsum(float value, float* result);
APLIB_C_API int x_dsum(double value, double* result);
APLIB_C_API int y_isum(int value, int* result);
APLIB_C_API int y_fsum(float value, float* result);
APLIB_C_API int y_dsum(double value, double* result);

/* Largest and smallest value, and the `id` that its cell gave. Of equal values the smallest id wins. xy_imax A; the
 * others C */
APLIB_C_API int xy_imax(int value, int id, int* max, int* max_id);
APLIB_C_API int xy_fmax(float value, int id, float* max, int* max_id);
APLIB_C_API int xy_dmax(double value, int id, double* max, int* max_id);
APLIB_C_API int xy_imin(int value, int id, int* min, int* min_id);
APLIB_C_API int xy_fmin(float value, int id, float* min, int* min_id);
APLIB_C_API int xy_dmin(double value, int id, double* min, int* min_id);
APLIB_C_API int x_imax(int value, int id, int* max, int* max_id);
APLIB_C_API int x_fmax(float value, int id, float* max, int* max_id);
APLIB_C_API int x_dmax(double value, int id, double* max, int* max_id);
APLIB_C_API int x_imin(int value, int id, int* min, int* min_id);
APLIB_C_API int x_fmin(float value, int id, float* min, int* min_id);
APLIB_C_API int x_dmin(double value, int id, double* min, int* min_id);
APLIB_C_API int y_imax(int value, int id, int* max, int* max_id);
APLIB_C_API int y_fmax(float value, int id, float* max, int* max_id);
APLIB_C_API int y_dmax(double value, int id, double* max, int* max_id);
APLIB_C_API int y_imin(int value, int id, int* min, int* min_id);
APLIB_C_API int y_fmin(float value, int id, float* min, int* min_id);
APLIB_C_API int y_dmin(double value, int id, double* min, int* min_id);

/* OR, AND and exclusive OR of all bits. xy_ior B; the others C */
APLIB_C_API int xy_ior(int value, int* result);
APLIB_C_API int xy_iand(int value, int* result);
APLIB_C_API int xy_ixor(int value, int* result);
APLIB_C_API int x_ior(int value, int* result);
APLIB_C_API int x_iand(int value, int* result);
APLIB_C_API int x_ixor(int value, int* result);
APLIB_C_API int y_ior(int value, int* result);
APLIB_C_API int y_iand(int value, int* result);
APLIB_C_API int y_ixor(int value, int* result);

/* The f calls for doubles, see below. */
APLIB_C_API int cellos_xy_fsum(double value, double* result);
APLIB_C_API int cellos_x_fsum(double value, double* result);
APLIB_C_API int cellos_y_fsum(double value, double* result);
APLIB_C_API int cellos_xy_fmax(double value, int id, double* max, int* max_id);
APLIB_C_API int cellos_x_fmax(double value, int id, double* max, int* max_id);
APLIB_C_API int cellos_y_fmax(double value, int id, double* max, int* max_id);
APLIB_C_API int cellos_xy_fmin(double value, int id, double* min, int* min_id);
APLIB_C_API int cellos_x_fmin(double value, int id, double* min, int* min_id);
APLIB_C_API int cellos_y_fmin(double value, int id, double* min, int* min_id);

#ifdef __cplusplus
}

/* The known callers pass doubles to the f calls (source: MIMD header of the ANU sort). The type that the result points
 * to decides: float or double. Nothing else compiles. */
inline int xy_fsum(double value, double* result) { return cellos_xy_fsum(value, result); }
inline int x_fsum(double value, double* result) { return cellos_x_fsum(value, result); }
inline int y_fsum(double value, double* result) { return cellos_y_fsum(value, result); }
inline int xy_fmax(double value, int id, double* max, int* max_id) { return cellos_xy_fmax(value, id, max, max_id); }
inline int x_fmax(double value, int id, double* max, int* max_id) { return cellos_x_fmax(value, id, max, max_id); }
inline int y_fmax(double value, int id, double* max, int* max_id) { return cellos_y_fmax(value, id, max, max_id); }
inline int xy_fmin(double value, int id, double* min, int* min_id) { return cellos_xy_fmin(value, id, min, min_id); }
inline int x_fmin(double value, int id, double* min, int* min_id) { return cellos_x_fmin(value, id, min, min_id); }
inline int y_fmin(double value, int id, double* min, int* min_id) { return cellos_y_fmin(value, id, min, min_id); }
#elif defined(__GNUC__) || __STDC_VERSION__ >= 201112L
/* The known callers pass doubles to the f calls (source: MIMD header of the ANU sort). The type that the result points
 * to decides: float or double. Nothing else compiles. */
#define APLIB_F_TAKES(name, result) _Generic((result), float* : name, double* : cellos_##name)
#define xy_fsum(value, result) APLIB_F_TAKES(xy_fsum, result)(value, result)
#define x_fsum(value, result) APLIB_F_TAKES(x_fsum, result)(value, result)
#define y_fsum(value, result) APLIB_F_TAKES(y_fsum, result)(value, result)
#define xy_fmax(value, id, max, max_id) APLIB_F_TAKES(xy_fmax, max)(value, id, max, max_id)
#define x_fmax(value, id, max, max_id) APLIB_F_TAKES(x_fmax, max)(value, id, max, max_id)
#define y_fmax(value, id, max, max_id) APLIB_F_TAKES(y_fmax, max)(value, id, max, max_id)
#define xy_fmin(value, id, min, min_id) APLIB_F_TAKES(xy_fmin, min)(value, id, min, min_id)
#define x_fmin(value, id, min, min_id) APLIB_F_TAKES(x_fmin, min)(value, id, min, min_id)
#define y_fmin(value, id, min, min_id) APLIB_F_TAKES(y_fmin, min)(value, id, min, min_id)
#endif

#endif /* APLIB_CELLOS_REDUCTIONS_H */
