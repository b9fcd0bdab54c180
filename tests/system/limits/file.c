/* SPDX-License-Identifier: MIT */
/* Writes a megabyte to the file by MPI: file NAME. Ends with 3 when there is no space. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  static char bytes[1 << 20];
  char text[MPI_MAX_ERROR_STRING];
  int class = MPI_SUCCESS, length;
  MPI_File file;
  MPI_Init(&argc, &argv);
  int code = MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_WRONLY | MPI_MODE_CREATE, MPI_INFO_NULL, &file);
  if (code == MPI_SUCCESS) code = MPI_File_write(file, bytes, sizeof bytes, MPI_BYTE, MPI_STATUS_IGNORE);
  MPI_Error_class(code, &class);
  MPI_Error_string(code, text, &length);
  if (code != MPI_SUCCESS) fprintf(stderr, "%s\n", text);
  MPI_File_close(&file);
  MPI_Finalize();
  return class == MPI_ERR_NO_SPACE ? 3 : code != MPI_SUCCESS;
}
