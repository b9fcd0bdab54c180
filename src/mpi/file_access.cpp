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

Work checked(const File& file, const Wish& wish) {
  if (wish.way == Way::read && !file.reads())
    fail(MPI_ERR_ACCESS, "fh was opened with MPI_MODE_WRONLY; open it with MPI_MODE_RDWR or MPI_MODE_RDONLY");
  if (wish.way == Way::write && !file.writes())
    fail(MPI_ERR_READ_ONLY, "fh was opened with MPI_MODE_RDONLY; open it with MPI_MODE_RDWR or MPI_MODE_WRONLY");
  TypeHandle& type = travelling("datatype", wish.type);
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

/// Data on their way from the etypes from `first` on, or to them. In the representation external32 they go by way of a
/// buffer. What a read does not reach stays as it is.
class Moving {
 public:
  Moving(const File& file, const Work& work, Count first)
      : memory_(work.memory), type_(work.type), transfer_{work.is_write, memory_, &file.view, 0, memory_.bytes()} {
    Count end = 0;
    if (__builtin_mul_overflow(first, file.view.unit(), &transfer_.begin) ||
        __builtin_add_overflow(transfer_.begin, transfer_.bytes, &end)) {
      end = -1;  // beyond all offsets
    }
    if (transfer_.bytes > 0) file.view.check_end(end);
    if (!file.is_external) return;
    external_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(transfer_.bytes));
    pack_external(external_.get(), memory_, type_->shared_signature());
    transfer_.memory = bytes_in(external_.get(), transfer_.bytes);
  }

  [[nodiscard]] const Transfer& transfer() const noexcept { return transfer_; }
  /// They have been moved.
  void end() const {
    if (external_ != nullptr && !transfer_.is_write)
      unpack_external(memory_, external_.get(), type_->shared_signature());
  }

 private:
  Elements memory_;
  DatatypePtr type_;
  Transfer transfer_;
  std::unique_ptr<std::byte[]> external_;
};

Count move_alone(const File& file, const Work& work, Count first) {
  const Moving moving(file, work, first);
  const Count moved = move_alone(file, moving.transfer());
  moving.end();
  return moved;
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
  Count to = 0;
  Count end = 0;
  if (__builtin_add_overflow(file.position, etypes, &to) || __builtin_mul_overflow(to, file.view.unit(), &end))
    end = -1;
  if (etypes > 0) file.view.check_end(end);
  return std::exchange(file.position, to);
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

/// Moves the data of a collective call, from begins(etypes) on. A rank that fails comes all the same, with nothing, for
/// the others wait for it.
template <class Begins>
Count move_together(const Call& call, File& file, const Wish& wish, const Begins& begins) {
  std::optional<Work> work;
  std::optional<Failure> failure = attempt([&] {
    check_no_split(file);
    work = checked(file, wish);
  });
  Count first = 0;
  std::optional<Failure> failed = attempt([&] { first = begins(work ? work->etypes : 0); });  // it may ask all ranks
  if (!failure) failure = std::move(failed);
  std::optional<Moving> moving;
  if (!failure) failure = attempt([&] { moving.emplace(file, *work, first); });
  const Transfer nothing{wish.way == Way::write, bytes_in(nullptr, 0), &file.view, 0, 0};
  const Count moved = move_together(call, file, moving ? moving->transfer() : nothing, std::move(failure));
  moving->end();
  return moved;
}

/// A call that returns when all is done. begins(etypes): where.
template <class Begins>
void run(const Call& call, File& file, const Wish& wish, With with, MPI_Status* status, const Begins& begins) {
  if (with == With::together) return tell(status, move_together(call, file, wish, begins));
  const Work work = checked(file, wish);
  tell(status, move_alone(file, work, begins(work.etypes)));
}

/// The same with a request. What the file system says comes with that.
template <class Begins>
void start(File& file, const Wish& wish, MPI_Request* place, const Begins& begins) {
  const Work work = checked(file, wish);
  const Count first = begins(work.etypes);
  Count moved = 0;
  std::optional<Failure> failure = attempt([&] { moved = move_alone(file, work, first); });
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
  const Count moved = move_together(call, file, wish, begins);
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

// The ways to say where a call begins.
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
    case MPI_SEEK_END: {  // the first etype that begins behind the file's last byte
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
  Count end = 0;
  if (__builtin_mul_overflow(offset, file.view.unit(), &position) || __builtin_add_overflow(position, 1, &end))
    end = -1;
  if (file.view.filetype()->size() > 0) file.view.check_end(end);
  *place = file.view.offset_of(position);
}

// Nobody uses the pointer before it is there.
void file_seek_shared(const Call& call, File& file, MPI_Offset offset, int whence) {
  check_no_split(file);
  Comm& comm = *file.comm;
  check_same(call, comm, CollectiveKind::file, "offset", offset);
  check_same(call, comm, CollectiveKind::file, "whence", whence);
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
void file_iread_at(const Call&, File& file, MPI_Offset offset, void* buffer, MPI_Count count, TypeHandle& type,
                   MPI_Request* place) {
  start(file, read_to(buffer, count, type), place, explicit_in(file, offset));
}
void file_iwrite_at(const Call&, File& file, MPI_Offset offset, const void* buffer, MPI_Count count, TypeHandle& type,
                    MPI_Request* place) {
  start(file, write_from(buffer, count, type), place, explicit_in(file, offset));
}
void file_iread_at_all(const Call&, File& file, MPI_Offset offset, void* buffer, MPI_Count count, TypeHandle& type,
                       MPI_Request* place) {
  start(file, read_to(buffer, count, type), place, explicit_in(file, offset));
}
void file_iwrite_at_all(const Call&, File& file, MPI_Offset offset, const void* buffer, MPI_Count count,
                        TypeHandle& type, MPI_Request* place) {
  start(file, write_from(buffer, count, type), place, explicit_in(file, offset));
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
void file_iread(const Call&, File& file, void* buffer, MPI_Count count, TypeHandle& type, MPI_Request* place) {
  start(file, read_to(buffer, count, type), place, individual_in(file));
}
void file_iwrite(const Call&, File& file, const void* buffer, MPI_Count count, TypeHandle& type, MPI_Request* place) {
  start(file, write_from(buffer, count, type), place, individual_in(file));
}
void file_iread_all(const Call&, File& file, void* buffer, MPI_Count count, TypeHandle& type, MPI_Request* place) {
  start(file, read_to(buffer, count, type), place, individual_in(file));
}
void file_iwrite_all(const Call&, File& file, const void* buffer, MPI_Count count, TypeHandle& type,
                     MPI_Request* place) {
  start(file, write_from(buffer, count, type), place, individual_in(file));
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
  start(file, read_to(buffer, count, type), place, shared_in(call, file));
}
void file_iwrite_shared(const Call& call, File& file, const void* buffer, MPI_Count count, TypeHandle& type,
                        MPI_Request* place) {
  start(file, write_from(buffer, count, type), place, shared_in(call, file));
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
