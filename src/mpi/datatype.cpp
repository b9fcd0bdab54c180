// SPDX-License-Identifier: MIT
#include "mpi/datatype.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

namespace aplib::mpi {

namespace {

__extension__ typedef __int128 WideCount;

Count fitting(WideCount value, const char* what) {
  if (value < std::numeric_limits<Count>::min() || value > std::numeric_limits<Count>::max()) {
    throw DatatypeError(DatatypeError::count, std::string(what) + " of the datatype does not fit into 64 bits");
  }
  return static_cast<Count>(value);
}

void check_count(Count count, const char* what) {
  if (count >= 0) return;
  throw DatatypeError(DatatypeError::count,
                      std::string(what) + " is " + std::to_string(count) + "; it must be 0 or more");
}

void check_each(std::span<const Count> values, const char* what) {
  const auto bad = std::find_if(values.begin(), values.end(), [](Count value) { return value < 0; });
  if (bad == values.end()) return;
  throw DatatypeError(DatatypeError::count, std::string(what) + "[" + std::to_string(bad - values.begin()) + "] is " +
                                                std::to_string(*bad) + "; it must be 0 or more");
}

[[noreturn]] void refuse(const char* array, std::size_t i, Count value, const std::string& allowed) {
  throw DatatypeError(DatatypeError::argument, std::string(array) + "[" + std::to_string(i) + "] is " +
                                                   std::to_string(value) + "; it must be " + allowed);
}

std::string range(Count first, Count last) { return std::to_string(first) + ".." + std::to_string(last); }

// The arguments of a constructor in the order of MPI_Type_get_contents.
class ContentsOf {
 public:
  ContentsOf(Combiner combiner, Form form) : form_(form) { contents_.combiner = combiner; }

  // What is int, or MPI_Count in the large form.
  ContentsOf& counts(std::span<const Count> values) {
    if (form_ == Form::large) {
      contents_.large_counts.insert(contents_.large_counts.end(), values.begin(), values.end());
    } else {
      for (const Count value : values) contents_.integers.push_back(static_cast<int>(value));
    }
    return *this;
  }
  ContentsOf& count(Count value) { return counts({&value, 1}); }
  // What is MPI_Aint, or MPI_Count in the large form.
  ContentsOf& addresses(std::span<const Count> values) {
    std::vector<Count>& place = form_ == Form::large ? contents_.large_counts : contents_.addresses;
    place.insert(place.end(), values.begin(), values.end());
    return *this;
  }
  ContentsOf& address(Count value) { return addresses({&value, 1}); }
  // What is int in either form.
  ContentsOf& integers(std::span<const int> values) {
    contents_.integers.insert(contents_.integers.end(), values.begin(), values.end());
    return *this;
  }
  ContentsOf& integer(int value) { return integers({&value, 1}); }
  Contents of(std::span<const DatatypePtr> types) {
    contents_.types.assign(types.begin(), types.end());
    return std::move(contents_);
  }
  Contents of(const DatatypePtr& type) { return of({&type, 1}); }

 private:
  Form form_;
  Contents contents_;
};

}  // namespace

// ---- DatatypeDraft

// A datatype in the making: what its type map holds, in order.
class DatatypeDraft {
 public:
  // `count` blocks, `stride` bytes apart, of `blocklength` elements of `old` each; the first one at `displacement`.
  void add(const Datatype& old, Count displacement, Count blocklength, Count count = 1, Count stride = 0) {
    if (blocklength == 0 || count == 0 || (old.size() == 0 && !old.is_marked_)) return;
    alignment_ = std::max(alignment_, old.alignment_);
    signature_.add(old.signature_, fitting(WideCount{blocklength} * count, "the number of elements"));
    if (count == 1) {
      layout_.add(old.layout_, displacement, blocklength, old.extent());
    } else {
      layout_.add(LayoutBuilder::repeat(old.layout_, blocklength, old.extent()), displacement, count, stride);
    }
    const WideCount block_end = WideCount{blocklength - 1} * old.extent();
    const WideCount last = WideCount{count - 1} * stride;
    bound(displacement + old.lb_ + std::min<WideCount>(block_end, 0) + std::min<WideCount>(last, 0),
          displacement + old.ub_ + std::max<WideCount>(block_end, 0) + std::max<WideCount>(last, 0), old.is_marked_);
  }
  void add_layout(const LayoutPtr& layout, const SignaturePtr& signature, Count copies) {
    layout_.add(layout, 0);
    signature_.add(signature, copies);
  }
  void add_basic(BasicType type, Count displacement) {
    const BasicInfo& info = basic_info(type);
    layout_.add_block(displacement, info.size);
    signature_.add(Signature::of(type));
    alignment_ = std::max<Count>(alignment_, info.alignment);
    bound(displacement, WideCount{displacement} + info.size, false);
  }

