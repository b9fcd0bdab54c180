// SPDX-License-Identifier: MIT
// DiskFile: a file of the system that is open, as one rank has it. Its functions go on where the system does less than
// it was asked for, and say in words what fails. They block the thread that carries the rank.
//
// Each rank opens the file for itself, so that locks of ranges are between ranks, also those of one process. Nobody
// waits for anything else while it has such a lock.
#pragma once

#include <sys/types.h>

#include <string>

#include "mpi/layout.hpp"

namespace aplib::mpi {

/// Fails with the class that the standard has for the system's error: "rank 3 cannot open data.bin: No such file or
/// directory (ENOENT)".
[[noreturn]] void fail_system(int rank, const char* what, const std::string& name, int error);

class DiskFile {
 public:
  DiskFile() = default;
  ~DiskFile();
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  /// `rank` is for messages. Fails where nothing has an offset, as in pipes. What is open for writing alone can be
  /// read, too, if the system lets us (is_readable()).
  void open(int rank, const std::string& name, int flags, mode_t permissions);
  /// Of one that is not open, nothing.
  void close();

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// The name, whatever folder is the current one.
  [[nodiscard]] const std::string& full_name() const noexcept { return full_name_; }
  [[nodiscard]] bool is_readable() const noexcept { return is_readable_; }
  /// Whether the file system knows locks of ranges.
  [[nodiscard]] bool can_lock() const noexcept;

  /// The bytes that there are: fewer than asked for where the file ends.
  [[nodiscard]] Count read(void* to, Count bytes, Count offset) const;
  void write(const void* from, Count bytes, Count offset) const;
  [[nodiscard]] Count size() const;
  /// False: a device, whose size says nothing.
  [[nodiscard]] bool has_size() const noexcept { return has_size_; }
  void set_size(Count bytes) const;
  void reserve(Count bytes) const;
  void flush() const;

 private:
  friend class RangeLock;

  [[noreturn]] void fail(const char* what, int error) const { fail_system(rank_, what, name_, error); }

  int rank_ = 0;
  int descriptor_ = -1;
  bool is_readable_ = false;
  bool is_writable_ = false;
  bool has_size_ = false;
  std::string name_;
  std::string full_name_;
};

/// A lock of a range of bytes, from `first` on; of no bytes: all from there on.
class RangeLock {
 public:
  enum class Kind : bool { shared, exclusive };

  RangeLock(const DiskFile& file, Kind kind, Count first, Count bytes);
  ~RangeLock();
  RangeLock(const RangeLock&) = delete;
  RangeLock& operator=(const RangeLock&) = delete;

 private:
  const DiskFile& file_;
  Count first_;
  Count bytes_;
};

}  // namespace aplib::mpi
