// SPDX-License-Identifier: MIT
// The data of files: pointers, reads and writes of all kinds.
//
// Calls that do not wait move their data at once, and their requests are over from the beginning: a file is there when
// it is asked, and what others do is nothing that these calls may wait for. So those that are collective do without the
// others, too. Split collective calls do all when they begin.
#include <fmt/format.h>

#include <string_view>

#include "mpi/blocks.hpp"
#include "mpi/file_transfer.hpp"
#include "mpi/request.hpp"
#include "mpi/tell_all.hpp"

namespace aplib::mpi {

namespace {

enum class Way : bool { read, write };
enum class With : bool { alone, together };

/// A program's buffer and what it wants with it.
struct Wish {
  Way way;
  void* buffer;
  MPI_Count count;
  TypeHandle& type;
};
Wish read_to(void* buffer, MPI_Count count, TypeHandle& type) { return {Way::read, buffer, count, type}; }
Wish write_from(const void* buffer, MPI_Count count, TypeHandle& type) {
  return {Way::write, const_cast<void*>(buffer), count, type};
}

/// The same checked: what is to be moved, but not where in the file it begins.
struct Work {
  bool is_write;
  Elements memory;
  DatatypePtr type;
  Count etypes;
};

Work checked(const Call& call, const File& file, const Wish& wish) {
  if (wish.way == Way::read && !file.reads())
    fail(MPI_ERR_ACCESS, "fh was opened with MPI_MODE_WRONLY; open it with MPI_MODE_RDWR or MPI_MODE_RDONLY");
  if (wish.way == Way::write && !file.writes())
    fail(MPI_ERR_READ_ONLY, "fh was opened with MPI_MODE_RDONLY; open it with MPI_MODE_RDWR or MPI_MODE_WRONLY");
  TypeHandle& type = travelling("datatype", wish.type);
  check_count(call, "count", wish.count);
  const Elements memory = buffer_elements("buf", wish.buffer, wish.count, type);
  const Count unit = file.view.unit();
  if (memory.bytes() % unit != 0) {
    fail(MPI_ERR_TYPE, fmt::format("count elements of datatype have {} bytes, no multiple of the {} of the view's "
                                   "etype; access whole etypes",
                                   memory.bytes(), unit));
  }
  if (file.is_external) check_external("datatype", *type.datatype);
  return {wish.way == Way::write, memory, type.datatype, memory.bytes() / unit};
}

Count move(const Call& call, const File& file, const Transfer& transfer, With with) {
  return with == With::together ? move_together(call, file, transfer) : move_alone(file, transfer);
}

/// By way of a buffer that has the representation external32. What a read does not reach stays as it is.
Count move_external(const Call& call, const File& file, Transfer transfer, const Datatype& type, With with) {
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(transfer.bytes));
  const Elements memory = transfer.memory;
  pack_external(buffer.get(), memory, type.shared_signature());
  transfer.memory = bytes_in(buffer.get(), transfer.bytes);
  const Count moved = move(call, file, transfer, with);
  if (!transfer.is_write) unpack_external(memory, buffer.get(), type.shared_signature());
  return moved;
}

/// Moves it to or from the etypes from `first` on. Returns how many bytes.
Count move(const Call& call, const File& file, const Work& work, Count first, With with) {
  Transfer transfer{work.is_write, work.memory, &file.view, 0, work.memory.bytes()};
  Count end = 0;
  if (__builtin_mul_overflow(first, file.view.unit(), &transfer.begin) ||
      __builtin_add_overflow(transfer.begin, transfer.bytes, &end)) {
    end = -1;  // beyond all offsets
  }
  if (transfer.bytes > 0) file.view.check_end(end);
  return file.is_external ? move_external(call, file, transfer, *work.type, with) : move(call, file, transfer, with);
}

// ---------------------------------------------------------------- where it begins

void check_not_sequential(const File& file) {
  if (file.is_sequential()) {
    fail(MPI_ERR_UNSUPPORTED_OPERATION,
         "fh was opened with MPI_MODE_SEQUENTIAL; use the shared pointer (MPI_File_read_shared and its kin)");
  }
}

Count at_offset(const File& file, MPI_Offset offset) {
  check_not_sequential(file);
  check_offset("offset", offset);
  return offset;
}

/// Of the individual pointer, which goes on.
Count take_individual(File& file, Count etypes) {
  check_not_sequential(file);
  return std::exchange(file.position, file.position + etypes);
}

/// Of the shared pointer, which goes on by what all ranks have, in the order of the ranks.
Count take_ordered(const Call& call, const File& file, Count etypes) {
  Comm& comm = *file.comm;
  const auto counts = tell_all(Collective(call, comm, CollectiveKind::file), etypes);
  Count all = 0;
  Count before = 0;
  for (int rank = 0; rank < comm.size(); ++rank) {
    if (rank == comm.rank()) before = all;
    all += counts[static_cast<std::size_t>(rank)];
  }
  Count first = 0;
  together(call, comm, CollectiveKind::file, [&] {
    if (comm.rank() == 0) first = file.add_to_shared(call, all);
  });
  return tell_all(Collective(call, comm, CollectiveKind::file), first)[0] + before;
}

// ---------------------------------------------------------------- when it is over

void tell(MPI_Status* status, Count bytes) { set_status(status, MPI_ANY_SOURCE, MPI_ANY_TAG, bytes); }

/// A call that returns when all is done. begins(etypes): where.
template <class Begins>
void run(const Call& call, File& file, const Wish& wish, With with, MPI_Status* status, const Begins& begins) {
  if (with == With::together) check_no_split(file);
  const Work work = checked(call, file, wish);
  tell(status, move(call, file, work, begins(work.etypes), with));
}

/// The same with a request. What the file system says comes with that.
template <class Begins>
void start(const Call& call, File& file, const Wish& wish, MPI_Request* place, const Begins& begins) {
  const Work work = checked(call, file, wish);
  const Count first = begins(work.etypes);
  std::optional<Failure> failure;
  Count moved = 0;
  try {
    moved = move(call, file, work, first, With::alone);
  } catch (Failure& thrown) {
    failure = std::move(thrown);
  }
  Request& request = Request::make(*file.comm, Request::Does::nothing);
  tell(&request.result, moved);
  if (failure) {
    file.hold();
    failure->on = &file;
    request.failure = std::move(failure);
  }
  *place = handle_of<MPI_Request>(request);
}

template <class Begins>
void begin_split(const Call& call, File& file, const char* name, const Wish& wish, const Begins& begins) {
  check_no_split(file);
  const Work work = checked(call, file, wish);
  const Count moved = move(call, file, work, begins(work.etypes), With::together);
  file.split = File::Split{name, moved};
}

void end_split(File& file, const char* name, MPI_Status* status) {
  if (!file.split || std::string_view(file.split->name) != name) {
    fail(MPI_ERR_OTHER,
         fmt::format("fh has no such split collective call under way; begin it by MPI_File_{}_begin", name));
  }
  tell(status, file.split->bytes);
  file.split.reset();
}

// The three ways to say where a call begins.
auto explicit_in(File& file, MPI_Offset offset) {
  return [&file, offset](Count) { return at_offset(file, offset); };
}
auto individual_in(File& file) {
  return [&file](Count etypes) { return take_individual(file, etypes); };
}
auto shared_in(const Call& call, File& file) {
  return [&call, &file](Count etypes) { return file.add_to_shared(call, etypes); };
}
auto ordered_in(const Call& call, File& file) {
  return [&call, &file](Count etypes) { return take_ordered(call, file, etypes); };
}

}  // namespace

