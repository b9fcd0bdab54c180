/* SPDX-License-Identifier: MIT */
/* HDF5: files with compressed chunks, errors on its stack, iteration by callbacks that meet others, types and filters
   in registries. */
#include <hdf5.h>
#include <unistd.h>

#include "stress.h"

enum { SIZE = 3000 };

static herr_t visit(hid_t group, const char* name, const H5L_info_t* info, void* count) {
  (void)group, (void)info;
  meet(name[0]);
  ++*(int*)count;
  return 0;
}
static size_t mask(unsigned flags, size_t n, const unsigned* values, size_t bytes, size_t* size, void** buffer) {
  (void)flags, (void)n, (void)values, (void)size;
  for (size_t i = 0; i < bytes; ++i) ((unsigned char*)*buffer)[i] ^= (unsigned char)(rank + 1);
  return bytes;
}
static herr_t note(hid_t stack, void* calls) {
  check(H5Eget_num(stack) > 0, "the stack of errors");
  meet(1);
  ++*(int*)calls;
  return 0;
}

static void round_of(const char* name, int round) {
  int in[SIZE], out[SIZE], count = 0;
  const hsize_t size = SIZE, chunk = 500;
  const hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), space = H5Screate_simple(1, &size, NULL);
  const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(list, 1, &chunk);
  H5Pset_shuffle(list);
  H5Pset_deflate(list, 4);
  H5Pset_filter(list, (H5Z_filter_t)(300 + rank), H5Z_FLAG_MANDATORY, 0, NULL);
  for (int i = 0; i < SIZE; ++i) in[i] = i * (rank + 1) + round;
  const char* const names[] = {"a", "b", "c"};
  for (int i = 0; i < 3; ++i) {
    const hid_t set = H5Dcreate2(file, names[i], H5T_STD_I32BE, space, H5P_DEFAULT, list, H5P_DEFAULT);
    check(H5Dwrite(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, in) >= 0, "writing");
    meet(i);
    H5Dclose(set);
  }
  check(H5Literate(file, H5_INDEX_NAME, H5_ITER_INC, NULL, visit, &count) >= 0 && count == 3, "iterating");
  H5Fclose(file);
  const hid_t again = H5Fopen(name, H5F_ACC_RDONLY, H5P_DEFAULT), set = H5Dopen2(again, "b", H5P_DEFAULT);
  check(H5Dread(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) >= 0, "reading");
  for (int i = 0; i < SIZE; ++i) check(out[i] == in[i], "what was read");
  H5Dclose(set);
  check(H5Dopen2(again, "none", H5P_DEFAULT) < 0, "a set that is not there");
  H5Fclose(again);
  H5Pclose(list);
  H5Sclose(space);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  char name[32];
  int calls = 0;
  snprintf(name, sizeof name, "rank%d.h5", rank);
  const H5Z_class2_t filter = {H5Z_CLASS_T_VERS, 300 + rank, 1, 1, "mine", NULL, NULL, mask};
  check(H5Zregister(&filter) >= 0 && (rank == 0 || H5Zfilter_avail(300) == 0), "the registry of filters");
  H5Eset_auto2(H5E_DEFAULT, note, &calls);
  for (int round = 0; round < 8; ++round) round_of(name, round);
  check(calls == 8, "calls for errors");
  unlink(name);
  return end();
}
