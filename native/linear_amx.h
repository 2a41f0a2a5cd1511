// y = W x for many rows by tile products, bit for bit what avx512 computes: TDPBF16PS adds as the
// chains of even and odd terms do (chains.h; F8_E4M3 is decoded to bf16), and sums of bytes are
// exact integers, which then meet their scales as in linear_int8.h.
//
// `Tiles` are the instructions (amx_tiles.h), or their twin in the tests. A block of rows is two
// tiles of up to 16, a block of outputs two panels: sums 0..3, rows 4 and 5, weights 6 and 7.

#pragma once

#include "amx_tiles.h"
#include "kernels.h"
#include "linear_scaled.h"
#include "linear_int8.h"
#include "row_blocks.h"

namespace headrace {
const Kernels& best_avx512_kernels();
const Kernels& avx512_bf16_kernels();
}  // namespace headrace

namespace {

using headrace::is_quantised;
using headrace::Kernels;
using headrace::rounds_activations;
using headrace::Operands;
using headrace::Product;

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileRowBytes = 64;
// Rows that go through a block of k together, so that weights come from memory once for all of
// them: their sums (64 KiB) wait in scratch, they themselves in the second-level cache.
constexpr int64_t kAmxRows = 512;
// Tiles of a k block of BF16: 8 x 32 k x 32 outputs x 2 bytes = 16 KiB of weights, and as much of
// 32 rows, in a first-level cache of 48 KiB.
constexpr int64_t kAmxTiles = 8;
constexpr int64_t kSumStride = kBlockPanels * kLanes * static_cast<int64_t>(sizeof(float));

struct AmxScratch {
  alignas(64) float sums[kAmxRows * kBlockPanels * kLanes];
  alignas(64) int32_t whole[2 * kTileRows * kBlockPanels * kLanes];
  alignas(64) uint8_t unpacked[kUnpackedBytes];
};

// Sums, rows of `bytes_of_k` bytes, and weights for a block of `rows` rows.
static TileConfig config_of(int64_t rows, int64_t bytes_of_k) {
  TileConfig config;
  const int64_t first = rows < kTileRows ? rows : kTileRows;
  const auto shape = [&](int tile, int64_t tile_rows, int64_t row_bytes) {
    config.rows[tile] = static_cast<uint8_t>(tile_rows);
    config.row_bytes[tile] = static_cast<uint16_t>(tile_rows == 0 ? 0 : row_bytes);
  };
  for (int tile = 0; tile < 4; ++tile) {
    shape(tile, tile < 2 ? first : rows - first, kTileRowBytes);
  }
  shape(4, first, bytes_of_k);
  shape(5, rows - first, bytes_of_k);
  for (int tile = 6; tile < 8; ++tile) shape(tile, bytes_of_k / 4, kTileRowBytes);
  return config;
}

// Calls fn<two row tiles, two panels>().
template <class Fn>
HEADRACE_INLINE void with_shape(int64_t rows, int64_t panels, const Fn& fn) {
  if (rows > kTileRows) {
    if (panels == 2) return fn.template operator()<true, true>();
    return fn.template operator()<true, false>();
  }
  if (panels == 2) return fn.template operator()<false, true>();
  fn.template operator()<false, false>();
}

// Calls load<tile>(row tile, panel) or the like for the sums there are.
template <bool kTwoRows, bool kTwoPanels, class Fn>
HEADRACE_INLINE void for_sums(const Fn& fn) {
  fn.template operator()<0>(0, 0);
  if constexpr (kTwoPanels) fn.template operator()<1>(0, 1);
  if constexpr (kTwoRows) fn.template operator()<2>(1, 0);
  if constexpr (kTwoRows && kTwoPanels) fn.template operator()<3>(1, 1);
}

// sums += x * w over `tiles` tiles of k. One row tile reads weights from memory, once.
template <class Tiles, bool kTwoRows, bool kTwoPanels>
static void bf16_block(const uint16_t* x, int64_t stride, const uint8_t* w, int64_t panel_bytes,
                       int64_t tiles, float* sums) {
  constexpr int64_t kWeightBytes = kTile * kLanes * 2;
  const int64_t row_bytes = stride * 2;
  const auto sum_at = [&](int row_tile, int panel) {
    return sums + (row_tile * kTileRows * kBlockPanels + panel) * kLanes;
  };
  for_sums<kTwoRows, kTwoPanels>([&]<int kSum>(int row_tile, int panel) {
    Tiles::template load<kSum>(sum_at(row_tile, panel), kSumStride);
  });
  for (int64_t t = 0; t < tiles; ++t, x += kTile, w += kWeightBytes) {
    Tiles::template load<4>(x, row_bytes);
    if constexpr (kTwoRows) Tiles::template load<5>(x + kTileRows * stride, row_bytes);
    Tiles::template load<6>(w, kTileRowBytes);
    if constexpr (kTwoPanels) Tiles::template load<7>(w + panel_bytes, kTileRowBytes);
    for (int64_t at = 0; !kTwoRows && at < kWeightBytes; at += 64) {
      prefetch(w + kPrefetchBytes + at);
      if constexpr (kTwoPanels) prefetch(w + panel_bytes + kPrefetchBytes + at);
    }
    Tiles::template multiply_bf16<0, 4, 6>();
    if constexpr (kTwoPanels) Tiles::template multiply_bf16<1, 4, 7>();
    if constexpr (kTwoRows) Tiles::template multiply_bf16<2, 5, 6>();
    if constexpr (kTwoRows && kTwoPanels) Tiles::template multiply_bf16<3, 5, 7>();
  }
  for_sums<kTwoRows, kTwoPanels>([&]<int kSum>(int row_tile, int panel) {
    Tiles::template store<kSum>(sum_at(row_tile, panel), kSumStride);
  });
}

// Blocks of 32 rows; the tiles take a new shape where the last block is shorter.
template <class Tiles, class Fn>
HEADRACE_INLINE void for_row_blocks(int64_t rows, int64_t bytes_of_k, const Fn& fn) {
  for (int64_t i = 0; i < rows; i += 2 * kTileRows) {
    const int64_t n = rows - i < 2 * kTileRows ? rows - i : 2 * kTileRows;
    if (i == 0 || n < 2 * kTileRows) Tiles::configure(config_of(n, bytes_of_k));
    fn(i, n);
  }
}

// `bytes` of each of the panels from `at` on, or from the next ones' beginning where these end
// there.
static NextBlock next_block(const LinearArgs& a, int64_t panel, int64_t count, int64_t at,
                            int64_t bytes) {
  const bool ends = at >= a.weight.panel_bytes;
  return {a.weight.panels + (ends ? panel + count : panel) * a.weight.panel_bytes + (ends ? 0 : at),
          a.weight.panel_bytes, bytes};
}

template <class Tiles>
static void panels_bf16(const LinearArgs& a, int64_t panel, int64_t count, int64_t row,
                        int64_t rows, AmxScratch* s) {
  const int64_t all = a.weight.tiles, stride = a.x.stride;
  const uint8_t* w = a.weight.panels + panel * a.weight.panel_bytes;
  for (int64_t tile = 0; tile < all; tile += kAmxTiles) {
    const int64_t tiles = all - tile < kAmxTiles ? all - tile : kAmxTiles;
    const NextBlock ahead = next_block(a, panel, count, (tile + tiles) * kTile * kLanes * 2,
                                       tiles * kTile * kLanes * 2);
    for_row_blocks<Tiles>(rows, kTileRowBytes, [&](int64_t i, int64_t n) {
      if (rows > kTileRows) NextBlock::prefetch_all(NextBlock::share(ahead, i, n, rows), count);
      if (tile + tiles == all) Outputs::prefetch_all(Outputs::of(a, panel, row + i, n), count);
      const uint16_t* x = a.x.half + (row + i) * stride + tile * kTile;
      float* sums = s->sums + i * kBlockPanels * kLanes;
      with_shape(n, count, [&]<bool kTwoRows, bool kTwoPanels>() {
        bf16_block<Tiles, kTwoRows, kTwoPanels>(x, stride, w + tile * kTile * kLanes * 2,
                                                a.weight.panel_bytes, tiles, sums);
      });
    });
  }
}

// Weights of one run of F8_E4M3 as pairs of bf16, 2^-8 of what they are: [panel][k / 2][16][2].
constexpr int64_t kRunPairBytes = headrace::kRun * kLanes * 2;
static_assert(kBlockPanels * kRunPairBytes <= kUnpackedBytes);

static void decode_run(const LinearArgs& a, int64_t panel, int64_t count, int64_t tile,
                       int64_t tiles, uint8_t* to) {
  for (int64_t j = 0; j < count; ++j) {
    const uint8_t* w = scaled_values<F8Scaled>(a, panel + j, tile);
    uint8_t* pairs = to + j * kRunPairBytes;
    for (int64_t p = 0; p < tiles * kTile / 2; ++p, w += F8Pairs::kPair, pairs += kTileRowBytes) {
      F e, o;
      F8Pairs::read(w, e, o);
      const I low = _mm512_srli_epi32(_mm512_castps_si512(e), 16);
      const I high = _mm512_and_si512(_mm512_castps_si512(o), _mm512_set1_epi32(-65536));
      _mm512_storeu_si512(pairs, _mm512_or_si512(low, high));
    }
  }
}

// sums += scale * (x * w) over the tiles of one run: the chains of a tile of k at a time.
template <class Tiles, bool kTwoRows, bool kTwoPanels>
static void scaled_block(const uint16_t* x, int64_t stride, const uint8_t* w, const float* scales,
                         int64_t scale_panel, int64_t tiles, int64_t rows, float* of_tile,
                         float* sums) {
  constexpr int64_t kWeightBytes = kTile * kLanes * 2;
  const int64_t row_bytes = stride * 2;
  for (int64_t t = 0; t < tiles; ++t, x += kTile, w += kWeightBytes) {
    for_sums<kTwoRows, kTwoPanels>([&]<int kSum>(int, int) { Tiles::template zero<kSum>(); });
    Tiles::template load<4>(x, row_bytes);
    if constexpr (kTwoRows) Tiles::template load<5>(x + kTileRows * stride, row_bytes);
    Tiles::template load<6>(w, kTileRowBytes);
    if constexpr (kTwoPanels) Tiles::template load<7>(w + kRunPairBytes, kTileRowBytes);
    Tiles::template multiply_bf16<0, 4, 6>();
    if constexpr (kTwoPanels) Tiles::template multiply_bf16<1, 4, 7>();
    if constexpr (kTwoRows) Tiles::template multiply_bf16<2, 5, 6>();
    if constexpr (kTwoRows && kTwoPanels) Tiles::template multiply_bf16<3, 5, 7>();
    for_sums<kTwoRows, kTwoPanels>([&]<int kSum>(int row_tile, int panel) {
      Tiles::template store<kSum>(
          of_tile + (row_tile * kTileRows * kBlockPanels + panel) * kLanes, kSumStride);
    });
    for (int64_t j = 0; j < (kTwoPanels ? 2 : 1); ++j) {
      const F scale = load(scales + j * scale_panel);
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t at = (i * kBlockPanels + j) * kLanes;
        store(sums + at, fma(load(of_tile + at), scale, load(sums + at)));
      }
    }
  }
}