// ---------------------------------------------------------------- pointers

namespace {

/// Where a pointer is to go, which is `position` now.
Count sought(const File& file, MPI_Offset offset, int whence, Count position) {
  Count from = 0;
  switch (whence) {
    case MPI_SEEK_SET:
      break;
    case MPI_SEEK_CUR:
      from = position;
      break;
    case MPI_SEEK_END: {  // the first etype that the file has not all of
      if (!file.view.is_ordered())
        fail(MPI_ERR_UNSUPPORTED_OPERATION,
             "whence is MPI_SEEK_END, and the view's filetype goes backwards in the file");
      const Count unit = file.view.unit();
      from = (file.view.position_at(file.disk.size()) + unit - 1) / unit;
      break;
    }
    default:
      fail(MPI_ERR_ARG, fmt::format("whence is {}; use MPI_SEEK_SET, MPI_SEEK_CUR or MPI_SEEK_END", whence));
  }
  Count to = 0;
  if (__builtin_add_overflow(from, offset, &to) || to < 0) {
    fail(MPI_ERR_ARG,
         fmt::format("offset is {}, from {} on: that is in front of the file; give a larger one", offset, from));
  }
  return to;
}

}  // namespace

void file_seek(const Call&, File& file, MPI_Offset offset, int whence) {
  check_not_sequential(file);
  file.position = sought(file, offset, whence, file.position);
}