  // The bounds are these, or those of all marks together, instead of those of the parts.
  void mark(WideCount lower, WideCount upper) { bound(lower, upper, true); }
  void align(Count alignment) { alignment_ = std::max(alignment_, alignment); }
  // Of a structure: its end is where the next one of an array may begin, unless bounds are set.
  void pad() {
    if (!is_marked_) upper_ = lower_ + (upper_ - lower_ + alignment_ - 1) / alignment_ * alignment_;
  }

  DatatypePtr finish(Contents contents, BasicType code = BasicType::null) {
    const std::shared_ptr<Datatype> made(new Datatype);
    made->contents_ = std::move(contents);
    made->layout_ = layout_.finish();
    made->signature_ = signature_.finish();
    made->lb_ = fitting(lower_, "the lower bound");
    made->ub_ = fitting(upper_, "the upper bound");
    fitting(upper_ - lower_, "the extent");
    made->alignment_ = alignment_;
    made->is_marked_ = is_marked_;
    made->code_ = code;
    return made;
  }

 private:
  // Those of all parts, or of those alone that are marked.
  void bound(WideCount lower, WideCount upper, bool is_mark) {
    if (is_marked_ && !is_mark) return;
    const bool is_first = !is_bound_ || is_marked_ != is_mark;
    lower_ = is_first ? lower : std::min(lower_, lower);
    upper_ = is_first ? upper : std::max(upper_, upper);
    is_bound_ = true;
    is_marked_ = is_mark;
  }

