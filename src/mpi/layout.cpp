// SPDX-License-Identifier: MIT
#include "mpi/layout.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>

#include "arch/cpu.hpp"

namespace aplib::mpi {

namespace {

// A layout of so few pieces becomes part of the one around it. More pieces are shared.
constexpr std::size_t pieces_flattened_max = 64;
// Fewer blocks at regular distances among irregular ones stay in the list.
constexpr std::size_t progression_min = 8;

__extension__ typedef __int128 Wide;  // holds every sum and product of two Counts

Count narrow(Wide value, const char* what) {
  if (value < std::numeric_limits<Count>::min() || value > std::numeric_limits<Count>::max()) {
    throw DatatypeError(DatatypeError::count, std::string(what) + " of the datatype does not fit into 64 bits");
  }
  return static_cast<Count>(value);
}

// The piece, repeated, as one piece, if it can be.
std::optional<Piece> repeated(Piece piece, Count count, Count stride) noexcept {
  if (count == 1) return piece;
  if (piece.is_block() && stride == piece.block) {
    piece.block *= count;
    return piece;
  }
  if (piece.list != nullptr) return std::nullopt;
  if (piece.count == 1) {
    piece.count = count;
    piece.stride = stride;
    return piece;
  }
  if (Wide{piece.stride} * piece.count != stride) return std::nullopt;
  piece.count *= count;
  return piece;
}

bool continues(const Piece& last, const Piece& next) noexcept {
  return last.is_block() && next.is_block() && Wide{last.offset} + last.block == next.offset;
}

bool is_same_block(const Piece& a, const Piece& b) noexcept {
  const auto is_single = [](const Piece& piece) { return piece.count == 1 && piece.list == nullptr; };
  return is_single(a) && is_single(b) && a.block == b.block && a.body == b.body;
}

}  // namespace

void throw_too_deep(int depth) {
  throw DatatypeError(DatatypeError::type, "the datatype nests " + std::to_string(depth) +
                                               " lists of blocks; build it of fewer levels, for example of one "
                                               "MPI_Type_create_struct");
}

// ---- LayoutBuilder

void LayoutBuilder::add_block(Count offset, Count bytes) {
  if (bytes != 0) append(Piece{offset, bytes});
}

void LayoutBuilder::add(const LayoutPtr& layout, Count offset, Count count, Count stride) {
  if (layout->bytes() == 0 || count == 0) return;
  narrow(Wide{layout->bytes()} * count, "the size");
  const auto moved = [&](Piece piece) {
    piece.offset = narrow(Wide{piece.offset} + offset, "a displacement");
    append(piece);
  };
  const auto keep = [&](const std::shared_ptr<const void>& part) {
    if (kept_.empty() || kept_.back() != part) kept_.push_back(part);  // an indexed type adds the same many times
  };
  std::optional<Piece> one;
  if (layout->pieces_.size() == 1) one = repeated(layout->pieces_[0], count, stride);
  if (one || (count == 1 && layout->pieces_.size() <= pieces_flattened_max)) {
    for (const auto& part : layout->kept_) keep(part);
    if (one) return moved(*one);
    for (const Piece& piece : layout->pieces_) moved(piece);
    return;
  }
  keep(layout);
  append(Piece{offset, layout->bytes(), count, stride, nullptr, layout.get()});
}

LayoutPtr LayoutBuilder::repeat(const LayoutPtr& layout, Count count, Count stride) {
  if (count == 1) return layout;
  LayoutBuilder builder;
  builder.add(layout, 0, count, stride);
  return builder.finish();
}

LayoutPtr LayoutBuilder::finish() {
  auto layout = std::make_shared<Layout>();
  measure(*layout);
  compress();
  layout->pieces_ = std::move(compressed_);
  layout->kept_ = std::move(kept_);
  layout->begins_.reserve(layout->pieces_.size());
  Count begin = 0;
  for (const Piece& piece : layout->pieces_) {
    layout->begins_.push_back(begin);
    begin += piece.bytes();
  }
  if (layout->pieces_.size() == 1 && layout->pieces_[0].is_block() && layout->pieces_[0].offset == 0)
    layout->block_ = layout->bytes_;
  *this = LayoutBuilder();
  return layout;
}

void LayoutBuilder::append(const Piece& piece) {
  if (!pieces_.empty() && continues(pieces_.back(), piece)) {
    pieces_.back().block = narrow(Wide{pieces_.back().block} + piece.block, "the size");
  } else {
    pieces_.push_back(piece);
  }
}

void LayoutBuilder::compress() {
  for (std::size_t begin = 0, end; begin < pieces_.size(); begin = end) {
    end = begin + 1;
    while (end < pieces_.size() && is_same_block(pieces_[begin], pieces_[end])) ++end;
    compress_stretch(std::span(pieces_).subspan(begin, end - begin));
  }
}

// Blocks of one size, at distances of which measure() has seen that they fit.
void LayoutBuilder::compress_stretch(std::span<const Piece> stretch) {
  const auto emit_loop = [&](std::size_t begin, std::size_t end) {
    compressed_.push_back(stretch[begin]);
    if (end - begin == 1) return;
    compressed_.back().count = static_cast<Count>(end - begin);
    compressed_.back().stride = stretch[begin + 1].offset - stretch[begin].offset;
  };
  const auto emit_list = [&](std::size_t begin, std::size_t end) {
    if (begin == end) return;
    if (end - begin <= 2) return emit_loop(begin, end);
    auto list = std::make_shared<std::vector<Count>>();
    list->reserve(end - begin);
    // The first offset is 0, so that an address within memory is what the others count from.
    for (std::size_t i = begin; i < end; ++i) list->push_back(stretch[i].offset - stretch[begin].offset);
    Piece piece = stretch[begin];
    piece.count = static_cast<Count>(end - begin);
    piece.list = list->data();
    kept_.push_back(std::move(list));
    compressed_.push_back(piece);
  };
  std::size_t listed = 0;  // what is before is done
  for (std::size_t begin = 0, end; begin < stretch.size();) {
    end = begin + 1;
    while (end < stretch.size() &&
           stretch[end].offset - stretch[end - 1].offset == stretch[begin + 1].offset - stretch[begin].offset) {
      ++end;
    }
    if (end - begin == stretch.size() || end - begin >= progression_min) {
      emit_list(listed, begin);
      emit_loop(begin, end);
      listed = begin = end;
    } else {
      begin = std::max(begin + 1, end - 1);
    }
  }
  emit_list(listed, stretch.size());
}

void LayoutBuilder::measure(Layout& layout) const {
  Wide bytes = 0;
  Wide lower = std::numeric_limits<Count>::max();
  Wide upper = std::numeric_limits<Count>::min();
  for (const Piece& piece : pieces_) {
    bytes += piece.bytes();
    Wide first = piece.list != nullptr ? *std::min_element(piece.list, piece.list + piece.count) : 0;
    Wide last = piece.list != nullptr ? Wide{*std::max_element(piece.list, piece.list + piece.count)}
                                      : Wide{piece.stride} * (piece.count - 1);
    if (last < first) std::swap(first, last);
    lower = std::min(lower, first + piece.offset + (piece.body != nullptr ? piece.body->lower() : 0));
    upper = std::max(upper, last + piece.offset + (piece.body != nullptr ? piece.body->upper() : piece.block));
    if (piece.body != nullptr) layout.depth_ = std::max(layout.depth_, piece.body->depth_ + 1);
  }
  if (bytes == 0) return;
  layout.bytes_ = narrow(bytes, "the size");
  layout.lower_ = narrow(lower, "the lower bound");
  layout.upper_ = narrow(upper, "the upper bound");
  narrow(upper - lower, "the extent");
  if (layout.depth_ >= Layout::depth_max) {
    throw_too_deep(layout.depth_);
  }
}

// ---- Elements and Cursor

Piece Elements::piece() const noexcept {
  if (layout->bytes() == 0 || count == 0) return Piece{};
  if (layout->pieces().size() == 1) {
    if (count == 1) return layout->pieces()[0];
    if (const auto one = repeated(layout->pieces()[0], count, extent)) return *one;
  }
  return Piece{0, layout->bytes(), count, extent, nullptr, layout};
}

namespace {

char* address_of(const void* base, Count offset) noexcept {  // of integers, because the base may be null
  return reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(base) + static_cast<std::uintptr_t>(offset));
}

}  // namespace