void file_get_position(const Call&, File& file, MPI_Offset* offset) {
  check_not_sequential(file);
  *offset = file.position;
}

void file_get_byte_offset(const Call&, File& file, MPI_Offset offset, MPI_Offset* place) {
  check_offset("offset", offset);
  Count position = 0;
  if (__builtin_mul_overflow(offset, file.view.unit(), &position)) position = -2;
  if (file.view.filetype()->size() > 0) file.view.check_end(position + 1);
  *place = file.view.offset_of(position);
}

// Nobody uses the pointer before it is there.
void file_seek_shared(const Call& call, File& file, MPI_Offset offset, int whence) {
  check_no_split(file);
  struct Where {
    MPI_Offset offset;
    int whence;
  };
  Comm& comm = *file.comm;
  for (const Where& its : tell_all(Collective(call, comm, CollectiveKind::file), Where{offset, whence})) {
    if (its.offset != offset || its.whence != whence)
      fail(MPI_ERR_NOT_SAME, "offset or whence differ between the ranks; let all give the same");
  }
  together(call, comm, CollectiveKind::file, [&] {
    if (comm.rank() == 0) file.set_shared(call, sought(file, offset, whence, file.add_to_shared(call, 0)));
  });
}

void file_get_position_shared(const Call& call, File& file, MPI_Offset* offset) {
  *offset = file.add_to_shared(call, 0);
}

// ---------------------------------------------------------------- explicit offsets

void file_read_at(const Call& call, File& file, MPI_Offset offset, void* buffer, MPI_Count count, TypeHandle& type,
                  MPI_Status* status) {
  run(call, file, read_to(buffer, count, type), With::alone, status, explicit_in(file, offset));
}
void file_write_at(const Call& call, File& file, MPI_Offset offset, const void* buffer, MPI_Count count,
                   TypeHandle& type, MPI_Status* status) {
  run(call, file, write_from(buffer, count, type), With::alone, status, explicit_in(file, offset));
}
void file_read_at_all(const Call& call, File& file, MPI_Offset offset, void* buffer, MPI_Count count, TypeHandle& type,
                      MPI_Status* status) {
  run(call, file, read_to(buffer, count, type), With::together, status, explicit_in(file, offset));
}
void file_write_at_all(const Call& call, File& file, MPI_Offset offset, const void* buffer, MPI_Count count,
                       TypeHandle& type, MPI_Status* status) {
  run(call, file, write_from(buffer, count, type), With::together, status, explicit_in(file, offset));
}
void file_iread_at(const Call& call, File& file, MPI_Offset offset, void* buffer, MPI_Count count, TypeHandle& type,
                   MPI_Request* place) {
  start(call, file, read_to(buffer, count, type), place, explicit_in(file, offset));
}
void file_iwrite_at(const Call& call, File& file, MPI_Offset offset, const void* buffer, MPI_Count count,
                    TypeHandle& type, MPI_Request* place) {
  start(call, file, write_from(buffer, count, type), place, explicit_in(file, offset));
}
void file_iread_at_all(const Call& call, File& file, MPI_Offset offset, void* buffer, MPI_Count count, TypeHandle& type,
                       MPI_Request* place) {
  start(call, file, read_to(buffer, count, type), place, explicit_in(file, offset));
}
void file_iwrite_at_all(const Call& call, File& file, MPI_Offset offset, const void* buffer, MPI_Count count,
                        TypeHandle& type, MPI_Request* place) {
  start(call, file, write_from(buffer, count, type), place, explicit_in(file, offset));
}
void file_read_at_all_begin(const Call& call, File& file, MPI_Offset offset, void* buffer, MPI_Count count,
                            TypeHandle& type) {
  begin_split(call, file, "read_at_all", read_to(buffer, count, type), explicit_in(file, offset));
}
void file_write_at_all_begin(const Call& call, File& file, MPI_Offset offset, const void* buffer, MPI_Count count,
                             TypeHandle& type) {
  begin_split(call, file, "write_at_all", write_from(buffer, count, type), explicit_in(file, offset));
}
void file_read_at_all_end(const Call&, File& file, void*, MPI_Status* status) {
  end_split(file, "read_at_all", status);
}
void file_write_at_all_end(const Call&, File& file, const void*, MPI_Status* status) {
  end_split(file, "write_at_all", status);
}

// ---------------------------------------------------------------- the individual pointer