template <class Tiles>
static void panels_scaled(const LinearArgs& a, int64_t panel, int64_t count, int64_t row,
                          int64_t rows, AmxScratch* s) {
  const int64_t all = a.weight.tiles, stride = a.x.stride;
  const int64_t scale_panel = a.weight.panel_bytes / static_cast<int64_t>(sizeof(float));
  float* const of_tile = reinterpret_cast<float*>(s->whole);
  for (int64_t tile = 0; tile < all; tile += F8Scaled::kRunTiles) {
    const int64_t tiles = all - tile < F8Scaled::kRunTiles ? all - tile : F8Scaled::kRunTiles;
    const float* scales = run_scales(a, panel) + tile / F8Scaled::kRunTiles * kLanes;
    decode_run(a, panel, count, tile, tiles, s->unpacked);
    for_row_blocks<Tiles>(rows, kTileRowBytes, [&](int64_t i, int64_t n) {
      const uint16_t* x = a.x.half + (row + i) * stride + tile * kTile;
      float* sums = s->sums + i * kBlockPanels * kLanes;
      with_shape(n, count, [&]<bool kTwoRows, bool kTwoPanels>() {
        scaled_block<Tiles, kTwoRows, kTwoPanels>(x, stride, s->unpacked, scales, scale_panel,
                                                  tiles, n, of_tile, sums);
      });
    });
  }
}