char* Elements::contiguous_piece() const noexcept {
  const Piece one = piece();
  return one.is_block() && one.block != 0 ? address_of(address, one.offset) : nullptr;
}

Cursor::Cursor(const Piece& piece, const void* address, Count first) noexcept : run_{}, root_(piece) {
  if (first == root_.bytes()) return;
  frames_[0] = Frame{&root_, &root_ + 1, 0, reinterpret_cast<std::uintptr_t>(address)};
  seek(first);
}

void Cursor::seek(Count first) noexcept {
  for (;;) {
    Frame& frame = frames_[depth_];
    const Piece& piece = *frame.piece;
    const Count index = first == 0 ? 0 : first / piece.block;  // a division takes longer than a short copy
    first -= index * piece.block;
    if (piece.body == nullptr) {
      enter_leaf(index);
      done_ = first;
      return;
    }
    frame.index = index;
    const auto begins = piece.body->begins();
    const auto inner = std::upper_bound(begins.begin(), begins.end(), first) - begins.begin() - 1;
    first -= begins[static_cast<std::size_t>(inner)];
    const auto pieces = piece.body->pieces();
    frames_[++depth_] = Frame{pieces.data() + inner, pieces.data() + pieces.size(), 0,
                              frame.base + static_cast<std::uintptr_t>(piece.at(index))};
  }
}