void file_read(const Call& call, File& file, void* buffer, MPI_Count count, TypeHandle& type, MPI_Status* status) {
  run(call, file, read_to(buffer, count, type), With::alone, status, individual_in(file));
}
void file_write(const Call& call, File& file, const void* buffer, MPI_Count count, TypeHandle& type,
                MPI_Status* status) {
  run(call, file, write_from(buffer, count, type), With::alone, status, individual_in(file));
}
void file_read_all(const Call& call, File& file, void* buffer, MPI_Count count, TypeHandle& type, MPI_Status* status) {
  run(call, file, read_to(buffer, count, type), With::together, status, individual_in(file));
}
void file_write_all(const Call& call, File& file, const void* buffer, MPI_Count count, TypeHandle& type,
                    MPI_Status* status) {
  run(call, file, write_from(buffer, count, type), With::together, status, individual_in(file));
}
void file_iread(const Call& call, File& file, void* buffer, MPI_Count count, TypeHandle& type, MPI_Request* place) {
  start(call, file, read_to(buffer, count, type), place, individual_in(file));
}
void file_iwrite(const Call& call, File& file, const void* buffer, MPI_Count count, TypeHandle& type,
                 MPI_Request* place) {
  start(call, file, write_from(buffer, count, type), place, individual_in(file));
}
void file_iread_all(const Call& call, File& file, void* buffer, MPI_Count count, TypeHandle& type, MPI_Request* place) {
  start(call, file, read_to(buffer, count, type), place, individual_in(file));
}
void file_iwrite_all(const Call& call, File& file, const void* buffer, MPI_Count count, TypeHandle& type,
                     MPI_Request* place) {
  start(call, file, write_from(buffer, count, type), place, individual_in(file));
}
void file_read_all_begin(const Call& call, File& file, void* buffer, MPI_Count count, TypeHandle& type) {
  begin_split(call, file, "read_all", read_to(buffer, count, type), individual_in(file));
}
void file_write_all_begin(const Call& call, File& file, const void* buffer, MPI_Count count, TypeHandle& type) {
  begin_split(call, file, "write_all", write_from(buffer, count, type), individual_in(file));
}
void file_read_all_end(const Call&, File& file, void*, MPI_Status* status) { end_split(file, "read_all", status); }
void file_write_all_end(const Call&, File& file, const void*, MPI_Status* status) {
  end_split(file, "write_all", status);
}

// ---------------------------------------------------------------- the shared pointer

void file_read_shared(const Call& call, File& file, void* buffer, MPI_Count count, TypeHandle& type,
                      MPI_Status* status) {
  run(call, file, read_to(buffer, count, type), With::alone, status, shared_in(call, file));
}
void file_write_shared(const Call& call, File& file, const void* buffer, MPI_Count count, TypeHandle& type,
                       MPI_Status* status) {
  run(call, file, write_from(buffer, count, type), With::alone, status, shared_in(call, file));
}
void file_iread_shared(const Call& call, File& file, void* buffer, MPI_Count count, TypeHandle& type,
                       MPI_Request* place) {
  start(call, file, read_to(buffer, count, type), place, shared_in(call, file));
}
void file_iwrite_shared(const Call& call, File& file, const void* buffer, MPI_Count count, TypeHandle& type,
                        MPI_Request* place) {
  start(call, file, write_from(buffer, count, type), place, shared_in(call, file));
}
void file_read_ordered(const Call& call, File& file, void* buffer, MPI_Count count, TypeHandle& type,
                       MPI_Status* status) {
  run(call, file, read_to(buffer, count, type), With::together, status, ordered_in(call, file));
}
void file_write_ordered(const Call& call, File& file, const void* buffer, MPI_Count count, TypeHandle& type,
                        MPI_Status* status) {
  run(call, file, write_from(buffer, count, type), With::together, status, ordered_in(call, file));
}
void file_read_ordered_begin(const Call& call, File& file, void* buffer, MPI_Count count, TypeHandle& type) {
  begin_split(call, file, "read_ordered", read_to(buffer, count, type), ordered_in(call, file));
}
void file_write_ordered_begin(const Call& call, File& file, const void* buffer, MPI_Count count, TypeHandle& type) {
  begin_split(call, file, "write_ordered", write_from(buffer, count, type), ordered_in(call, file));
}
void file_read_ordered_end(const Call&, File& file, void*, MPI_Status* status) {
  end_split(file, "read_ordered", status);
}
void file_write_ordered_end(const Call&, File& file, const void*, MPI_Status* status) {
  end_split(file, "write_ordered", status);
}

}  // namespace aplib::mpi
