// SPDX-License-Identifier: MIT
// File: a file that ranks have opened together, as one of them sees it.
//
// The shared pointer is a word in the memory of the file's first rank. Others add to it by one-sided calls, which need
// nothing of that rank, in whichever process it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mpi/comm.hpp"
#include "mpi/disk_file.hpp"
#include "mpi/file_view.hpp"

namespace aplib::mpi {

/// MPI_FILE_NULL: errors that belong to no file are raised on it, and files begin with its error handler.
struct NoFile final : ErrorTarget {
  NoFile(Rank& rank, Errhandler& handler) : ErrorTarget(rank, ObjectKind::file, handler) {}
  [[nodiscard]] std::string title() const override { return "MPI_FILE_NULL"; }
  [[nodiscard]] void* handle() noexcept override { return MPI_FILE_NULL; }
};

/// What a program may say about its use of a file.
struct FileHints {
  bool buffers_collectively = true;     ///< Collective calls put pieces of several ranks together.
  Count buffer_bytes = Count{1} << 20;  ///< So many of the file at a time; calls of one rank alone do so, too.
  unsigned permissions = 0666;          ///< Of a file that is made.

  /// Of what makes no sense nothing is taken.
  void take(const Info* given);
};

struct File final : ErrorTarget {
  static constexpr ObjectKind kind = ObjectKind::file;

  /// Holds the communicator, which it has for itself.
  File(Rank& rank, Comm& own_comm, Errhandler& handler, int mode);
  ~File() override;

  [[nodiscard]] std::string title() const override;
  [[nodiscard]] bool reads() const noexcept { return (amode & MPI_MODE_WRONLY) == 0; }
  [[nodiscard]] bool writes() const noexcept { return (amode & MPI_MODE_RDONLY) == 0; }
  [[nodiscard]] bool is_sequential() const noexcept { return (amode & MPI_MODE_SEQUENTIAL) != 0; }

  /// Collective: each rank gets its place for the shared pointer, and knows the first one's.
  void make_shared_pointer(const Call& call);
  /// In etypes. Returns what it was before.
  Count add_to_shared(const Call& call, Count etypes) const;
  void set_shared(const Call& call, Count etypes) const;
  [[nodiscard]] bool has_shared_pointer() const noexcept { return first_pointer_ != nullptr; }
  void free_shared_pointer();

  Comm* comm;
  int amode;
  DiskFile disk;
  FileHints hints;
  View view;
  std::string representation = "native";
  bool is_external = false;  ///< The representation is external32.
  bool is_atomic = false;
  /// Some rank has a view with gaps, and may write back what lies in them: who writes there must have a lock.
  bool has_gaps = false;
  bool can_lock = false;
  Count position = 0;  ///< The individual pointer, in etypes.
  /// A split collective call has begun: its name but for MPI_File_ and _begin, and what it has moved.
  struct Split {
    const char* name;
    Count bytes;
  };
  std::optional<Split> split;

 private:
  std::int64_t* own_pointer_ = nullptr;    // in the cell's heap
  std::int64_t* first_pointer_ = nullptr;  // the first rank's, by the caller's own address; null: there is none
};

File& file_of(const Call& call, const char* parameter, MPI_File handle);
/// MPI_FILE_NULL if it is no file. For the raising of errors.
ErrorTarget& find_file(Rank& rank, MPI_File handle) noexcept;

/// Fails while a split collective call is under way.
void check_no_split(const File& file);
void check_offset(const char* parameter, MPI_Offset offset);
/// Fails where the representation external32 of an element has another size: files then have other displacements than
/// memory.
void check_external(const char* parameter, const Datatype& type);

}  // namespace aplib::mpi
