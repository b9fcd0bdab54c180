/* SPDX-License-Identifier: MIT */
/* NetCDF: files of its own format and of HDF5, whose numbers come from tables of the process. */
#include <netcdf.h>
#include <unistd.h>

#include "stress.h"

enum { ROWS = 20, COLUMNS = 50 };

static void round_of(const char* name, int mode, int round) {
  int file, again, dimensions[2], variable, other;
  double row[COLUMNS];
  check(nc_create(name, mode | NC_CLOBBER, &file) == NC_NOERR, "making the file");
  nc_def_dim(file, "row", NC_UNLIMITED, &dimensions[0]);
  nc_def_dim(file, "column", COLUMNS, &dimensions[1]);
  nc_def_var(file, "field", NC_DOUBLE, 2, dimensions, &variable);
  nc_put_att_int(file, variable, "rank", NC_INT, 1, &rank);
  if (mode & NC_NETCDF4) nc_def_var_deflate(file, variable, 1, 1, 3);
  check(nc_enddef(file) == NC_NOERR, "defining");
  for (size_t i = 0; i < ROWS; ++i) {
    const size_t start[2] = {i, 0}, count[2] = {1, COLUMNS};
    for (int j = 0; j < COLUMNS; ++j) row[j] = 1000.0 * rank + 50.0 * (double)i + j + round;
    check(nc_put_vara_double(file, variable, start, count, row) == NC_NOERR, "writing");
    if (i % 5 == 0) meet((int)i);
  }
  check(nc_close(file) == NC_NOERR, "closing");
  check(nc_open(name, NC_NOWRITE, &again) == NC_NOERR, "opening");
  int attribute = -1, same = 1;
  check(nc_inq_varid(again, "field", &variable) == NC_NOERR &&
            nc_get_att_int(again, variable, "rank", &attribute) == 0 && attribute == rank,
        "an attribute");
  check(nc_inq_varid(again, "none", &other) == NC_ENOTVAR, "a variable that is not there");
  for (size_t i = 0; i < ROWS; ++i) {
    const size_t start[2] = {i, 0}, count[2] = {1, COLUMNS};
    check(nc_get_vara_double(again, variable, start, count, row) == NC_NOERR, "reading");
    for (int j = 0; j < COLUMNS; ++j) same = same && row[j] == 1000.0 * rank + 50.0 * (double)i + j + round;
    if (i % 7 == 0) meet((int)i);
  }
  check(same, "what was read");
  nc_close(again);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  char name[32];
  snprintf(name, sizeof name, "rank%d.nc", rank);
  nc_set_default_format(rank % 2 ? NC_FORMAT_CLASSIC : NC_FORMAT_64BIT_OFFSET, NULL);
  for (int round = 0; round < 5; ++round) {
    round_of(name, 0, round);
    round_of(name, NC_NETCDF4, round);
  }
  unlink(name);
  return end();
}
