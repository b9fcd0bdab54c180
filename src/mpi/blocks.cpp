// SPDX-License-Identifier: MIT
#include "mpi/blocks.hpp"

#include <fmt/format.h>

namespace aplib::mpi {

TypeHandle& travelling(const Call& call, const char* parameter, MPI_Datatype handle) {
  TypeHandle& type = datatype_of(call, parameter, handle);
  static_cast<void>(committed(parameter, type));
  call.keep(type);
  return type;
}

Elements sent_elements(const Call& call, const char* buffer_name, const void* buffer, const char* count_name,
                       MPI_Count count, const char* type_name, MPI_Datatype handle) {
  TypeHandle& type = travelling(call, type_name, handle);
  check_count(call, count_name, count);
  return buffer_elements(buffer_name, buffer, count, type);
}

Blocks::Blocks(const Call& call, const char* buffer_name, const void* buffer, const char* counts_name, Numbers counts,
               const char* places_name, Numbers displacements, const char* types_name, const MPI_Datatype* types,
               int size)
    : first_(bytes_at(buffer, 0)),
      name_(buffer_name),
      counts_(call.kept(counts, size)),
      places_(call.kept(displacements, size)),
      call_(&call),
      types_name_(types_name),
      types_(types) {
  if (types == nullptr && size > 0) fail_null(types_name);
  if (buffer == MPI_IN_PLACE) fail_buffer(name_, buffer);
  check(counts_name, places_name, size);
  for (int i = 0; i < size && call.pending() != nullptr; ++i) {
    if (!has_no_type(static_cast<std::size_t>(i))) call.keep(datatype_of(call, types_name, types[i]));
  }
}

bool Blocks::show(Meeting& meeting) const {
  if (counts_.is_null()) return meeting.show_blocks(first_);
  meeting.show(Given{.block = [](const void* blocks, int rank) { return (*static_cast<const Blocks*>(blocks))[rank]; },
                     .blocks = this});
  return false;
}

Elements Blocks::operator[](int rank) const {
  const auto i = static_cast<std::size_t>(rank);
  if (counts_.is_null()) return part_of(first_, first_.count * rank, first_.count);
  if (types_ == nullptr)
    return elements_at(name_, moved(first_.address, bytes_of(places_[i], first_.extent)), counts_[i], *type_->datatype);
  if (has_no_type(i)) return bytes_at(first_.address, 0);
  return elements_at(name_, moved(first_.address, places_[i]), counts_[i],
                     *committed(types_name_, datatype_of(*call_, types_name_, types_[i])));
}

// All errors come before the first message.
void Blocks::check(const char* counts_name, const char* places_name, int size) const {
  if (size == 0) return;
  if (counts_.is_null()) fail_null(counts_name);
  if (places_.is_null()) fail_null(places_name);
  for (int i = 0; i < size; ++i) {
    const MPI_Count count = counts_[static_cast<std::size_t>(i)];
    if (count < 0) fail_count(fmt::format("{}[{}]", counts_name, i).c_str(), count);
    static_cast<void>((*this)[i]);
  }
}

}  // namespace aplib::mpi