  LayoutBuilder layout_;
  SignatureBuilder signature_;
  Count alignment_ = 1;
  bool is_bound_ = false;
  bool is_marked_ = false;
  WideCount lower_ = 0;
  WideCount upper_ = 0;
};

// ---- Constructors

const DatatypePtr& Datatype::named(BasicType type) {
  static const auto all = [] {
    std::array<DatatypePtr, 256> made;
    for (std::size_t code = 0; code < made.size(); ++code) {
      const auto basic = static_cast<BasicType>(code);
      const BasicInfo& info = basic_info(basic);
      DatatypeDraft draft;
      if (info.kind == Kind::pair) {
        const BasicInfo& value = basic_info(info.value);
        const Count alignment = basic_info(info.index).alignment;
        draft.add_basic(info.value, 0);
        draft.add_basic(info.index, (value.size + alignment - 1) / alignment * alignment);
        draft.pad();
      } else {
        draft.add_basic(basic, 0);
      }
      made[code] = draft.finish(Contents{}, basic);
    }
    return made;
  }();
  return all[static_cast<std::size_t>(type)];
}

DatatypePtr Datatype::dup(const DatatypePtr& old) {
  DatatypeDraft draft;
  draft.add(*old, 0, 1);
  return draft.finish(ContentsOf(Combiner::dup, Form::small).of(old));
}

DatatypePtr Datatype::contiguous(Count count, const DatatypePtr& old, Form form) {
  check_count(count, "count");
  DatatypeDraft draft;
  draft.add(*old, 0, count);
  return draft.finish(ContentsOf(Combiner::contiguous, form).count(count).of(old));
}

DatatypePtr Datatype::vector(Count count, Count blocklength, Count stride, const DatatypePtr& old, Form form) {
  check_count(count, "count");
  check_count(blocklength, "blocklength");
  DatatypeDraft draft;
  draft.add(*old, 0, blocklength, count, fitting(WideCount{stride} * old->extent(), "the stride"));
  return draft.finish(ContentsOf(Combiner::vector, form).count(count).count(blocklength).count(stride).of(old));
}

DatatypePtr Datatype::hvector(Count count, Count blocklength, Count stride, const DatatypePtr& old, Form form) {
  check_count(count, "count");
  check_count(blocklength, "blocklength");
  DatatypeDraft draft;
  draft.add(*old, 0, blocklength, count, stride);
  return draft.finish(ContentsOf(Combiner::hvector, form).count(count).count(blocklength).address(stride).of(old));
}

DatatypePtr Datatype::indexed(std::span<const Count> blocklengths, std::span<const Count> displacements,
                              const DatatypePtr& old, Form form) {
  check_each(blocklengths, "blocklengths");
  DatatypeDraft draft;
  for (std::size_t i = 0; i < blocklengths.size(); ++i) {
    draft.add(*old, fitting(WideCount{displacements[i]} * old->extent(), "a displacement"), blocklengths[i]);
  }
  return draft.finish(ContentsOf(Combiner::indexed, form)
                          .count(static_cast<Count>(blocklengths.size()))
                          .counts(blocklengths)
                          .counts(displacements)
                          .of(old));
}

DatatypePtr Datatype::hindexed(std::span<const Count> blocklengths, std::span<const Count> displacements,
                               const DatatypePtr& old, Form form) {
  check_each(blocklengths, "blocklengths");
  DatatypeDraft draft;
  for (std::size_t i = 0; i < blocklengths.size(); ++i) draft.add(*old, displacements[i], blocklengths[i]);
  return draft.finish(ContentsOf(Combiner::hindexed, form)
                          .count(static_cast<Count>(blocklengths.size()))
                          .counts(blocklengths)
                          .addresses(displacements)
                          .of(old));
}

DatatypePtr Datatype::indexed_block(Count blocklength, std::span<const Count> displacements, const DatatypePtr& old,
                                    Form form) {
  check_count(blocklength, "blocklength");
  DatatypeDraft draft;
  for (const Count displacement : displacements) {
    draft.add(*old, fitting(WideCount{displacement} * old->extent(), "a displacement"), blocklength);
  }
  return draft.finish(ContentsOf(Combiner::indexed_block, form)
                          .count(static_cast<Count>(displacements.size()))
                          .count(blocklength)
                          .counts(displacements)
                          .of(old));
}

DatatypePtr Datatype::hindexed_block(Count blocklength, std::span<const Count> displacements, const DatatypePtr& old,
                                     Form form) {
  check_count(blocklength, "blocklength");
  DatatypeDraft draft;
  for (const Count displacement : displacements) draft.add(*old, displacement, blocklength);
  return draft.finish(ContentsOf(Combiner::hindexed_block, form)
                          .count(static_cast<Count>(displacements.size()))
                          .count(blocklength)
                          .addresses(displacements)
                          .of(old));
}

DatatypePtr Datatype::structure(std::span<const Count> blocklengths, std::span<const Count> displacements,
                                std::span<const DatatypePtr> types, Form form) {
  check_each(blocklengths, "blocklengths");
  DatatypeDraft draft;
  for (std::size_t i = 0; i < types.size(); ++i) draft.add(*types[i], displacements[i], blocklengths[i]);
  draft.pad();
  return draft.finish(ContentsOf(Combiner::structure, form)
                          .count(static_cast<Count>(types.size()))
                          .counts(blocklengths)
                          .addresses(displacements)
                          .of(types));
}

DatatypePtr Datatype::resized(const DatatypePtr& old, Count lb, Count extent, Form form) {
  DatatypeDraft draft;
  draft.add_layout(old->layout_, old->signature_, 1);
  draft.align(old->alignment_);
  draft.mark(lb, WideCount{lb} + extent);
  return draft.finish(ContentsOf(Combiner::resized, form).address(lb).address(extent).of(old));
}

DatatypePtr Datatype::f90(Combiner combiner, std::span<const int> chosen, BasicType type) {
  DatatypeDraft draft;
  draft.add_basic(type, 0);
  return draft.finish(ContentsOf(combiner, Form::small).integers(chosen).of(std::span<const DatatypePtr>{}), type);
}

// ---- Arrays

namespace {

// Of the indices of one dimension: `count` stretches, `distance` apart, of `length` indices each.
struct Stretches {
  Count first;
  Count length;
  Count count = 1;
  Count distance = 0;
};

struct Dimension {
  Count size;
  std::vector<Stretches> taken{};
};

// The elements of an array whose indices are taken in all dimensions; the dimension that varies fastest is the first.
DatatypePtr part_of_array(std::span<const Dimension> dimensions, const DatatypePtr& old, Contents contents) {
  LayoutPtr layout = old->shared_layout();
  WideCount step = old->extent();
  WideCount elements = 1;
  for (const Dimension& dimension : dimensions) {
    LayoutBuilder builder;
    Count taken = 0;
    for (const Stretches& stretches : dimension.taken) {
      const LayoutPtr one = LayoutBuilder::repeat(layout, stretches.length, fitting(step, "the extent"));
      builder.add(one, fitting(stretches.first * step, "a displacement"), stretches.count,
                  fitting(stretches.distance * step, "a stride"));
      taken += stretches.length * stretches.count;
    }
    layout = builder.finish();
    elements = fitting(elements * taken, "the number of elements");
    step = fitting(step * dimension.size, "the extent");
  }
  DatatypeDraft draft;
  draft.add_layout(layout, old->shared_signature(), static_cast<Count>(elements));
  draft.align(old->alignment());
  draft.mark(0, step);
  return draft.finish(std::move(contents));
}

void check_order(int order) {
  if (order == order_c || order == order_fortran) return;
  throw DatatypeError(DatatypeError::argument,
                      "the order is " + std::to_string(order) + "; it must be MPI_ORDER_C or MPI_ORDER_FORTRAN");
}

void check_dimensions(std::size_t count) {
  if (count != 0) return;
  throw DatatypeError(DatatypeError::argument, "the number of dimensions is 0; it must be 1 or more");
}

// What place `place` of `places` has of a dimension.
std::vector<Stretches> share_of_block(Count size, Count block, Count place) {
  const WideCount first = WideCount{place} * block;
  if (first >= size) return {};
  return {Stretches{static_cast<Count>(first), std::min(block, size - static_cast<Count>(first))}};
}

std::vector<Stretches> share_of_cycle(Count size, Count block, Count place, Count places) {
  const WideCount first = WideCount{place} * block;
  const WideCount cycle = WideCount{places} * block;
  std::vector<Stretches> taken;
  const WideCount whole = size - first >= block ? (size - first - block) / cycle + 1 : 0;
  if (whole != 0) {
    taken.push_back(Stretches{static_cast<Count>(first), block, static_cast<Count>(whole),
                              whole == 1 ? 0 : static_cast<Count>(cycle)});
  }
  const WideCount next = first + whole * cycle;
  if (next < size) taken.push_back(Stretches{static_cast<Count>(next), static_cast<Count>(size - next)});
  return taken;
}

std::vector<Stretches> share_of(const Datatype::Distribution& given, std::size_t i, Count place) {
  const Count size = given.gsizes[i];
  const Count places = given.psizes[i];
  Count block = given.dargs[i];
  if (given.distribs[i] == distribute_none) {
    if (places != 1) refuse("psizes", i, places, "1 for MPI_DISTRIBUTE_NONE");
    return {Stretches{0, size}};
  }
  if (given.distribs[i] != distribute_block && given.distribs[i] != distribute_cyclic) {
    refuse("distribs", i, given.distribs[i], "MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC or MPI_DISTRIBUTE_NONE");
  }
  const bool is_block = given.distribs[i] == distribute_block;
  if (block == distribute_default) {
    block = is_block ? (size - 1) / places + 1 : 1;
  } else if (block < 1) {
    refuse("dargs", i, block, "1 or more, or MPI_DISTRIBUTE_DFLT_DARG");
  } else if (is_block && WideCount{block} * places < size) {
    refuse("dargs", i, block,
           "at least " + std::to_string((size - 1) / places + 1) + ", so that " + std::to_string(places) +
               " blocks hold all " + std::to_string(size));
  }
  return is_block ? share_of_block(size, block, place) : share_of_cycle(size, block, place, places);
}

void check_grid(const Datatype::Distribution& given) {
  WideCount places = 1;
  for (std::size_t i = 0; i < given.psizes.size(); ++i) {
    if (given.psizes[i] < 1) refuse("psizes", i, given.psizes[i], "1 or more");
    if (given.gsizes[i] < 1) refuse("gsizes", i, given.gsizes[i], "1 or more");
    places = std::min<WideCount>(places * given.psizes[i], std::numeric_limits<int>::max());
  }
  if (places != given.size) {
    throw DatatypeError(DatatypeError::argument, "the product of psizes is " +
                                                     std::to_string(static_cast<Count>(places)) +
                                                     "; it must be the size, " + std::to_string(given.size));
  }
  if (given.rank < 0 || given.rank >= given.size) {
    throw DatatypeError(DatatypeError::argument,
                        "the rank is " + std::to_string(given.rank) + "; it must be " + range(0, given.size - 1));
  }
}

}  // namespace

DatatypePtr Datatype::subarray(std::span<const Count> sizes, std::span<const Count> subsizes,
                               std::span<const Count> starts, int order, const DatatypePtr& old, Form form) {
  check_dimensions(sizes.size());
  check_order(order);
  std::vector<Dimension> dimensions;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1) refuse("sizes", i, sizes[i], "1 or more");
    if (subsizes[i] < 1 || subsizes[i] > sizes[i]) refuse("subsizes", i, subsizes[i], range(1, sizes[i]));
    if (starts[i] < 0 || starts[i] > sizes[i] - subsizes[i]) {
      refuse("starts", i, starts[i], range(0, sizes[i] - subsizes[i]));
    }
    dimensions.push_back(Dimension{sizes[i], {Stretches{starts[i], subsizes[i]}}});
  }
  if (order == order_c) std::reverse(dimensions.begin(), dimensions.end());
  ContentsOf contents(Combiner::subarray, form);
  contents.integer(static_cast<int>(sizes.size())).counts(sizes).counts(subsizes).counts(starts).integer(order);
  return part_of_array(dimensions, old, contents.of(old));
}