// The current piece has no body: its blocks from `index` on are a run.
void Cursor::enter_leaf(Count index) noexcept {
  const Frame& frame = frames_[depth_];
  const Piece& piece = *frame.piece;
  const Count offset = piece.list != nullptr ? piece.offset : piece.at(index);
  run_ = Run{reinterpret_cast<char*>(frame.base + static_cast<std::uintptr_t>(offset)), piece.block,
             piece.count - index, piece.stride, piece.list != nullptr ? piece.list + index : nullptr};
}

// The run is used up: on to the next piece, or to the next block of the piece around it.
void Cursor::next_run() noexcept {
  for (;;) {
    Frame& frame = frames_[depth_];
    if (frame.piece->body != nullptr && ++frame.index < frame.piece->count) break;
    if (++frame.piece != frame.end) {
      frame.index = 0;
      break;
    }
    if (depth_ == 0) return;  // the end; run_.count is 0
    --depth_;
  }
  for (;;) {
    const Frame& frame = frames_[depth_];
    const Layout* const body = frame.piece->body;
    if (body == nullptr) return enter_leaf(0);
    const auto pieces = body->pieces();
    frames_[++depth_] = Frame{pieces.data(), pieces.data() + pieces.size(), 0,
                              frame.base + static_cast<std::uintptr_t>(frame.piece->at(frame.index))};
  }
}

Tiles Cursor::tiles() const noexcept {
  if (depth_ == 0 || done_ != 0) return Tiles{};
  const Frame& inner = frames_[depth_];
  const Frame& outer = frames_[depth_ - 1];
  const Piece& loop = *outer.piece;
  const bool at_begin = inner.piece == loop.body->pieces().data() && run_.count == inner.piece->count;
  if (loop.list != nullptr || loop.body->depth() != 1 || !at_begin) return Tiles{};
  return Tiles{reinterpret_cast<char*>(inner.base), loop.stride, loop.count - outer.index, loop.body};
}