// The t-th tile of those at w, which is of tiles or of blocks.
template <class Unpacked>
HEADRACE_INLINE auto& tile_of(Unpacked* w, int64_t t) {
  if constexpr (Unpacked::kTiles == 1) {
    return w[t];
  } else {
    return w[t / Unpacked::kTiles].tiles[t % Unpacked::kTiles];
  }
}

// Bytes of `tiles` unpacked tiles less what they mean zero by: signed, so that sums need no start.
template <int kZero, class Unpacked>
static void centre(Unpacked* w, int64_t tiles) {
  const I by = _mm512_set1_epi8(static_cast<char>(kZero));
  for (int64_t t = 0; t < tiles; ++t) {
    for (auto& four : tile_of(w, t).bytes) {
      _mm512_storeu_si512(four, _mm512_sub_epi8(_mm512_loadu_si512(four), by));
    }
  }
}

// sums += x * w of MR rows and a panel over `tiles` unpacked tiles. The integers of a tile of k
// come by way of `whole`, while those of the tile before meet their scales as in unpacked_sums.
template <class Tiles, int MR, bool kMins, bool kSigned, class Unpacked>
static void int8_panel(const Int8Rows& x, const Unpacked* w, int64_t tiles, int32_t* whole,
                       float* sums) {
  constexpr int64_t kSlot = kTileRows * kLanes;
  constexpr bool kBlocks = Unpacked::kTiles > 1;
  const int64_t row_bytes = x.tiles * kTile;
  F total[MR][1];  // of a block, where blocks are summed
HEADRACE_UNROLL
  for (int i = 0; i < MR; ++i) {
    total[i][0] = kBlocks ? zero() : load(sums + i * kBlockPanels * kLanes);
  }
  const auto multiply = [&]<int kOdd>(int64_t t) __attribute__((always_inline)) {
    Tiles::template zero<kOdd>();
    Tiles::template load<4 + kOdd>(x.q + t * kTile, row_bytes);
    Tiles::template load<6 + kOdd>(tile_of(w, t).bytes, kTileRowBytes);
    if constexpr (kSigned) {
      Tiles::template multiply_signed<kOdd, 4 + kOdd, 6 + kOdd>();
    } else {
      Tiles::template multiply_int8<kOdd, 4 + kOdd, 6 + kOdd>();
    }
    Tiles::template store<kOdd>(whole + kOdd * kSlot, kTileRowBytes);
  };
  const auto scale = [&](int64_t t, const int32_t* of) __attribute__((always_inline)) {
    const F factor = load(tile_of(w, t).factors[0]);
HEADRACE_UNROLL
    for (int i = 0; i < MR; ++i) {
      const F sum = to_float(_mm512_loadu_si512(of + i * kLanes));
      const F by = kBlocks ? factor : mul(factor, splat(x.d[i * x.tiles + t]));
      total[i][0] = fma(sum, by, total[i][0]);
    }
    if constexpr (kMins && !kBlocks) {
      const F min = load(w[t].factors[1]);
HEADRACE_UNROLL
      for (int i = 0; i < MR; ++i) {
        total[i][0] = fnma(min, splat(x.sums[i * x.tiles + t]), total[i][0]);
      }
    }
  };
  multiply.template operator()<0>(0);
  for (int64_t t = 0; t < tiles; t += 2) {
    const bool odd = t + 1 < tiles;
    if (odd) multiply.template operator()<1>(t + 1);
    scale(t, whole);
    if (t + 2 < tiles) multiply.template operator()<0>(t + 2);
    if (odd) scale(t + 1, whole + kSlot);
    if constexpr (kBlocks) {
      if ((t + 2) % Unpacked::kTiles != 0) continue;
      const Unpacked& block = w[t / Unpacked::kTiles];
      const int64_t first = t + 2 - Unpacked::kTiles;
      add_block<MR, 1, kMins>(total, {{load(block.d), load(block.m), block.mins}}, x.d + first,
                            kMins ? x.whole_sums + first : nullptr, x.tiles, sums);
HEADRACE_UNROLL
      for (int i = 0; i < MR; ++i) total[i][0] = zero();
    }
  }
HEADRACE_UNROLL
  for (int i = 0; i < MR && !kBlocks; ++i) store(sums + i * kBlockPanels * kLanes, total[i][0]);
}

