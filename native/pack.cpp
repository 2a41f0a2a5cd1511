#include "pack.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "stored.h"

namespace headrace {
namespace {

using Rows = const uint8_t* const*;  // 16 of them; null past the last output

// 32-bit words of `count` columns of 16 rows: to[column][row].
void transpose_words(Rows rows, int64_t from, int64_t count, uint8_t* to) {
  for (int64_t row = 0; row < kLanes; ++row) {
    if (rows[row] == nullptr) continue;
    for (int64_t i = 0; i < count; ++i) {
      uint32_t word;
      std::memcpy(&word, rows[row] + from + i * 4, 4);
      std::memcpy(to + (i * kLanes + row) * 4, &word, 4);
    }
  }
}

// F32 and BF16: whole words, [k] or [k / 2] by 16. A BF16 row of odd width ends in half a word.
void pack_words(Rows rows, int64_t bytes, uint8_t* to) {
  constexpr int64_t kSlice = 16;  // columns at a time, so that both sides stay in the cache
  const int64_t words = bytes / 4;
  for (int64_t i = 0; i < words; i += kSlice) {
    const int64_t count = words - i < kSlice ? words - i : kSlice;
    transpose_words(rows, i * 4, count, to + i * kLanes * 4);
  }
  for (int64_t row = 0; bytes % 4 != 0 && row < kLanes; ++row) {
    if (rows[row] == nullptr) continue;
    std::memcpy(to + (words * kLanes + row) * 4, rows[row] + words * 4, 2);
  }
}

// F16: [k] by 16 halves.
void pack_halves(Rows rows, int64_t width, uint8_t* to) {
  constexpr int64_t kSlice = 32;
  for (int64_t begin = 0; begin < width; begin += kSlice) {
    const int64_t end = width - begin < kSlice ? width : begin + kSlice;
    for (int64_t row = 0; row < kLanes; ++row) {
      if (rows[row] == nullptr) continue;
      for (int64_t k = begin; k < end; ++k) {
        std::memcpy(to + (k * kLanes + row) * 2, rows[row] + k * 2, 2);
      }
    }
  }
}

// F8_E4M3: the scales of all runs, [run] by 16, then [k / 2] by 16 pairs. A run with a NaN among
// its values has a scale that is NaN: sums over it are, as they would be by the value.
void pack_scaled(Rows rows, int64_t width, int64_t tiles, uint8_t* to) {
  const int64_t runs = runs_of(width);
  uint8_t* const values =
      to + runs_of(tiles * kTile) * kLanes * static_cast<int64_t>(sizeof(float));
  for (int64_t row = 0; row < kLanes; ++row) {
    if (rows[row] == nullptr) continue;
    const uint8_t* from = rows[row] + runs * static_cast<int64_t>(sizeof(float));
    for (int64_t run = 0; run < runs; ++run) {
      const int64_t begin = run * kRun, end = width - begin < kRun ? width : begin + kRun;
      float scale;
      std::memcpy(&scale, rows[row] + run * static_cast<int64_t>(sizeof(float)), sizeof scale);
      // Values are read as 2^-8 of what they are.
      scale *= 256.0f;
      uint8_t nan = 0;
      for (int64_t k = begin; k < end; ++k) {
        nan |= (from[k] & 0x7f) == 0x7f;
        values[(k / 2 * kLanes + row) * 2 + k % 2] = from[k];
      }
      if (nan != 0) scale = __builtin_nanf("");
      std::memcpy(to + (run * kLanes + row) * static_cast<int64_t>(sizeof(float)), &scale,
                  sizeof scale);
    }
  }
}

// NF4: the scales of all blocks, [block] by 16, then [k / 2] by 16 bytes of two codes.
void pack_nf4(Rows rows, int64_t width, uint8_t* to) {
  constexpr int64_t kScale = sizeof(float), kCodes = kNf4Run / 2;
  const int64_t blocks = width / kNf4Run;
  uint8_t* const codes = to + blocks * kLanes * kScale;
  for (int64_t row = 0; row < kLanes; ++row) {
    if (rows[row] == nullptr) continue;
    const uint8_t* from = rows[row];
    for (int64_t b = 0; b < blocks; ++b, from += kScale + kCodes) {
      std::memcpy(to + (b * kLanes + row) * kScale, from, kScale);
      for (int64_t i = 0; i < kCodes; ++i) {
        codes[(b * kCodes + i) * kLanes + row] = from[kScale + i];
      }
    }
  }
}

using Four = uint32_t __attribute__((vector_size(16)));

Four load_four(const uint32_t* p) {
  Four x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}

// One plane of kBits of each value, from bit kFrom on; q is a tile of one output. Words that end in
// one are halves, then quarters and eighths of the eight.
template <int kBits, int kFrom>
void pack_plane(const uint32_t* q, uint32_t* to) {
  constexpr uint32_t kMask = ((1u << kBits) - 1) * 0x01010101u;
  const auto bits = [q](int f) { return (load_four(q + f) >> kFrom) & kMask; };
  if constexpr (kBits == 8) {
    std::memcpy(to, q, 32);
    return;
  }
  Four words = bits(0) | bits(4) << 4;
  if constexpr (kBits < 4) words |= __builtin_shuffle(words, Four{2, 3, 2, 3}) << 2;
  if constexpr (kBits < 2) words |= __builtin_shuffle(words, Four{1, 1, 1, 1}) << 1;
  std::memcpy(to, &words, 4 * kBits);
}

// The first kWords words of 16 rows, which lie kStride apart: to[word][row].
template <int64_t kWords, int64_t kStride>
void transpose(const uint32_t (*from)[kStride], uint8_t* to) {
  for (int64_t row = 0; row < kLanes; row += 4) {
    for (int64_t i = 0; i < kWords; i += 4) {
      const Four a = load_four(from[row] + i), b = load_four(from[row + 1] + i);
      const Four c = load_four(from[row + 2] + i), d = load_four(from[row + 3] + i);
      const Four ab = __builtin_shuffle(a, b, Four{0, 4, 1, 5});
      const Four cd = __builtin_shuffle(c, d, Four{0, 4, 1, 5});
      const Four ab2 = __builtin_shuffle(a, b, Four{2, 6, 3, 7});
      const Four cd2 = __builtin_shuffle(c, d, Four{2, 6, 3, 7});
      const Four words[4] = {__builtin_shuffle(ab, cd, Four{0, 1, 4, 5}),
                             __builtin_shuffle(ab, cd, Four{2, 3, 6, 7}),
                             __builtin_shuffle(ab2, cd2, Four{0, 1, 4, 5}),
                             __builtin_shuffle(ab2, cd2, Four{2, 3, 6, 7})};
      for (int64_t j = 0; j < 4 && i + j < kWords; ++j) {
        std::memcpy(to + ((i + j) * kLanes + row) * 4, &words[j], sizeof(Four));
      }
    }
  }
}

// Scales and mins of one output, into a block's header at its column.
template <Codec C>
void pack_scales(const StoredBlock& block, int64_t row, uint8_t* to) {
  constexpr CodecFacts f = facts(C);
  if constexpr (f.scales == Scales::exponent) {
    to[row] = static_cast<uint8_t>(block.d);
    return;
  }
  if constexpr (f.scales == Scales::single) {
    std::memcpy(to + row * 4, &block.single, 4);
    if constexpr (f.mins) to[4 * kLanes + row] = block.mins[0];
    return;
  }
  if constexpr (f.scales == Scales::folded) {
    std::memcpy(to + row * 4, &block.single, 4);
    to += 4 * kLanes;
  }
  if constexpr (f.scales == Scales::small || f.scales == Scales::folded) {
    for (int64_t g = 0; g < f.tiles * f.groups; ++g) to[g * kLanes + row] = block.scales[g];
    return;
  }
  std::memcpy(to + row * 2, &block.d, 2);
  if constexpr (f.mins) std::memcpy(to + 2 * kLanes + row * 2, &block.m, 2);
  constexpr int64_t kGroups = f.tiles * f.groups;
  uint8_t* bytes = to + (f.mins ? 4 : 2) * kLanes + row;
  [[maybe_unused]] uint8_t* mins = bytes - row + kGroups * kLanes;
  for (int64_t g = 0; g < kGroups; ++g) {
    if constexpr (f.scales == Scales::nibbles) {
      bytes[g * kLanes] = static_cast<uint8_t>(block.scales[g] | block.mins[g] << 4);
    } else if constexpr (f.scales == Scales::bytes) {
      bytes[g * kLanes] = block.scales[g];
      if constexpr (f.mins && sums_blocks(f)) {
        mins[g / 2 * 2 * kLanes + 2 * row + g % 2] = block.mins[g];
      } else if constexpr (f.mins) {
        mins[g * kLanes + row] = block.mins[g];
      }
    }
  }
}

// What a tile of one output has beside its indices and signs, as BookFacts orders it.
template <Codec C>
uint32_t book_bits(const BookBlock& block, int64_t tile) {
  constexpr CodecFacts f = facts(C);
  constexpr int kPoints = f.book.points();
  uint32_t bits = 0;
  int at = 0;
  const auto add = [&](uint32_t value, int width) {
    bits |= value << at;
    at += width;
  };
  for (int i = 0; i < kPoints; ++i) add(block.index[tile * kPoints + i] >> 8, f.book.high_bits);
  for (int64_t g = 0; g < f.groups; ++g) add(block.scales[tile * f.groups + g], f.book.scale_bits);
  for (int i = 0; i < f.book.shifts; ++i) add(block.shifts[tile * f.book.shifts + i], 1);
  return bits;
}

// The signs of a tile as a plane of one bit: bit f of byte j is that of value 4 f + j.
uint32_t sign_plane(const uint8_t* signs) {
  uint32_t plane = 0;
  for (int k = 0; k < kTile; ++k) {
    plane |= static_cast<uint32_t>(signs[k / 8] >> (k % 8) & 1) << (k % 4 * 8 + k / 4);
  }
  return plane;
}

template <Codec C>
void pack_books(Rows rows, int64_t blocks, uint8_t* to) {
  constexpr CodecFacts f = facts(C);
  constexpr int kPoints = f.book.points(), kIndexWords = f.book.words();
  constexpr int64_t kOfTile = tile_bytes(f) / (4 * kLanes);
  constexpr int kMoreBytes = (f.book.header_bits(f.groups) + 7) / 8;
  BookBlock block;
  for (int64_t b = 0; b < blocks; ++b, to += block_bytes(f)) {
    for (int64_t row = 0; row < kLanes; ++row) {
      if (rows[row] == nullptr) continue;
      read_book_block<C>(rows[row] + b * f.stored_bytes, block);
      std::memcpy(to + row * 2, &block.d, 2);
      for (int64_t t = 0; t < f.tiles; ++t) {
        uint32_t words[kOfTile] = {}, more = book_bits<C>(block, t);
        for (int i = 0; i < kPoints; ++i) {
          words[i / 4] |= static_cast<uint32_t>(block.index[t * kPoints + i] & 255) << (i % 4 * 8);
        }
        if constexpr (f.book.signs != Signs::none) {
          words[kIndexWords] = sign_plane(block.signs + 4 * t);
        }
        if constexpr (f.book.signs == Signs::even) {
          for (int i = 0; i < 4; ++i) {
            const int at = 25 + 2 * i;
            words[kIndexWords] = (words[kIndexWords] & ~(1u << at)) | (more >> i & 1) << at;
          }
          more >>= 4;
        }
        uint8_t* halves = to + 2 * kLanes;
        uint8_t* bytes = halves + (kMoreBytes >= 2 ? f.tiles * 2 * kLanes : 0);
        if constexpr (kMoreBytes >= 2) std::memcpy(halves + (t * kLanes + row) * 2, &more, 2);
        if constexpr (kMoreBytes % 2 == 1) {
          bytes[t * kLanes + row] = static_cast<uint8_t>(more >> (kMoreBytes == 3 ? 16 : 0));
        }
        uint8_t* tile = to + header_bytes(f) + t * tile_bytes(f);
        for (int64_t i = 0; i < kOfTile; ++i) {
          std::memcpy(tile + (i * kLanes + row) * 4, &words[i], 4);
        }
      }
    }
  }
}

// Rows past the last output keep scale and min 0, so what their bytes are does not matter.
template <Codec C>
void pack_blocks(Rows rows, int64_t blocks, uint8_t* to) {
  constexpr CodecFacts f = facts(C);
  constexpr int64_t kOfTile = f.low_bits + f.high_bits;
  constexpr int64_t kWords = f.tiles * kOfTile;
  uint32_t words[kLanes][(kWords + 3) / 4 * 4] = {};
  StoredBlock block;
  for (int64_t b = 0; b < blocks; ++b, to += block_bytes(f)) {
    for (int64_t row = 0; row < kLanes; ++row) {
      if (rows[row] == nullptr) continue;
      read_block<C>(rows[row] + b * f.stored_bytes, block);
      pack_scales<C>(block, row, to);
      for (int64_t t = 0; t < f.tiles; ++t) {
        uint32_t* tile = words[row] + t * kOfTile;
        pack_plane<f.low_bits, 0>(block.q + 8 * t, tile);
        if constexpr (f.high_bits > 0) {
          pack_plane<f.high_bits, f.low_bits>(block.q + 8 * t, tile + f.low_bits);
        }
      }
    }
    transpose<kWords>(words, to + header_bytes(f));
  }
}

}  // namespace

int64_t panel_bytes(Codec codec, int64_t tiles) {
  const CodecFacts& f = facts(codec);
  if (is_quantised(codec)) return tiles / f.tiles * block_bytes(f);
  if (codec == Codec::f8_e4m3) {
    return (runs_of(tiles * kTile) * static_cast<int64_t>(sizeof(float)) + tiles * kTile) * kLanes;
  }
  return tiles * kTile / f.stored_elements * kLanes * f.stored_bytes;
}

void pack_panel(Codec codec, int64_t in, const uint8_t* const* rows, uint8_t* to) {
  if (is_quantised(codec)) {
    with_quantised(codec, [&]<Codec C>() {
      const int64_t blocks = in / facts(C).stored_elements;
      if constexpr (facts(C).book.length > 0) {
        pack_books<C>(rows, blocks, to);
      } else {
        pack_blocks<C>(rows, blocks, to);
      }
    });
  } else if (codec == Codec::f16) {
    pack_halves(rows, in, to);
  } else if (codec == Codec::f8_e4m3) {
    pack_scaled(rows, in, (in + kTile - 1) / kTile, to);
  } else if (codec == Codec::nf4) {
    pack_nf4(rows, in, to);
  } else {
    pack_words(rows, row_bytes(codec, in), to);
  }
}

void pack_rows(Codec codec, int64_t in, const std::vector<StoredRows>& parts, int64_t panel,
               uint8_t* gathered, uint8_t* to) {
  const int64_t bytes = row_bytes(codec, in);
  const uint8_t* rows[kLanes] = {};
  int64_t before = 0;
  for (const StoredRows& part : parts) {
    const int64_t first = panel * kLanes - before;
    const int64_t begin = std::max<int64_t>(0, -first);  // of the lanes that are rows of the part
    const int64_t end = std::min(kLanes, part.count - first);
    if (part.gathered() && begin < end) {
      part.gather(first + begin, end - begin, gathered + begin * bytes);
    }
    for (int64_t lane = begin; lane < end; ++lane) {
      rows[lane] = part.gathered() ? gathered + lane * bytes : part.row(first + lane);
    }
    before += part.count;
  }
  pack_panel(codec, in, rows, to);
}

int64_t row_bytes(Codec codec, int64_t width) {
  if (codec == Codec::f8_e4m3) {
    return width + runs_of(width) * static_cast<int64_t>(sizeof(float));
  }
  return width / facts(codec).stored_elements * facts(codec).stored_bytes;
}

PackedLinear::PackedLinear(ThreadPool& pool, Slabs& memory, Codec codec, int64_t in,
                           const std::vector<StoredRows>& parts, std::vector<float> bias)
    : codec_(codec),
      out_(rows_of(parts)),
      in_(in),
      tiles_((in + kTile - 1) / kTile),
      panel_bytes_(headrace::panel_bytes(codec, tiles_)),
      panels_(memory.take((out_ + kLanes - 1) / kLanes * panel_bytes_)),
      bias_(std::move(bias)) {
  const int64_t panels = (out_ + kLanes - 1) / kLanes;
  const int64_t of_panel = any_gathered(parts) ? kLanes * row_bytes(codec, in) : 0;
  Buffer gathered(pool.size() * of_panel);
  read_files_ahead(parts);
  // Pieces of about 1 MiB: enough of them to even out the threads, each long enough to stream.
  pool.for_ranges(panels, panels_.bytes() >> 20, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t panel = begin; panel < end; ++panel) {
      pack_rows(codec, in, parts, panel, gathered.data() + thread * of_panel,
                panels_.data() + panel * panel_bytes_);
    }
  });
}

PackedMatrix PackedLinear::view() const {
  return {codec_, out_, in_, tiles_, panel_bytes_, panels_.data(),
          bias_.empty() ? nullptr : bias_.data()};
}

}  // namespace headrace