DatatypePtr Datatype::darray(const Distribution& given, const DatatypePtr& old, Form form) {
  check_dimensions(given.gsizes.size());
  check_order(given.order);
  check_grid(given);
  std::vector<Dimension> dimensions(given.gsizes.size());
  // Ranks stand in the grid in row-major order, whatever the array's order is.
  int place = given.rank;
  for (std::size_t i = dimensions.size(); i-- > 0; place /= given.psizes[i]) {
    dimensions[i] = Dimension{given.gsizes[i], share_of(given, i, place % given.psizes[i])};
  }
  if (given.order == order_c) std::reverse(dimensions.begin(), dimensions.end());
  ContentsOf contents(Combiner::darray, form);
  contents.integer(given.size).integer(given.rank).integer(static_cast<int>(given.gsizes.size()));
  contents.counts(given.gsizes).integers(given.distribs).integers(given.dargs).integers(given.psizes);
  return part_of_array(dimensions, old, contents.integer(given.order).of(old));
}

// ---- Datatype

// A chain of datatypes may be as long as a program likes, so it is not destroyed by recursion: what the last one alone
// keeps alive is kept a little longer than it.
Datatype::~Datatype() {
  std::vector<DatatypePtr> doomed = std::move(contents_.types);
  while (!doomed.empty()) {
    const DatatypePtr last = std::move(doomed.back());
    doomed.pop_back();
    if (last.use_count() == 1) doomed.insert(doomed.end(), last->contents_.types.begin(), last->contents_.types.end());
  }
}

std::optional<Elements> Datatype::elements(const void* address, Count count) const noexcept {
  Count bytes = 0;
  if (__builtin_mul_overflow(size(), count, &bytes)) return std::nullopt;
  return Elements{const_cast<void*>(address), layout_.get(), count, extent()};
}

// ---- SentSignature

SentSignature SentSignature::of(const Datatype& type, Count count) {
  const Signature& signature = type.signature();
  return SentSignature{signature.elements() * count, signature.digest().times(count),
                       signature.only_type() == BasicType::packed};
}

bool SentSignature::matches(const Datatype& type, Count count) const {
  const Signature& signature = type.signature();
  if (is_packed || signature.only_type() == BasicType::packed) return true;
  return elements <= signature.elements() * count && signature.digest_of_first(elements) == digest;
}

}  // namespace aplib::mpi
