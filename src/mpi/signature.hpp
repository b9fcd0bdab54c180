// SPDX-License-Identifier: MIT
// The sequence of basic types that a datatype sends, without their places: what sender and receiver must agree on, what
// MPI_Get_elements counts, and what a conversion to another representation goes through.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "mpi/basic_type.hpp"
#include "mpi/layout.hpp"

namespace aplib::mpi {

/// A hash of a sequence, however it was put together. Equal sequences have equal ones; others nearly always differ.
struct Digest {
  std::uint64_t value = 0;
  std::uint64_t power = 1;  ///< Of the base, by the length.

  [[nodiscard]] Digest then(const Digest& next) const noexcept;
  [[nodiscard]] Digest times(Count count) const noexcept;
  friend bool operator==(const Digest&, const Digest&) = default;
};

class Signature;
using SignaturePtr = std::shared_ptr<const Signature>;

/// Immutable. Its elements are basic types that are not pairs.
class Signature {
 public:
  /// `count` times `type`. A pair is two elements.
  [[nodiscard]] static SignaturePtr of(BasicType type);
  /// Throws DatatypeError if the elements cannot be counted in 64 bits.
  [[nodiscard]] static SignaturePtr repeat(const SignaturePtr& signature, Count count);

  [[nodiscard]] Count elements() const noexcept { return elements_; }
  [[nodiscard]] Count bytes() const noexcept { return bytes_; }
  /// In the representation external32.
  [[nodiscard]] Count external_bytes() const noexcept { return external_bytes_; }
  [[nodiscard]] const Digest& digest() const noexcept { return digest_; }
  /// Of the first elements, of as many copies of this as they fill.
  [[nodiscard]] Digest digest_of_first(Count elements) const noexcept;
  /// The type of all elements, if they have one; none without elements.
  [[nodiscard]] std::optional<BasicType> only_type() const noexcept;

  /// How many whole elements the first `bytes` bytes hold, of as many copies of this as they fill. Nothing if the last
  /// one is not whole.
  [[nodiscard]] std::optional<Count> elements_in(Count bytes) const noexcept;
  /// The bytes of the first `elements` elements.
  [[nodiscard]] Count bytes_of_first(Count elements) const noexcept;

  /// Calls visit(type, count) for each stretch of equal elements, in order.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const Item& item : items_) {
      if (item.body == nullptr) {
        visit(item.type, item.count);
      } else {
        for (Count i = 0; i < item.count; ++i) item.body->for_each(visit);
      }
    }
  }

 private:
  friend class SignatureBuilder;

  // `count` elements of one type, or copies of a body.
  struct Item {
    BasicType type = BasicType::null;
    Count count = 0;
    SignaturePtr body;
    Count elements_before = 0;
    Count bytes_before = 0;

    [[nodiscard]] Count unit_elements() const noexcept { return body != nullptr ? body->elements_ : 1; }
    [[nodiscard]] Count unit_bytes() const noexcept { return body != nullptr ? body->bytes_ : basic_info(type).size; }
  };

  std::vector<Item> items_;
  Count elements_ = 0;
  Count bytes_ = 0;
  Count external_bytes_ = 0;
  int depth_ = 1;
  Digest digest_;
};

/// Puts signatures one behind the other.
class SignatureBuilder {
 public:
  /// Throws DatatypeError if the elements cannot be counted in 64 bits, or nest too deep.
  void add(const SignaturePtr& signature, Count count = 1);
  [[nodiscard]] SignaturePtr finish();

 private:
  friend class Signature;

  void append(BasicType type, Count count, const SignaturePtr& body);

  std::shared_ptr<Signature> made_ = std::make_shared<Signature>();
};

}  // namespace aplib::mpi