void Cursor::skip_tiles(Count count) noexcept {
  frames_[depth_ - 1].index += count - 1;
  frames_[depth_].piece = frames_[depth_].end - 1;
  run_.count = 0;
  next_run();
}

// ---- Copies

namespace {

// Where block i is. What the compiler knows of the distance decides which instructions it finds.
template <Count distance>
struct Regular {
  char* address;
  char* operator()(Count i) const noexcept { return address + i * distance; }
};
struct Strided {
  char* address;
  Count stride;
  char* operator()(Count i) const noexcept { return address + i * stride; }
};
struct Listed {
  char* address;
  const Count* list;
  char* operator()(Count i) const noexcept { return address + list[i]; }
};

template <Count block, class To, class From>
void copy_loop(To to, From from, Count count) noexcept {
  for (Count i = 0; i < count; ++i) __builtin_memcpy(to(i), from(i), block);
}

// Calls `with` with the places of a run's blocks.
template <class With>
void with_places(const Run& run, With with) noexcept {
  if (run.list != nullptr) return with(Listed{run.address, run.list});
  with(Strided{run.address, run.stride});
}
// Every second block is what the compiler has instructions for.
template <Count block>
bool is_every_second(const Run& run) noexcept {
  return run.list == nullptr && run.stride == 2 * block;
}
// The same for the other side of blocks that lie side by side.
template <Count block, class With>
void with_places_beside_packed(const Run& run, With with) noexcept {
  if (is_every_second<block>(run)) return with(Regular<2 * block>{run.address});
  with_places(run, with);
}

template <Count block>
void copy_loops(const Run& to, const Run& from, Count count) noexcept {
  with_places(to, [&](auto to_places) {
    with_places(from, [&](auto from_places) { copy_loop<block>(to_places, from_places, count); });
  });
}

template <Count block>
void copy_blocks_of(const Run& to, const Run& from, Count count) noexcept {
  const auto is_packed = [](const Run& run) { return run.list == nullptr && run.stride == block; };
  if (is_packed(to)) {
    with_places_beside_packed<block>(from,
                                     [&](auto places) { copy_loop<block>(Regular<block>{to.address}, places, count); });
  } else if (is_packed(from)) {
    with_places_beside_packed<block>(
        to, [&](auto places) { copy_loop<block>(places, Regular<block>{from.address}, count); });
  } else if (block >= 4 && is_every_second<block>(to) && is_every_second<block>(from)) {
    copy_loop<block>(Regular<2 * block>{to.address}, Regular<2 * block>{from.address}, count);
  } else {
    copy_loops<block>(to, from, count);
  }
}

// One block of any size. A call of memcpy costs as much as copying 64 bytes.
inline void copy_block(char* to, const char* from, Count bytes) noexcept {
  const auto last = [&]<Count step>(std::integral_constant<Count, step>) {
    __builtin_memcpy(to + bytes - step, from + bytes - step, step);  // overlaps what is before
  };
  if (bytes > 256) {
    copy_long(to, from, static_cast<std::size_t>(bytes));
  } else if (bytes >= 16) {
    for (Count done = 0; done + 16 < bytes; done += 16) __builtin_memcpy(to + done, from + done, 16);
    last(std::integral_constant<Count, 16>{});
  } else if (bytes >= 8) {
    __builtin_memcpy(to, from, 8);
    last(std::integral_constant<Count, 8>{});
  } else if (bytes >= 4) {
    __builtin_memcpy(to, from, 4);
    last(std::integral_constant<Count, 4>{});
  } else {
    for (Count i = 0; i < bytes; ++i) to[i] = from[i];
  }
}

void copy_blocks(const Run& to, const Run& from, Count block, Count count) noexcept {
  switch (block) {
    case 1:
      return copy_blocks_of<1>(to, from, count);
    case 2:
      return copy_blocks_of<2>(to, from, count);
    case 4:
      return copy_blocks_of<4>(to, from, count);
    case 8:
      return copy_blocks_of<8>(to, from, count);
    case 16:
      return copy_blocks_of<16>(to, from, count);
    case 12:
      return copy_loops<12>(to, from, count);
    case 24:
      return copy_loops<24>(to, from, count);
    case 32:
      return copy_loops<32>(to, from, count);
    default:
      with_places(to, [&](auto to_places) {
        with_places(from, [&](auto from_places) {
          for (Count i = 0; i < count; ++i) copy_block(to_places(i), from_places(i), block);
        });
      });
  }
}

char* first_block(const Run& run) noexcept { return run.list != nullptr ? run.address + *run.list : run.address; }

// How many blocks of `block` bytes, which is at most the run's own, it has before a gap or in equal distances.
Count blocks_in(const Run& run, Count block, Count enough) noexcept {
  if (run.block == block) return std::min(run.count, enough);
  return enough * block <= run.block ? enough : run.block / block;
}

// The run as blocks of `block` bytes.
Run divided(const Run& run, Count block) noexcept {
  return run.block == block ? run : Run{first_block(run), block, 0, block, nullptr};
}

void skip(Cursor& cursor, const Run& run, Count block, Count count) noexcept {
  if (run.block == block) {
    cursor.skip_blocks(count);
  } else if (run.block == block * count) {
    cursor.skip_blocks(1);
  } else {
    cursor.skip_bytes(block * count);
  }
}

// One side of a copy of tiles. Packed, each tile's bytes lie side by side, whatever the tile's layout says.
struct TileSide {
  std::uintptr_t address;
  Count stride;
  bool packed;

