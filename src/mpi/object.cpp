// SPDX-License-Identifier: MIT
#include "mpi/object.hpp"

#include <fmt/format.h>

#include "mpi/rank.hpp"

namespace aplib::mpi {

Object::Object(Rank& rank, ObjectKind kind) : kind_(kind), rank_(rank), next_(rank.objects_) {
  if (next_ != nullptr) next_->previous_ = this;
  rank.objects_ = this;
}

Object::~Object() {
  retire();
  (previous_ != nullptr ? previous_->next_ : rank_.objects_) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
}

void Object::retire() noexcept {
  if (number_ != 0) rank_.forget_number(*this);
  kind_ = ObjectKind::none;
}

void Object::let_go(Object& held) const noexcept {
  if (!rank_.ending_) held.release();
}

void fail_handle(int error_class, const char* parameter, std::uintptr_t handle, const char* wanted) {
  std::string text;
  for (const Name* known = predefined_handles; known->name != nullptr; ++known) {
    if (handle == static_cast<std::uintptr_t>(known->value)) text = known->name;
  }
  if (text.empty()) text = fmt::format("{:#x}", handle);
  const bool is_null = text.ends_with("_NULL");
  fail(error_class, fmt::format("{} is {}, {} {}; {}", parameter, text, is_null ? "which is not" : "not", wanted,
                                is_null ? "give one that was made and not freed"
                                        : "it was freed, or belongs to another kind of object, cell or MPI"));
}

}  // namespace aplib::mpi