// Of two tiles of k in turns: sums 0 and 1, `rows` rows 4 and 5, weights 6 and 7.
static TileConfig config_of_bytes(int64_t rows) {
  constexpr int kUsed[] = {0, 1, 4, 5, 6, 7};
  TileConfig config;
  for (int tile : kUsed) {
    const bool is_x = tile == 4 || tile == 5;
    config.rows[tile] = static_cast<uint8_t>(tile > 5 ? kFours : rows);
    config.row_bytes[tile] = static_cast<uint16_t>(is_x ? kTile : kTileRowBytes);
  }
  return config;
}

template <class Tiles, bool kMins, bool kSigned, class Unpacked>
static void unpacked_rows_amx(const LinearArgs& a, const Unpacked* w, int64_t panel, int64_t count,
                              int64_t row, int64_t rows, int64_t tile, int64_t tiles,
                              const NextBlock& ahead, AmxScratch* s) {
  constexpr int64_t kPanel = kUnpackedTiles / Unpacked::kTiles;
  for (int64_t i = 0; i < rows; i += kTileRows) {
    const int64_t n = rows - i < kTileRows ? rows - i : kTileRows;
    NextBlock::prefetch_all(NextBlock::share(ahead, i, n, rows), count);
    if (tile + tiles == a.weight.tiles) {
      Outputs::prefetch_all(Outputs::of(a, panel, row + i, n), count);
    }
    if (i == 0 || n < kTileRows) Tiles::configure(config_of_bytes(n));
    const Int8Rows x = Int8Rows::at(a.x, a.weight.tiles, 1, row + i, tile);
    with_rows<kTileRows>(n, [&]<int MR>() {
      for (int64_t j = 0; j < count; ++j) {
        int8_panel<Tiles, MR, kMins, kSigned>(x, w + j * kPanel, tiles, s->whole,
                                              s->sums + (i * kBlockPanels + j) * kLanes);
      }
    });
  }
}

