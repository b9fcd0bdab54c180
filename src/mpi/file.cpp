// SPDX-License-Identifier: MIT
// Files, but for the data: open, close, views, sizes, hints, error handlers.
#include "mpi/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include "aplib/one_sided.hpp"
#include "aplib/symmetric.hpp"
#include "kernel/condition.hpp"
#include "mpi/info.hpp"
#include "mpi/rank.hpp"
#include "mpi/tell_all.hpp"

namespace aplib::mpi {

namespace {

constexpr CollectiveKind kind_of_call = CollectiveKind::file;

}  // namespace

// ---------------------------------------------------------------- the object

File::File(Rank& rank, Comm& own_comm, Errhandler& handler, int mode)
    : ErrorTarget(rank, kind, handler), comm(&own_comm), amode(mode) {}

File::~File() { let_go(*comm); }  // which its program has not closed: the shared pointer ends with the cell

std::string File::title() const { return "the file " + disk.name(); }

File& file_of(const Call&, const char* parameter, MPI_File handle) {
  return object_of<File>(MPI_ERR_FILE, parameter, handle, "a file");
}

ErrorTarget& find_file(Rank& rank, MPI_File handle) noexcept {
  File* const found = find_made<File>(handle);
  return found != nullptr ? *found : rank.no_file();
}

void check_no_split(const File& file) {
  if (file.split) {
    fail(MPI_ERR_OTHER,
         fmt::format("fh has a split collective call under way; end it by MPI_File_{}_end before", file.split->name));
  }
}

void check_offset(const char* parameter, MPI_Offset offset) {
  if (offset < 0) fail(MPI_ERR_ARG, fmt::format("{} is {}; it is 0 or more", parameter, offset));
}

// ---------------------------------------------------------------- the shared pointer

// Without memory for it the file works, but for what needs it.
void File::make_shared_pointer(const Call& call) {
  try {
    own_pointer_ = static_cast<std::int64_t*>(symmetric_allocate(sizeof *own_pointer_));
    *own_pointer_ = 0;
  } catch (const Error& error) {
    api::debug(call.name(), fmt::format("the file gets no shared pointer: {}", error.what()));
  }
  const auto all = tell_all(Collective(call, *comm, kind_of_call), reinterpret_cast<std::uintptr_t>(own_pointer_));
  if (all[0] == 0) return;
  first_pointer_ =
      static_cast<std::int64_t*>(api::own_address_of(call.name(), comm->cell_of(0), reinterpret_cast<void*>(all[0])));
}

namespace {

Count fetch_pointer(const Call& call, const Comm& comm, std::int64_t* pointer, aplib::detail::Fetch what, Count value) {
  if (pointer == nullptr)
    fail(MPI_ERR_NO_MEM, "the first rank of the file had no memory for the shared pointer when the file was opened");
  return static_cast<Count>(aplib::detail::fetch(call.name(), what, comm.cell_of(0), pointer, {sizeof *pointer, true},
                                                 static_cast<std::uint64_t>(value), 0));
}

}  // namespace

Count File::add_to_shared(const Call& call, Count etypes) const {
  return fetch_pointer(call, *comm, first_pointer_, aplib::detail::Fetch::add, etypes);
}

void File::set_shared(const Call& call, Count etypes) const {
  fetch_pointer(call, *comm, first_pointer_, aplib::detail::Fetch::exchange, etypes);
}

void File::free_shared_pointer() {
  first_pointer_ = nullptr;
  symmetric_free(std::exchange(own_pointer_, nullptr));
}

// ---------------------------------------------------------------- hints

namespace {

template <class Number>
void take_number(const Info& info, const char* key, int base, Number least, Number most, Number& place) {
  const std::string* const text = info.find(key);
  if (text == nullptr) return;
  Number value{};
  const char* const end = text->data() + text->size();
  const auto [read, error] = std::from_chars(text->data(), end, value, base);
  if (error == std::errc() && read == end && value >= least && value <= most) place = value;
}

constexpr Count buffer_bytes_min = 4096;
constexpr Count buffer_bytes_max = Count{1} << 30;

}  // namespace

void FileHints::take(const Info* given) {
  if (given == nullptr) return;
  take_number(*given, "cb_buffer_size", 10, buffer_bytes_min, buffer_bytes_max, buffer_bytes);
  take_number(*given, "file_perm", 8, 0U, 0777U, permissions);
  if (const std::string* const text = given->find("collective_buffering"); text != nullptr) {
    if (*text == "true" || *text == "false") buffers_collectively = *text == "true";
  }
}

void file_set_info(const Call& call, File& file, Info* given) {
  check_no_split(file);
  file.hints.take(given);
  agree(call, *file.comm, kind_of_call, std::nullopt);
}

void file_get_info(const Call& call, File& file, MPI_Info* place) {
  auto& used = *new Info(call.rank());
  *place = handle_of<MPI_Info>(used);
  used.set("collective_buffering", file.hints.buffers_collectively ? "true" : "false");
  used.set("cb_buffer_size", std::to_string(file.hints.buffer_bytes));
  used.set("file_perm", fmt::format("{:o}", file.hints.permissions));
}

// ---------------------------------------------------------------- open and close

namespace {

void check_amode(int amode) {
  constexpr int all = MPI_MODE_APPEND | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE | MPI_MODE_EXCL | MPI_MODE_RDONLY |
                      MPI_MODE_RDWR | MPI_MODE_SEQUENTIAL | MPI_MODE_UNIQUE_OPEN | MPI_MODE_WRONLY;
  if ((amode & ~all) != 0) fail(MPI_ERR_AMODE, fmt::format("amode is {}, which has bits that are no mode", amode));
  const int access = amode & (MPI_MODE_RDONLY | MPI_MODE_RDWR | MPI_MODE_WRONLY);
  if (access != MPI_MODE_RDONLY && access != MPI_MODE_RDWR && access != MPI_MODE_WRONLY) {
    fail(MPI_ERR_AMODE, "amode has none or several of MPI_MODE_RDONLY, MPI_MODE_RDWR and MPI_MODE_WRONLY; give one");
  }
  if (access == MPI_MODE_RDONLY && (amode & (MPI_MODE_CREATE | MPI_MODE_EXCL)) != 0)
    fail(MPI_ERR_AMODE, "amode has MPI_MODE_RDONLY and MPI_MODE_CREATE or MPI_MODE_EXCL; open the file for writing");
  if (access == MPI_MODE_RDWR && (amode & MPI_MODE_SEQUENTIAL) != 0)
    fail(MPI_ERR_AMODE, "amode has MPI_MODE_RDWR and MPI_MODE_SEQUENTIAL; read or write alone");
}

/// The same ranks, for the file alone.
Comm& duplicate(const Call& call, const Comm& comm) {
  std::vector<std::uint32_t> cells(comm.group->size());
  for (std::uint32_t i = 0; i < cells.size(); ++i) cells[i] = comm.group->cell(i);
  return *make_part(call, comm, std::move(cells));
}

/// By the first rank before the others, if it makes the file: then they find it.
void open_disk(const Call& call, File& file, const char* name) {
  const int access = !file.writes() ? O_RDONLY : file.reads() ? O_RDWR : O_WRONLY;
  const bool makes = (file.amode & MPI_MODE_CREATE) != 0;
  const int only = (file.amode & MPI_MODE_EXCL) != 0 ? O_EXCL : 0;
  const auto open_at = [&](bool is_first, int flags) {
    together(call, *file.comm, kind_of_call, [&] {
      if (is_first == (file.comm->rank() == 0)) file.disk.open(file.comm->rank(), name, flags, file.hints.permissions);
    });
  };
  open_at(true, access | (makes ? O_CREAT | only : 0));
  open_at(false, access);
}

void open_together(const Call& call, File& file, const char* name) {
  together(call, *file.comm, kind_of_call, [&] { check_amode(file.amode); });
  check_same(call, *file.comm, kind_of_call, "amode", file.amode);
  open_disk(call, file, name);
  file.make_shared_pointer(call);
  if ((file.amode & MPI_MODE_APPEND) == 0) return;
  together(call, *file.comm, kind_of_call, [&] {
    file.position = file.disk.size();
    if (file.comm->rank() == 0 && file.has_shared_pointer()) file.set_shared(call, file.position);
  });
}

}  // namespace

void file_open(const Call& call, Comm& comm, const char* name, int amode, Info* given, MPI_File* place) {
  check_intra("comm", comm);
  auto& file = *new File(call.rank(), duplicate(call, comm), call.rank().no_file().handler(), amode);
  file.hints.take(given);
  try {
    open_together(call, file, name);
  } catch (...) {
    file.free_shared_pointer();
    file.release();
    throw;
  }
  *place = handle_of<MPI_File>(file);
}

namespace {

void delete_file(int rank, const std::string& name) {
  if (::unlink(name.c_str()) != 0) fail_system(rank, "delete", name, errno);
}

}  // namespace

// Whatever fails, the file is closed.
void file_close(const Call& call, MPI_File* place) {
  File& file = file_of(call, "fh", *place);
  std::optional<Failure> failure = attempt([&] { check_no_split(file); });
  if (failure) {
    file.hold();
  } else {
    const auto then = [&](auto&& work) {
      std::optional<Failure> failed = attempt([&] { together(call, *file.comm, kind_of_call, work); });
      if (!failure) failure = std::move(failed);
    };
    then([&] { file.disk.close(); });  // and nobody needs the shared pointer
    file.free_shared_pointer();
    if ((file.amode & MPI_MODE_DELETE_ON_CLOSE) != 0) {
      then([&] {
        if (file.comm->rank() == 0) delete_file(0, file.disk.full_name());
      });
    }
    *place = MPI_FILE_NULL;
    if (!failure) return file.release();
  }
  failure->on = &file;  // which it holds
  throw Failure(std::move(*failure));
}

void file_delete(const Call& call, const char* name, Info*) {
  delete_file(static_cast<int>(call.rank().world_rank()), name);
}

// ---------------------------------------------------------------- what is asked and set

void file_get_amode(const Call&, File& file, int* amode) { *amode = file.amode; }

void file_get_group(const Call&, File& file, MPI_Group* place) {
  file.comm->group->hold();
  *place = handle_of<MPI_Group>(*file.comm->group);
}

void file_get_size(const Call&, File& file, MPI_Offset* size) { *size = file.disk.size(); }

namespace {

void check_can_write(const File& file) {
  if (!file.writes())
    fail(MPI_ERR_READ_ONLY, "fh was opened with MPI_MODE_RDONLY; open it with MPI_MODE_RDWR or MPI_MODE_WRONLY");
}

/// Of a call that the first rank carries out for all.
template <class Work>
void by_first(const Call& call, const File& file, MPI_Offset size, const Work& work) {
  check_no_split(file);
  check_can_write(file);
  if (file.is_sequential())
    fail(MPI_ERR_UNSUPPORTED_OPERATION, "fh was opened with MPI_MODE_SEQUENTIAL; its size is what was written");
  check_same(call, *file.comm, kind_of_call, "size", size);
  check_offset("size", size);
  together(call, *file.comm, kind_of_call, [&] {
    if (file.comm->rank() == 0) work();
  });
}

}  // namespace

void file_set_size(const Call& call, File& file, MPI_Offset size) {
  by_first(call, file, size, [&] { file.disk.set_size(size); });
}

void file_preallocate(const Call& call, File& file, MPI_Offset size) {
  by_first(call, file, size, [&] {
    if (size > 0) file.disk.reserve(size);
  });
}

void file_sync(const Call& call, File& file) {
  check_no_split(file);
  together(call, *file.comm, kind_of_call, [&] {
    if (file.writes()) file.disk.flush();
  });
}

void file_set_atomicity(const Call& call, File& file, int flag) {
  check_no_split(file);
  check_same(call, *file.comm, kind_of_call, "flag", flag != 0 ? 1 : 0);
  together(call, *file.comm, kind_of_call, [&] {
    if (flag != 0 && !file.disk.can_lock()) {
      fail(MPI_ERR_UNSUPPORTED_OPERATION,
           fmt::format("rank {} cannot access {} atomically: its file system has no locks", file.comm->rank(),
                       file.disk.name()));
    }
  });
  file.is_atomic = flag != 0;
}

void file_get_atomicity(const Call&, File& file, int* flag) { *flag = file.is_atomic ? 1 : 0; }

// ---------------------------------------------------------------- views

void check_external(const char* parameter, const Datatype& type) {
  type.signature().for_each([&](BasicType basic, Count) {
    const BasicInfo& info = basic_info(basic);
    if (info.external_size != info.size) {
      fail(MPI_ERR_CONVERSION, fmt::format("{} has elements of {}, {} bytes in memory and {} in external32; use types "
                                           "of one size, as MPI_INT64_T",
                                           parameter, info.name, info.size, info.external_size));
    }
  });
}

namespace {

bool is_representation(std::string_view name) { return name == "native" || name == "internal" || name == "external32"; }

struct ViewSummary {
  Count unit;
  Count extent;
  bool is_external;
  bool has_gaps;
};

}  // namespace

void file_set_view(const Call& call, File& file, MPI_Offset displacement, TypeHandle& etype, TypeHandle& filetype,
                   const char* representation, Info* given) {
  View view;
  const bool is_external = std::string_view(representation) == "external32";
  together(call, *file.comm, kind_of_call, [&] {
    check_no_split(file);
    if (!is_representation(representation)) {
      fail(MPI_ERR_UNSUPPORTED_DATAREP,
           fmt::format("datarep is \"{}\"; use \"native\", \"internal\" or \"external32\"", representation));
    }
    if (displacement == MPI_DISPLACEMENT_CURRENT && file.is_sequential()) {
      displacement = file.view.offset_of(file.add_to_shared(call, 0) * file.view.unit());
    }
    check_offset("disp", displacement);
    view = View(displacement, committed("etype", etype), committed("filetype", filetype), file.writes());
    if (is_external) check_external("etype", *view.etype());
  });
  const ViewSummary own{view.unit(), view.etype()->extent(), is_external, !view.is_contiguous()};
  bool has_gaps = false;
  for (const ViewSummary& its : tell_all(Collective(call, *file.comm, kind_of_call), own)) {
    has_gaps = has_gaps || its.has_gaps;
    if (its.unit != own.unit || its.extent != own.extent || its.is_external != own.is_external)
      fail(MPI_ERR_NOT_SAME, "the extents of etype or datarep differ between the ranks; let all give the same");
  }
  file.view = std::move(view);
  file.representation = representation;
  file.is_external = is_external;
  file.has_gaps = has_gaps;
  file.can_lock = has_gaps && file.disk.can_lock();
  file.hints.take(given);
  file.position = 0;
  together(call, *file.comm, kind_of_call, [&] {
    if (file.comm->rank() == 0 && file.has_shared_pointer()) file.set_shared(call, 0);
  });
}

namespace {

/// For the program, which frees it.
MPI_Datatype new_handle(const Call& call, const DatatypePtr& type) {
  if (type->is_named()) return TypeHandle(call.rank(), type, true).handle();
  return handle_of<MPI_Datatype>(*new TypeHandle(call.rank(), type, true));
}

}  // namespace

void file_get_view(const Call& call, File& file, MPI_Offset* displacement, MPI_Datatype* etype, MPI_Datatype* filetype,
                   char* representation) {
  *displacement = file.view.displacement();
  *etype = new_handle(call, file.view.etype());
  *filetype = new_handle(call, file.view.filetype());
  std::memcpy(representation, file.representation.c_str(), file.representation.size() + 1);
}

void file_get_type_extent(const Call&, File& file, TypeHandle& type, MPI_Count* extent) {
  const Datatype& datatype = *type.datatype;
  const bool is_basic = datatype.is_named() && basic_info(datatype.code()).kind != Kind::pair;
  if (file.is_external && !is_basic) check_external("datatype", datatype);
  *extent = file.is_external && is_basic ? basic_info(datatype.code()).external_size : datatype.extent();
}

void register_datarep(const Call& call, const char* name, MPI_Datarep_conversion_function_c*,
                      MPI_Datarep_conversion_function_c*, MPI_Datarep_extent_function* extent, void*) {
  check_place(call, "dtype_file_extent_fn", reinterpret_cast<const void*>(extent));
  if (is_representation(name))
    fail(MPI_ERR_DUP_DATAREP, fmt::format("datarep is \"{}\", which the standard has defined", name));
  fail(MPI_ERR_UNSUPPORTED_DATAREP,
       fmt::format("datarep is \"{}\"; APlib converts to \"native\", \"internal\" and \"external32\" alone", name));
}

}  // namespace aplib::mpi
