// SPDX-License-Identifier: MIT
#include "mpi/signature.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace aplib::mpi {

namespace {

// A signature of so few items becomes part of the one around it. More items are shared.
constexpr std::size_t items_flattened_max = 64;

// Digests are polynomials over the numbers modulo this prime, whose variable is the base.
constexpr std::uint64_t prime = (std::uint64_t{1} << 61) - 1;
constexpr std::uint64_t base = 0x1b873593cc9e2d51 % prime;

__extension__ typedef unsigned __int128 WideProduct;

std::uint64_t product(std::uint64_t a, std::uint64_t b) noexcept {
  return static_cast<std::uint64_t>(WideProduct{a} * b % prime);
}

Digest digest_of(BasicType type) noexcept {
  const BasicInfo& info = basic_info(type);
  return Digest{std::uint64_t{static_cast<std::uint8_t>(info.kind)} * 256 + info.size, base};
}

Count checked_sum(Count sum, Count count, Count unit) {
  Count added = 0;
  if (__builtin_mul_overflow(count, unit, &added) || __builtin_add_overflow(sum, added, &sum)) {
    throw DatatypeError(DatatypeError::count, "the size of the datatype does not fit into 64 bits");
  }
  return sum;
}

}  // namespace

Digest Digest::then(const Digest& next) const noexcept {
  return Digest{(product(value, next.power) + next.value) % prime, product(power, next.power)};
}

Digest Digest::times(Count count) const noexcept {
  Digest all;
  for (Digest doubled = *this; count != 0; count >>= 1) {
    if ((count & 1) != 0) all = all.then(doubled);
    doubled = doubled.then(doubled);
  }
  return all;
}

// ---- SignatureBuilder

void SignatureBuilder::add(const SignaturePtr& signature, Count count) {
  if (signature->elements_ == 0 || count == 0) return;
  const auto& items = signature->items_;
  if (items.size() == 1) {
    append(items[0].type, checked_sum(0, items[0].count, count), items[0].body);
  } else if (count == 1 && items.size() <= items_flattened_max) {
    for (const auto& item : items) append(item.type, item.count, item.body);
  } else {
    append(BasicType::null, count, signature);
  }
}

void SignatureBuilder::append(BasicType type, Count count, const SignaturePtr& body) {
  Signature& made = *made_;
  Signature::Item item{type, count, body, made.elements_, made.bytes_};
  made.elements_ = checked_sum(made.elements_, count, item.unit_elements());
  made.bytes_ = checked_sum(made.bytes_, count, item.unit_bytes());
  made.external_bytes_ = checked_sum(made.external_bytes_, count,
                                     body != nullptr ? body->external_bytes_ : basic_info(type).external_size);
  made.digest_ = made.digest_.then((body != nullptr ? body->digest_ : digest_of(type)).times(count));
  if (body != nullptr) made.depth_ = std::max(made.depth_, body->depth_ + 1);
  if (made.depth_ >= Layout::depth_max) throw_too_deep(made.depth_);
  if (!made.items_.empty() && made.items_.back().type == type && made.items_.back().body == body) {
    made.items_.back().count += count;
  } else {
    made.items_.push_back(std::move(item));
  }
}

SignaturePtr SignatureBuilder::finish() { return std::exchange(made_, std::make_shared<Signature>()); }

// ---- Signature

SignaturePtr Signature::of(BasicType type) {
  SignatureBuilder builder;
  const BasicInfo& info = basic_info(type);
  if (info.kind == Kind::pair) {
    builder.append(info.value, 1, nullptr);
    builder.append(info.index, 1, nullptr);
  } else if (info.size != 0) {
    builder.append(type, 1, nullptr);
  }
  return builder.finish();
}

SignaturePtr Signature::repeat(const SignaturePtr& signature, Count count) {
  if (count == 1) return signature;
  SignatureBuilder builder;
  builder.add(signature, count);
  return builder.finish();
}

Digest Signature::digest_of_first(Count elements) const noexcept {
  if (elements_ == 0) return Digest{};
  Digest digest = digest_.times(elements / elements_);
  elements %= elements_;
  for (const Item& item : items_) {
    const Count whole = std::min(item.count, elements / item.unit_elements());
    digest = digest.then((item.body != nullptr ? item.body->digest_ : digest_of(item.type)).times(whole));
    elements -= whole * item.unit_elements();
    if (whole == item.count) continue;
    return elements != 0 ? digest.then(item.body->digest_of_first(elements)) : digest;
  }
  return digest;
}

std::optional<BasicType> Signature::only_type() const noexcept {
  if (items_.size() != 1) return std::nullopt;
  return items_[0].body != nullptr ? items_[0].body->only_type() : std::optional(items_[0].type);
}

std::optional<Count> Signature::elements_in(Count bytes) const noexcept {
  if (bytes == 0) return 0;
  if (bytes_ == 0) return std::nullopt;
  const Count elements = bytes / bytes_ * elements_;
  bytes %= bytes_;
  if (bytes == 0) return elements;
  const auto after = [](Count sought, const Item& item) { return sought < item.bytes_before; };
  const Item& item = *std::prev(std::upper_bound(items_.begin(), items_.end(), bytes, after));
  bytes -= item.bytes_before;
  const Count before = elements + item.elements_before;
  if (item.body == nullptr) {
    if (bytes % item.unit_bytes() != 0) return std::nullopt;
    return before + bytes / item.unit_bytes();
  }
  const auto inner = item.body->elements_in(bytes);
  if (!inner) return std::nullopt;
  return before + *inner;
}

Count Signature::bytes_of_first(Count elements) const noexcept {
  if (elements_ == 0) return 0;
  const Count bytes = elements / elements_ * bytes_;
  elements %= elements_;
  if (elements == 0) return bytes;
  const auto after = [](Count sought, const Item& item) { return sought < item.elements_before; };
  const Item& item = *std::prev(std::upper_bound(items_.begin(), items_.end(), elements, after));
  elements -= item.elements_before;
  const Count before = bytes + item.bytes_before;
  return before + (item.body == nullptr ? elements * item.unit_bytes() : item.body->bytes_of_first(elements));
}

}  // namespace aplib::mpi