// Whether products of bytes by tiles are the faster ones for as many rows as can be. Where a tile
// of k has two scales, half of a tile register and twice the scaling leave nothing of what they
// spare.
static constexpr bool tiles_pay(Codec codec) { return facts(codec).groups == 1; }

template <class Tiles, Codec C>
static void panels_int8(const LinearArgs& a, int64_t panel, int64_t count, int64_t row,
                        int64_t rows, AmxScratch* s) {
  using P = Packed<C>;
  using Unpacked = UnpackedOf<P>;
  constexpr int64_t kPanel = kUnpackedTiles / Unpacked::kTiles;
  constexpr int kZero = facts(C).zero;
  Unpacked* w = reinterpret_cast<Unpacked*>(s->unpacked);
  const int64_t all = a.weight.tiles, stride = a.weight.panel_bytes;
  for (int64_t tile = 0; tile < all; tile += kUnpackedTiles) {
    const int64_t tiles = all - tile < kUnpackedTiles ? all - tile : kUnpackedTiles;
    const uint8_t* from = a.weight.panels + panel * stride + tile / P::kTiles * P::kBlockBytes;
    for (int64_t j = 0; j < count; ++j) {
      unpack<C>(from + j * stride, tiles / P::kTiles, w + j * kPanel);
      if constexpr (kZero != 0) centre<kZero>(w + j * kPanel, tiles);
    }
    const int64_t bytes = tiles / P::kTiles * P::kBlockBytes;
    const NextBlock ahead =
        next_block(a, panel, count, tile / P::kTiles * P::kBlockBytes + bytes, bytes);
    unpacked_rows_amx<Tiles, P::kMins, kZero != 0>(a, w, panel, count, row, rows, tile, tiles,
                                                              ahead, s);
  }
}

// BF16 and F8_E4M3 (activations as bf16) and quantised weights. The tiles are configured on entry
// and released at the end: a thread that sleeps has none that the system would have to save.
template <class Tiles>
static void linear_amx(const LinearArgs& a, const PanelRange& panels, int64_t row_begin,
                       int64_t row_end, void* scratch) {
  static_assert(kBlockPanels == 2 && !kSignedBytes);
  AmxScratch* s = static_cast<AmxScratch*>(scratch);
  for (int64_t row = row_begin; row < row_end; row += kAmxRows) {
    const int64_t rows = row_end - row < kAmxRows ? row_end - row : kAmxRows;
    for (int64_t panel = panels.begin; panel < panels.end; panel += kBlockPanels) {
      const int64_t left = panels.end - panel, count = left < kBlockPanels ? left : kBlockPanels;
      clear_sums(s->sums, rows);
      if (a.weight.codec == Codec::bf16) {
        panels_bf16<Tiles>(a, panel, count, row, rows, s);
      } else if (a.weight.codec == Codec::f8_e4m3) {
        panels_scaled<Tiles>(a, panel, count, row, rows, s);
      } else {
        headrace::with_quantised(a.weight.codec, [&]<Codec C>() {
          if constexpr (tiles_pay(C)) panels_int8<Tiles, C>(a, panel, count, row, rows, s);
        });
      }
      finish(a, s->sums, panel, count, row, rows);
    }
  }
  Tiles::release();
}