  // The blocks of piece i of the first tile.
  [[nodiscard]] Run run(const Layout& body, std::size_t i) const noexcept {
    const Piece& piece = body.pieces()[i];
    const auto at = [&](Count offset) {
      return reinterpret_cast<char*>(address + static_cast<std::uintptr_t>(offset));
    };
    if (packed) return Run{at(body.begins()[i]), piece.block, piece.count, piece.block, nullptr};
    return Run{at(piece.offset), piece.block, piece.count, piece.stride, piece.list};
  }
};

Run moved(const Run& run, Count distance) noexcept {
  return Run{run.address + distance, run.block, run.count, run.stride, run.list};
}

// Piece by piece; for each, the longer of its two loops (over tiles, and over the blocks of the piece) is the inner.
void copy_tiles(const TileSide& to, const TileSide& from, const Layout& body, Count count) noexcept {
  for (std::size_t i = 0; i < body.pieces().size(); ++i) {
    const Run there = to.run(body, i);
    const Run here = from.run(body, i);
    if (there.count < count) {
      for (Count j = 0; j < there.count; ++j) {
        const auto column = [j](const Run& run, Count stride) {
          return Run{run.address + (run.list != nullptr ? run.list[j] : j * run.stride), run.block, 0, stride, nullptr};
        };
        copy_blocks(column(there, to.stride), column(here, from.stride), there.block, count);
      }
    } else {
      for (Count j = 0; j < count; ++j) {
        copy_blocks(moved(there, j * to.stride), moved(here, j * from.stride), there.block, there.count);
      }
    }
  }
}

bool is_same_shape(const Layout& a, const Layout& b) noexcept {
  const auto is_same = [](const Piece& p, const Piece& q) {
    return p.offset == q.offset && p.block == q.block && p.count == q.count && p.stride == q.stride && p.list == q.list;
  };
  return &a == &b || std::equal(a.pieces().begin(), a.pieces().end(), b.pieces().begin(), b.pieces().end(), is_same);
}

// Copies as many whole tiles as both sides have here, and fit into the first-level cache; returns their bytes.
Count copy_whole_tiles(Cursor& to, Cursor& from, Count bytes) noexcept {
  constexpr Count cached_bytes = 16 * 1024;
  constexpr Count cached_tiles = 16;  // however far apart
  const Tiles there = to.tiles();
  const Tiles here = from.tiles();
  if (there.count == 0 && here.count == 0) return 0;
  if (there.count != 0 && here.count != 0 && !is_same_shape(*there.body, *here.body)) return 0;
  const Layout& body = there.count != 0 ? *there.body : *here.body;
  const Count block = body.bytes();
  Count count = bytes / block;
  Count distance = block;
  TileSide sides[2];
  Run runs[2];
  for (int i = 0; i < 2; ++i) {
    const Tiles& tiles = i == 0 ? there : here;
    if (tiles.count != 0) {
      sides[i] = TileSide{reinterpret_cast<std::uintptr_t>(tiles.address), tiles.stride, false};
      count = std::min(count, tiles.count);
      distance = std::max(distance, std::abs(tiles.stride));
    } else {
      runs[i] = (i == 0 ? to : from).run();
      sides[i] = TileSide{reinterpret_cast<std::uintptr_t>(first_block(runs[i])), block, true};
      count = std::min(count, runs[i].block / block);
    }
  }
  count = std::min(count, std::max(cached_tiles, cached_bytes / distance));
  if (count < 2) return 0;
  copy_tiles(sides[0], sides[1], body, count);
  for (int i = 0; i < 2; ++i) {
    Cursor& cursor = i == 0 ? to : from;
    if (!sides[i].packed) {
      cursor.skip_tiles(count);
    } else {
      skip(cursor, runs[i], block, count);
    }
  }
  return count * block;
}

}  // namespace

