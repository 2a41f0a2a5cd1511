#include "pack.h"

#include <cstring>
#include <utility>

namespace headrace {
namespace {

constexpr int64_t kStoredQ8Block = 34;  // f16 d, int8 q[32]

using Rows = const uint8_t* const*;  // 16 of them; null past the last output

// 32-bit words of `count` columns of 16 rows: to[column][row].
void transpose_words(Rows rows, int64_t from, int64_t count, uint32_t flip, uint8_t* to) {
  for (int64_t row = 0; row < kLanes; ++row) {
    if (rows[row] == nullptr) continue;
    for (int64_t i = 0; i < count; ++i) {
      uint32_t word;
      std::memcpy(&word, rows[row] + from + i * 4, 4);
      word ^= flip;
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
    transpose_words(rows, i * 4, count, 0, to + i * kLanes * 4);
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

// Q8_0: per block the 16 scales, then the bytes of 4 k by 16 outputs, + 128. Rows past the last
// output keep scale 0, so what their bytes are does not matter.
void pack_q8(Rows rows, int64_t blocks, uint8_t* to) {
  for (int64_t b = 0; b < blocks; ++b) {
    uint8_t* block = to + b * kQ8BlockBytes;
    for (int64_t row = 0; row < kLanes; ++row) {
      if (rows[row] != nullptr) std::memcpy(block + row * 2, rows[row] + b * kStoredQ8Block, 2);
    }
    transpose_words(rows, b * kStoredQ8Block + 2, 8, 0x80808080u, block + 32);
  }
}

int64_t panel_bytes(Codec codec, int64_t tiles) {
  switch (codec) {
    case Codec::f32:
      return tiles * kTile * kLanes * 4;
    case Codec::f16:
    case Codec::bf16:
      return tiles * kTile * kLanes * 2;
    case Codec::q8_0:
      return tiles * kQ8BlockBytes;
  }
  return 0;
}

}  // namespace

int64_t row_bytes(Codec codec, int64_t width) {
  if (codec == Codec::q8_0) return width / kTile * kStoredQ8Block;
  return width * (codec == Codec::f32 ? 4 : 2);
}

PackedLinear::PackedLinear(ThreadPool& pool, Codec codec, int64_t in,
                           const std::vector<const uint8_t*>& rows, std::vector<float> bias)
    : codec_(codec),
      out_(static_cast<int64_t>(rows.size())),
      in_(in),
      tiles_((in + kTile - 1) / kTile),
      panel_bytes_(headrace::panel_bytes(codec, tiles_)),
      panels_((out_ + kLanes - 1) / kLanes * panel_bytes_),
      bias_(std::move(bias)) {
  const int64_t panels = (out_ + kLanes - 1) / kLanes;
  // Pieces of about 1 MiB: enough of them to even out the threads, each long enough to stream.
  pool.for_ranges(panels, panels_.bytes() >> 20, [&](int64_t begin, int64_t end, int) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const uint8_t* of_panel[kLanes] = {};
      for (int64_t i = 0; i < kLanes && panel * kLanes + i < out_; ++i) {
        of_panel[i] = rows[static_cast<size_t>(panel * kLanes + i)];
      }
      uint8_t* to = panels_.data() + panel * panel_bytes_;
      if (codec == Codec::q8_0) {
        pack_q8(of_panel, tiles_, to);
      } else if (codec == Codec::f16) {
        pack_halves(of_panel, in, to);
      } else {
        pack_words(of_panel, row_bytes(codec, in), to);
      }
    }
  });
}

PackedMatrix PackedLinear::view() const {
  return {codec_, out_, in_, tiles_, panel_bytes_, panels_.data(),
          bias_.empty() ? nullptr : bias_.data()};
}

}  // namespace headrace