// Multiplies alone, for the probe: four products a round.
template <class Tiles>
static float probe_tiles(bool int8, int64_t rounds) {
  Tiles::configure(config_of(2 * kTileRows, kTileRowBytes));
  for_sums<true, true>([&]<int kSum>(int, int) { Tiles::template zero<kSum>(); });
  Tiles::template zero<4>();
  Tiles::template zero<5>();
  Tiles::template zero<6>();
  Tiles::template zero<7>();
  for (int64_t round = 0; round < rounds; ++round) {
    if (int8) {
      Tiles::template multiply_int8<0, 4, 6>();
      Tiles::template multiply_int8<1, 4, 7>();
      Tiles::template multiply_int8<2, 5, 6>();
      Tiles::template multiply_int8<3, 5, 7>();
    } else {
      Tiles::template multiply_bf16<0, 4, 6>();
      Tiles::template multiply_bf16<1, 4, 7>();
      Tiles::template multiply_bf16<2, 5, 6>();
      Tiles::template multiply_bf16<3, 5, 7>();
    }
  }
  Tiles::release();
  return 0;
}
// Operations of a round, a multiply and an add each: rows of 64 bytes are twice as many k in bytes.
constexpr int64_t kTileOpsBf16 = 4 * kTileRows * kLanes * kTile * 2;
constexpr int64_t kTileOpsInt8 = 2 * kTileOpsBf16;

// Rows from which on tiles are faster (benchmarks/product_rows.py on one thread of an Intel Xeon,
// docs/kernels.md). Weights of 16 bits are read as they lie, and a tile of 16 rows costs about what
// one of 5 does; F8_E4M3 is decoded first, bytes are unpacked and their sums scaled by vectors all
// the same.
constexpr int64_t kBf16From = 5;
constexpr int64_t kFloat8From = 7;
constexpr int64_t kBytesFrom = 48;

// The level avx512 with tile products for many rows of BF16, F8_E4M3 and quantised weights, and
// with the attention of avx512_bf16, whose instructions a processor with tiles for BF16 has too.
template <class Tiles>
struct AmxLevel {
  static constexpr Product kBf16 = {
      .half_operand = true, .scratch_bytes = sizeof(AmxScratch), .linear = linear_amx<Tiles>};
  static constexpr Product kInt8 = {
      .half_operand = false, .scratch_bytes = sizeof(AmxScratch), .linear = linear_amx<Tiles>};

  static const Product& product(Codec codec, bool many_rows) {
    if (many_rows && rounds_activations(codec)) return kBf16;
    if (many_rows && is_quantised(codec) && tiles_pay(codec)) return kInt8;
    return headrace::best_avx512_kernels().product(codec, many_rows);
  }
  static int64_t many_from(Codec codec) {
    if (codec == Codec::bf16) return kBf16From;
    if (codec == Codec::f8_e4m3) return kFloat8From;
    return is_quantised(codec) && tiles_pay(codec) ? kBytesFrom : headrace::kManyRows;
  }
  static float probe_multiply(Operands kind, int64_t rounds) {
    if (kind == Operands::f32) return headrace::best_avx512_kernels().probe_multiply(kind, rounds);
    if (kind == Operands::bf16_pairs) {
      return headrace::avx512_bf16_kernels().probe_multiply(Operands::bf16, rounds);
    }
    return probe_tiles<Tiles>(kind == Operands::int8, rounds);
  }
  static Kernels kernels(const char* level) {
    Kernels kernels = headrace::best_avx512_kernels();
    kernels.level = level;
    kernels.product = product;
    const Kernels& by_pairs = headrace::avx512_bf16_kernels();
    kernels.attention = by_pairs.attention;
    kernels.attention_scratch_bytes = by_pairs.attention_scratch_bytes;
    kernels.many_from = many_from;
    kernels.probe_multiply = probe_multiply;
    kernels.probe_ops[static_cast<int>(Operands::bf16)] = kTileOpsBf16;
    kernels.probe_ops[static_cast<int>(Operands::int8)] = kTileOpsInt8;
    kernels.probe_ops[static_cast<int>(Operands::bf16_pairs)] =
        by_pairs.probe_ops[static_cast<int>(Operands::bf16)];
    return kernels;
  }
};

}  // namespace
