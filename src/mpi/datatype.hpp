// SPDX-License-Identifier: MIT
// Datatypes of MPI: what they were made of, how large they are, and where their bytes lie.
//
// A datatype never changes. So every task, cell and processor may read it and keep it, and a receiver may copy with the
// sender's. What belongs to a handle (whether it is committed, its name, its attributes) is not here.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "mpi/basic_type.hpp"
#include "mpi/layout.hpp"
#include "mpi/signature.hpp"

namespace aplib::mpi {

class Datatype;
using DatatypePtr = std::shared_ptr<const Datatype>;

/// The values of MPI_COMBINER_*.
enum class Combiner : int {
  named = 101,
  dup = 102,
  contiguous = 103,
  vector = 104,
  hvector = 105,
  indexed = 106,
  hindexed = 107,
  indexed_block = 108,
  hindexed_block = 109,
  structure = 110,
  subarray = 111,
  darray = 112,
  f90_real = 113,
  f90_complex = 114,
  f90_integer = 115,
  resized = 116,
};

/// The values of MPI_ORDER_* and MPI_DISTRIBUTE_*.
inline constexpr int order_c = 12;
inline constexpr int order_fortran = 15;
inline constexpr int distribute_none = 16;
inline constexpr int distribute_block = 17;
inline constexpr int distribute_cyclic = 18;
inline constexpr int distribute_default = 19;

/// Which function makes a datatype: MPI_X, whose contents are int and MPI_Aint, or MPI_X_c, whose are MPI_Count.
enum class Form : bool { small, large };

/// What MPI_Type_get_envelope and MPI_Type_get_contents tell: the constructor and its arguments.
struct Contents {
  Combiner combiner = Combiner::named;
  std::vector<int> integers{};
  std::vector<Count> addresses{};
  std::vector<Count> large_counts{};
  std::vector<DatatypePtr> types{};
};

/// The constructors throw DatatypeError for arguments that MPI forbids, and for what does not fit into 64 bits.
/// Numbers are bytes where the standard says so, otherwise elements.
class Datatype {
 public:
  /// The same object for every call. A code without a type, or with one that this machine lacks, is without bytes.
  [[nodiscard]] static const DatatypePtr& named(BasicType type);
  [[nodiscard]] static DatatypePtr dup(const DatatypePtr& old);
  [[nodiscard]] static DatatypePtr contiguous(Count count, const DatatypePtr& old, Form form = Form::small);
  [[nodiscard]] static DatatypePtr vector(Count count, Count blocklength, Count stride, const DatatypePtr& old,
                                          Form form = Form::small);
  [[nodiscard]] static DatatypePtr hvector(Count count, Count blocklength, Count stride, const DatatypePtr& old,
                                           Form form = Form::small);
  /// The spans of each call have the same length, MPI's `count` or `ndims`.
  [[nodiscard]] static DatatypePtr indexed(std::span<const Count> blocklengths, std::span<const Count> displacements,
                                           const DatatypePtr& old, Form form = Form::small);
  [[nodiscard]] static DatatypePtr hindexed(std::span<const Count> blocklengths, std::span<const Count> displacements,
                                            const DatatypePtr& old, Form form = Form::small);
  [[nodiscard]] static DatatypePtr indexed_block(Count blocklength, std::span<const Count> displacements,
                                                 const DatatypePtr& old, Form form = Form::small);
  [[nodiscard]] static DatatypePtr hindexed_block(Count blocklength, std::span<const Count> displacements,
                                                  const DatatypePtr& old, Form form = Form::small);
  [[nodiscard]] static DatatypePtr structure(std::span<const Count> blocklengths, std::span<const Count> displacements,
                                             std::span<const DatatypePtr> types, Form form = Form::small);
  [[nodiscard]] static DatatypePtr subarray(std::span<const Count> sizes, std::span<const Count> subsizes,
                                            std::span<const Count> starts, int order, const DatatypePtr& old,
                                            Form form = Form::small);
  /// The share of process `rank` of `size` in an array that is distributed over a grid of processes.
  struct Distribution {
    int size;
    int rank;
    std::span<const Count> gsizes;
    std::span<const int> distribs;
    std::span<const int> dargs;
    std::span<const int> psizes;
    int order;
  };
  [[nodiscard]] static DatatypePtr darray(const Distribution& distribution, const DatatypePtr& old,
                                          Form form = Form::small);
  [[nodiscard]] static DatatypePtr resized(const DatatypePtr& old, Count lb, Count extent, Form form = Form::small);

  /// A basic type that Fortran chose by precision and range: those are its contents.
  [[nodiscard]] static DatatypePtr f90(Combiner combiner, std::span<const int> chosen, BasicType type);

  Datatype(const Datatype&) = delete;
  Datatype& operator=(const Datatype&) = delete;
  ~Datatype();

  [[nodiscard]] Count size() const noexcept { return layout_->bytes(); }
  [[nodiscard]] Count lb() const noexcept { return lb_; }
  [[nodiscard]] Count ub() const noexcept { return ub_; }
  [[nodiscard]] Count extent() const noexcept { return ub_ - lb_; }
  [[nodiscard]] Count true_lb() const noexcept { return layout_->lower(); }
  [[nodiscard]] Count true_extent() const noexcept { return layout_->upper() - layout_->lower(); }
  [[nodiscard]] Count alignment() const noexcept { return alignment_; }

  [[nodiscard]] const Contents& contents() const noexcept { return contents_; }
  /// Of a predefined one its code; null of others.
  [[nodiscard]] BasicType code() const noexcept { return code_; }
  /// It has a handle of the standard.
  [[nodiscard]] bool is_named() const noexcept {
    return code_ != BasicType::null && contents_.combiner == Combiner::named;
  }
  [[nodiscard]] const Layout& layout() const noexcept { return *layout_; }
  [[nodiscard]] const Signature& signature() const noexcept { return *signature_; }
  [[nodiscard]] const LayoutPtr& shared_layout() const noexcept { return layout_; }
  [[nodiscard]] const SignaturePtr& shared_signature() const noexcept { return signature_; }

  /// The memory of `count` elements at `address`; null for MPI_BOTTOM. Nothing if their bytes do not fit into 64 bits.
  [[nodiscard]] std::optional<Elements> elements(const void* address, Count count) const noexcept;

 private:
  friend class DatatypeDraft;

  Datatype() = default;

  Contents contents_;
  LayoutPtr layout_;
  SignaturePtr signature_;
  Count lb_ = 0;
  Count ub_ = 0;
  Count alignment_ = 1;
  bool is_marked_ = false;  // its bounds are set, not those of its bytes, as in whatever contains it
  BasicType code_ = BasicType::null;
};

/// Whether a message of `elements` elements with `digest` may be received as `count` elements of `type`: the basic
/// types are the same, in the same order, as far as the message goes. MPI_PACKED matches everything.
struct SentSignature {
  Count elements;
  Digest digest;
  bool is_packed;

  [[nodiscard]] static SentSignature of(const Datatype& type, Count count);
  [[nodiscard]] bool matches(const Datatype& type, Count count) const;
};

/// The representation external32 of `count` elements. `external` has room for their external_bytes().
void pack_external(void* external, const Elements& from, const SignaturePtr& signature);
void unpack_external(const Elements& to, const void* external, const SignaturePtr& signature);

}  // namespace aplib::mpi