Elements bytes_in(void* memory, Count bytes) {
  static const LayoutPtr byte = [] {
    LayoutBuilder builder;
    builder.add_block(0, 1);
    return builder.finish();
  }();
  return Elements{memory, byte.get(), bytes, 1};
}

void copy(Cursor& to, Cursor& from, Count bytes) noexcept {
  while (bytes > 0) {
    if (const Count done = copy_whole_tiles(to, from, bytes); done != 0) {
      bytes -= done;
      continue;
    }
    const Run there = to.run();
    const Run here = from.run();
    const Count block = std::min(there.block, here.block);
    if (block > bytes) {
      copy_block(first_block(there), first_block(here), bytes);
      to.skip_bytes(bytes);
      from.skip_bytes(bytes);
      return;
    }
    // The side whose blocks these are limits the loop first, so that divisions are rare.
    Count count = there.block == block ? there.count : here.count;
    if (count > 1) {
      if (count * block > bytes) count = bytes / block;
      count = blocks_in(here, block, blocks_in(there, block, count));
    }
    if (count == 1) {
      copy_block(first_block(there), first_block(here), block);
    } else {
      copy_blocks(divided(there, block), divided(here, block), block, count);
    }
    skip(to, there, block, count);
    skip(from, here, block, count);
    bytes -= count * block;
  }
}

void copy(const Elements& to, const Elements& from, Count first, Count bytes) noexcept {
  if (bytes == 0) return;
  char* const there = to.contiguous();
  const char* const here = from.contiguous();
  if (there != nullptr && here != nullptr) {
    copy_long(there + first, here + first, static_cast<std::size_t>(bytes));
    return;
  }
  Cursor to_cursor(to, first);
  Cursor from_cursor(from, first);
  copy(to_cursor, from_cursor, bytes);
}

void pack(void* packed, const Elements& from, Count first, Count bytes) noexcept {
  if (bytes == 0) return;
  Cursor to_cursor(bytes_at(packed, bytes), 0);
  Cursor from_cursor(from, first);
  copy(to_cursor, from_cursor, bytes);
}

void unpack(const Elements& to, const void* packed, Count first, Count bytes) noexcept {
  if (bytes == 0) return;
  Cursor to_cursor(to, first);
  Cursor from_cursor(bytes_at(packed, bytes), 0);
  copy(to_cursor, from_cursor, bytes);
}

}  // namespace aplib::mpi
