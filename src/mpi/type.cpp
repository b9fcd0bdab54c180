// SPDX-License-Identifier: MIT
// The functions MPI_Type_*, MPI_Pack* and MPI_Unpack*.
#include "mpi/type.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "mpi/rank.hpp"

namespace aplib::mpi {

struct Comm;

namespace {

constexpr std::uintptr_t first_handle = 0x200;
constexpr std::uintptr_t last_handle = 0x2ff;

MPI_Datatype handle_of_code(BasicType code) {
  return reinterpret_cast<MPI_Datatype>(first_handle + static_cast<std::uintptr_t>(code));
}

TypeHandle* find_predefined_type(Rank& rank, std::uintptr_t value) {
  if (value <= first_handle || value > last_handle) return nullptr;
  const auto code = static_cast<BasicType>(value - first_handle);
  if (basic_info(code).name == nullptr) return nullptr;
  TypeHandle*& place = rank.predefined_datatypes[value - first_handle];
  if (place == nullptr) {
    place = new TypeHandle(rank, Datatype::named(code), true);
    place->name = basic_info(code).name;
  }
  return place;
}

TypeHandle& element_of(const Call& call, const char* array, std::size_t i, MPI_Datatype handle) {
  if (is_predefined(handle)) {
    if (TypeHandle* const found = find_predefined_type(call.rank(), handle_value(handle)); found != nullptr) {
      return *found;
    }
  }
  return object_of<TypeHandle>(MPI_ERR_TYPE, fmt::format("{}[{}]", array, i).c_str(), handle, "a datatype");
}

bool is_predefined_type(const TypeHandle& type) { return type.datatype->code() != BasicType::null; }

/// What a type may be made of.
const DatatypePtr& part(const TypeHandle& type) {
  if (is_predefined_type(type) && type.datatype->size() == 0)
    fail(MPI_ERR_TYPE, fmt::format("{} is a type that this machine's compilers do not have", type.name));
  return type.datatype;
}

void give(const Call& call, DatatypePtr made, MPI_Datatype* place, bool is_committed = false) {
  *place = handle_of<MPI_Datatype>(*new TypeHandle(call.rank(), std::move(made), is_committed));
}

std::vector<Count> counts_of(Numbers numbers, MPI_Count count) {
  std::vector<Count> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = numbers[i];
  return values;
}

Form form_of(const Call& call) { return call.is_large() ? Form::large : Form::small; }

/// Fails unless the datatype that the program has a handle of is its own.
TypeHandle& own_type(const Call& call, MPI_Datatype handle) {
  TypeHandle& type = datatype_of(call, "datatype", handle);
  if (is_predefined_type(type))
    fail(MPI_ERR_TYPE, fmt::format("datatype is {}, which is predefined and cannot be freed", type.name));
  return type;
}

}  // namespace

MPI_Datatype TypeHandle::handle() noexcept {
  return datatype->is_named() ? handle_of_code(datatype->code()) : handle_of<MPI_Datatype>(*this);
}

TypeHandle& datatype_of(const Call& call, const char* parameter, MPI_Datatype handle) {
  const auto& known = call.rank().predefined_datatypes;
  const std::uintptr_t number = handle_value(handle) - first_handle;
  if (number < known.size() && known[number] != nullptr) [[likely]]
    return *known[number];
  if (is_predefined(handle)) {
    if (TypeHandle* const found = find_predefined_type(call.rank(), handle_value(handle)); found != nullptr) {
      return *found;
    }
  }
  return object_of<TypeHandle>(MPI_ERR_TYPE, parameter, handle, "a datatype");
}

void detail::check_committed(const char* parameter, const TypeHandle& type) {
  if (!type.is_committed) [[unlikely]]
    fail(MPI_ERR_TYPE, fmt::format("{} is not committed; call MPI_Type_commit before data travel with it", parameter));
  static_cast<void>(part(type));
}

void detail::check_buffer(const char* parameter, const void* buffer, const Datatype& type) {
  // MPI_BOTTOM is null, too; only displacements from 0 show that it is not meant.
  if (buffer == MPI_IN_PLACE || type.true_lb() == 0) fail_buffer(parameter, buffer);
}

void detail::fail_bytes(MPI_Count count, const Datatype& type) {
  fail(MPI_ERR_COUNT, fmt::format("{} elements of {} bytes do not fit into 64 bits", count, type.size()));
}

// ---- Constructors

void type_contiguous(const Call& call, MPI_Count count, TypeHandle& old, MPI_Datatype* place) {
  give(call, Datatype::contiguous(count, part(old), form_of(call)), place);
}

void type_vector(const Call& call, MPI_Count count, MPI_Count blocklength, MPI_Count stride, TypeHandle& old,
                 MPI_Datatype* place) {
  give(call, Datatype::vector(count, blocklength, stride, part(old), form_of(call)), place);
}

void type_create_hvector(const Call& call, MPI_Count count, MPI_Count blocklength, MPI_Count stride, TypeHandle& old,
                         MPI_Datatype* place) {
  give(call, Datatype::hvector(count, blocklength, stride, part(old), form_of(call)), place);
}

void type_indexed(const Call& call, MPI_Count count, Numbers blocklengths, Numbers displacements, TypeHandle& old,
                  MPI_Datatype* place) {
  const auto lengths = counts_of(blocklengths, count);
  give(call, Datatype::indexed(lengths, counts_of(displacements, count), part(old), form_of(call)), place);
}

void type_create_hindexed(const Call& call, MPI_Count count, Numbers blocklengths, Numbers displacements,
                          TypeHandle& old, MPI_Datatype* place) {
  const auto lengths = counts_of(blocklengths, count);
  give(call, Datatype::hindexed(lengths, counts_of(displacements, count), part(old), form_of(call)), place);
}

void type_create_indexed_block(const Call& call, MPI_Count count, MPI_Count blocklength, Numbers displacements,
                               TypeHandle& old, MPI_Datatype* place) {
  const auto places = counts_of(displacements, count);
  give(call, Datatype::indexed_block(blocklength, places, part(old), form_of(call)), place);
}

void type_create_hindexed_block(const Call& call, MPI_Count count, MPI_Count blocklength, Numbers displacements,
                                TypeHandle& old, MPI_Datatype* place) {
  const auto places = counts_of(displacements, count);
  give(call, Datatype::hindexed_block(blocklength, places, part(old), form_of(call)), place);
}

void type_create_struct(const Call& call, MPI_Count count, Numbers blocklengths, Numbers displacements,
                        const MPI_Datatype types[], MPI_Datatype* place) {
  std::vector<DatatypePtr> parts(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = part(element_of(call, "array_of_types", i, types[i]));
  const auto lengths = counts_of(blocklengths, count);
  give(call, Datatype::structure(lengths, counts_of(displacements, count), parts, form_of(call)), place);
}

void type_create_subarray(const Call& call, int ndims, Numbers sizes, Numbers subsizes, Numbers starts, int order,
                          TypeHandle& old, MPI_Datatype* place) {
  const auto all = counts_of(sizes, ndims);
  const auto taken = counts_of(subsizes, ndims);
  give(call, Datatype::subarray(all, taken, counts_of(starts, ndims), order, part(old), form_of(call)), place);
}

void type_create_darray(const Call& call, int size, int rank, int ndims, Numbers gsizes, const int distribs[],
                        const int dargs[], const int psizes[], int order, TypeHandle& old, MPI_Datatype* place) {
  const auto all = counts_of(gsizes, ndims);
  const auto each = [&](const int* values) { return std::span(values, static_cast<std::size_t>(ndims)); };
  const Datatype::Distribution given{size, rank, all, each(distribs), each(dargs), each(psizes), order};
  give(call, Datatype::darray(given, part(old), form_of(call)), place);
}

void type_create_resized(const Call& call, TypeHandle& old, MPI_Count lb, MPI_Count extent, MPI_Datatype* place) {
  give(call, Datatype::resized(part(old), lb, extent, form_of(call)), place);
}

void type_dup(const Call& call, TypeHandle& old, MPI_Datatype* place) {
  auto* const made = new TypeHandle(call.rank(), Datatype::dup(part(old)), old.is_committed);
  try {
    made->attributes.copy(call.rank(), old.handle(), old.attributes);
  } catch (...) {
    made->release();
    throw;
  }
  *place = made->handle();
}

// Of MPI-1.
void type_create_hindexed(const Call& call, int count, const int blocklengths[], const MPI_Aint displacements[],
                          TypeHandle& old, MPI_Datatype* place) {
  type_create_hindexed(call, count, Numbers(blocklengths), Numbers(displacements), old, place);
}
void type_create_hvector(const Call& call, int count, int blocklength, MPI_Aint stride, TypeHandle& old,
                         MPI_Datatype* place) {
  type_create_hvector(call, MPI_Count{count}, MPI_Count{blocklength}, MPI_Count{stride}, old, place);
}
void type_create_struct(const Call& call, int count, const int blocklengths[], const MPI_Aint displacements[],
                        const MPI_Datatype types[], MPI_Datatype* place) {
  type_create_struct(call, count, Numbers(blocklengths), Numbers(displacements), types, place);
}

void type_commit(const Call& call, MPI_Datatype* handle) {
  datatype_of(call, "datatype", *handle).is_committed = true;  // its layout was made with it
}

void type_free(const Call& call, MPI_Datatype* handle) {
  TypeHandle& type = own_type(call, *handle);
  type.attributes.clear(call.rank(), type.handle());
  type.release();
  *handle = MPI_DATATYPE_NULL;
}

// ---- What a type says

void type_size(const Call&, TypeHandle& type, MPI_Count* size) {
  const bool is_lacking = is_predefined_type(type) && type.datatype->size() == 0;
  *size = is_lacking ? MPI_UNDEFINED : type.datatype->size();
}
void type_size_x(const Call& call, TypeHandle& type, MPI_Count* size) { type_size(call, type, size); }

void type_get_extent(const Call&, TypeHandle& type, MPI_Count* lb, MPI_Count* extent) {
  *lb = type.datatype->lb();
  *extent = type.datatype->extent();
}
void type_get_extent_x(const Call& call, TypeHandle& type, MPI_Count* lb, MPI_Count* extent) {
  type_get_extent(call, type, lb, extent);
}

void type_get_true_extent(const Call&, TypeHandle& type, MPI_Count* lb, MPI_Count* extent) {
  *lb = type.datatype->true_lb();
  *extent = type.datatype->true_extent();
}
void type_get_true_extent_x(const Call& call, TypeHandle& type, MPI_Count* lb, MPI_Count* extent) {
  type_get_true_extent(call, type, lb, extent);
}

void type_extent(const Call&, TypeHandle& type, MPI_Aint* extent) { *extent = type.datatype->extent(); }
void type_lb(const Call&, TypeHandle& type, MPI_Aint* displacement) { *displacement = type.datatype->lb(); }
void type_ub(const Call&, TypeHandle& type, MPI_Aint* displacement) { *displacement = type.datatype->ub(); }

void type_get_envelope(const Call& call, TypeHandle& type, MPI_Count* integers, MPI_Count* addresses,
                       MPI_Count* large_counts, MPI_Count* types, int* combiner) {
  const Contents& contents = type.datatype->contents();
  if (!call.is_large() && !contents.large_counts.empty())
    fail(MPI_ERR_TYPE, "the datatype was made with MPI_Count; ask MPI_Type_get_envelope_c");
  *integers = static_cast<MPI_Count>(contents.integers.size());
  *addresses = static_cast<MPI_Count>(contents.addresses.size());
  *large_counts = static_cast<MPI_Count>(contents.large_counts.size());
  *types = static_cast<MPI_Count>(contents.types.size());
  *combiner = static_cast<int>(contents.combiner);
}

namespace {

template <class T>
void give_all(const std::vector<T>& values, const char* what, MPI_Count room, T* places) {
  if (room < static_cast<MPI_Count>(values.size()))
    fail(MPI_ERR_ARG, fmt::format("max_{} is {}; the datatype has {}", what, room, values.size()));
  if (places == nullptr && !values.empty()) fail_null(what);
  std::copy(values.begin(), values.end(), places);
}

}  // namespace

void type_get_contents(const Call& call, TypeHandle& type, MPI_Count max_integers, MPI_Count max_addresses,
                       MPI_Count max_large_counts, MPI_Count max_datatypes, int integers[], MPI_Aint addresses[],
                       MPI_Count large_counts[], MPI_Datatype datatypes[]) {
  const Contents& contents = type.datatype->contents();
  if (contents.combiner == Combiner::named)
    fail(MPI_ERR_TYPE, fmt::format("datatype is {}, which is predefined and has no contents", type.name));
  if (!call.is_large() && !contents.large_counts.empty())
    fail(MPI_ERR_TYPE, "the datatype was made with MPI_Count; ask MPI_Type_get_contents_c");
  give_all(contents.integers, "integers", max_integers, integers);
  give_all(contents.addresses, "addresses", max_addresses, addresses);
  give_all(contents.large_counts, "large_counts", max_large_counts, large_counts);
  if (max_datatypes < static_cast<MPI_Count>(contents.types.size()))
    fail(MPI_ERR_ARG, fmt::format("max_datatypes is {}; the datatype has {}", max_datatypes, contents.types.size()));
  for (std::size_t i = 0; i < contents.types.size(); ++i) {
    const DatatypePtr& inner = contents.types[i];
    if (inner->is_named()) {
      datatypes[i] = handle_of_code(inner->code());
    } else if (inner->code() != BasicType::null) {
      datatypes[i] = f90_type(call, inner->contents().combiner, inner->contents().integers, inner->code());
    } else {
      give(call, inner, &datatypes[i], true);
    }
  }
}

void type_get_name(const Call& call, MPI_Datatype handle, char* name, int* length) {
  const bool is_null = handle == MPI_DATATYPE_NULL;  // has a name, too
  give_string(is_null ? "MPI_DATATYPE_NULL" : datatype_of(call, "datatype", handle).name, name, MPI_MAX_OBJECT_NAME,
              length);
}

void type_set_name(const Call&, TypeHandle& type, const char* name) {
  type.name.assign(name, ::strnlen(name, MPI_MAX_OBJECT_NAME - 1));
}

void type_set_attr(const Call& call, TypeHandle& type, int keyval, void* value) {
  type.attributes.set(call.rank(), ObjectKind::datatype, type.handle(), keyval, value);
}

void type_delete_attr(const Call& call, TypeHandle& type, int keyval) {
  type.attributes.remove(call.rank(), ObjectKind::datatype, type.handle(), keyval);
}

void type_get_attr(const Call& call, TypeHandle& type, int keyval, void* place, int* flag) {
  check_place(call, "attribute_val", place);
  call.rank().keyvals.find(keyval, ObjectKind::datatype);
  void* const* const found = type.attributes.find(keyval);
  *flag = found != nullptr ? 1 : 0;
  if (found != nullptr) *static_cast<void**>(place) = *found;
}

void type_match_size(const Call&, int typeclass, int size, MPI_Datatype* place) {
  constexpr std::pair<int, Kind> classes[] = {{MPI_TYPECLASS_INTEGER, Kind::integer},
                                              {MPI_TYPECLASS_REAL, Kind::floating},
                                              {MPI_TYPECLASS_COMPLEX, Kind::complex}};
  const auto* const found =
      std::find_if(std::begin(classes), std::end(classes), [&](const auto& entry) { return entry.first == typeclass; });
  if (found == std::end(classes)) {
    fail(MPI_ERR_ARG, fmt::format("typeclass is {}; it must be MPI_TYPECLASS_REAL, MPI_TYPECLASS_INTEGER or "
                                  "MPI_TYPECLASS_COMPLEX",
                                  typeclass));
  }
  for (int code = 0xc0; code <= 0xff; ++code) {  // the types of Fortran with a size in their names
    const BasicInfo& info = basic_info(static_cast<BasicType>(code));
    if (info.kind == found->second && info.size == size) {
      *place = handle_of_code(static_cast<BasicType>(code));
      return;
    }
  }
  fail(MPI_ERR_ARG, fmt::format("size is {}; Fortran has no type of this class with as many bytes", size));
}

void type_get_value_index(const Call&, TypeHandle& value, TypeHandle& index, MPI_Datatype* place) {
  *place = MPI_DATATYPE_NULL;
  for (int code = 0x28; code <= 0x32; ++code) {
    const BasicInfo& info = basic_info(static_cast<BasicType>(code));
    if (info.kind == Kind::pair && info.value == value.datatype->code() && info.index == index.datatype->code()) {
      *place = handle_of_code(static_cast<BasicType>(code));
    }
  }
}

// ---- Packing

namespace {

/// The place in a program's buffer of packed data at `position`, from which `bytes` are free.
char* packed_place(const char* parameter, const void* buffer, MPI_Count size, MPI_Count position, MPI_Count bytes) {
  if (position < 0 || position > size)
    fail(MPI_ERR_ARG, fmt::format("position is {}; it must be 0..{}, the size of {}", position, size, parameter));
  if (bytes > size - position) {
    fail(MPI_ERR_TRUNCATE, fmt::format("{} has {} bytes from position {} on; the data have {}", parameter,
                                       size - position, position, bytes));
  }
  if (reinterpret_cast<std::uintptr_t>(buffer) <= in_place_value && bytes > 0) fail_buffer(parameter, buffer);
  return static_cast<char*>(const_cast<void*>(buffer)) + position;
}

/// The bytes of `count` elements in the representation external32.
MPI_Count external_bytes(const char* datarep, MPI_Count count, const TypeHandle& type) {
  if (std::strcmp(datarep, "external32") != 0)
    fail(MPI_ERR_ARG, fmt::format("datarep is \"{}\"; it must be \"external32\"", datarep));
  MPI_Count bytes = 0;
  if (__builtin_mul_overflow(part(type)->signature().external_bytes(), count, &bytes))
    fail(MPI_ERR_COUNT, fmt::format("the size of {} elements does not fit into 64 bits", count));
  return bytes;
}

}  // namespace

void pack_size(const Call&, MPI_Count count, TypeHandle& type, Comm&, MPI_Count* size) {
  if (__builtin_mul_overflow(part(type)->size(), count, size))
    fail(MPI_ERR_COUNT, fmt::format("the size of {} elements does not fit into 64 bits", count));
}

void pack(const Call&, const void* inbuf, MPI_Count count, TypeHandle& type, void* outbuf, MPI_Count outsize,
          MPI_Count* position, Comm&) {
  const Elements elements = elements_at("inbuf", inbuf, count, *committed("datatype", type));
  pack(packed_place("outbuf", outbuf, outsize, *position, elements.bytes()), elements, 0, elements.bytes());
  *position += elements.bytes();
}

void unpack(const Call&, const void* inbuf, MPI_Count insize, MPI_Count* position, void* outbuf, MPI_Count count,
            TypeHandle& type, Comm&) {
  const Elements elements = elements_at("outbuf", outbuf, count, *committed("datatype", type));
  unpack(elements, packed_place("inbuf", inbuf, insize, *position, elements.bytes()), 0, elements.bytes());
  *position += elements.bytes();
}

void pack_external_size(const Call&, const char* datarep, MPI_Count count, TypeHandle& type, MPI_Count* size) {
  *size = external_bytes(datarep, count, type);
}

void pack_external(const Call&, const char* datarep, const void* inbuf, MPI_Count count, TypeHandle& type, void* outbuf,
                   MPI_Count outsize, MPI_Count* position) {
  const Datatype& datatype = *committed("datatype", type);
  const MPI_Count bytes = external_bytes(datarep, count, type);
  const Elements elements = elements_at("inbuf", inbuf, count, datatype);
  pack_external(packed_place("outbuf", outbuf, outsize, *position, bytes), elements, datatype.shared_signature());
  *position += bytes;
}

void unpack_external(const Call&, const char* datarep, const void* inbuf, MPI_Count insize, MPI_Count* position,
                     void* outbuf, MPI_Count count, TypeHandle& type) {
  const Datatype& datatype = *committed("datatype", type);
  const MPI_Count bytes = external_bytes(datarep, count, type);
  const Elements elements = elements_at("outbuf", outbuf, count, datatype);
  unpack_external(elements, packed_place("inbuf", inbuf, insize, *position, bytes), datatype.shared_signature());
  *position += bytes;
}

}  // namespace aplib::mpi
