#include "twin.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "check.h"
#include "pack.h"
#include "stored.h"

namespace headrace::tests {

float Rounding::multiply_add(float a, float b, float c) const {
  return fused ? std::fma(a, b, c) : a * b + c;
}

Rounding rounding_of(const Kernels& kernels) {
  const std::string level = kernels.level;
  const bool bf16 = level == "avx512_bf16";
  return {level != "portable", bf16, bf16 || level == "amx" || level == "amx_twin"};
}

float from_f16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, rest = bits & 1023;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(rest), -24)
                                   : std::ldexp(static_cast<float>(1024 + rest), exponent - 25);
  return bits >> 15 != 0 ? -size : size;
}

float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float from_e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15, rest = bits & 7;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(rest), -9)
                                   : std::ldexp(static_cast<float>(8 + rest), exponent - 10);
  return bits >> 7 != 0 ? -size : size;
}

float to_bf16(float x) {
  if (std::isnan(x)) return x;
  const uint32_t bits = std::bit_cast<uint32_t>(x), below = bits & 0xffff;
  uint32_t upper = bits >> 16;
  if (below > 0x8000 || (below == 0x8000 && (upper & 1) != 0)) ++upper;
  return std::bit_cast<float>(upper << 16);
}

void EvenOdd::add(const Rounding& r, int64_t k, float a, float b) {
  float& chain = k % 2 == 0 ? even : odd;
  chain = r.multiply_add(a, b, chain);
}

float sum_of_lanes(const float (&lanes)[16]) {
  float left[16];
  std::memcpy(left, lanes, sizeof left);
  for (int half = 8; half >= 1; half /= 2) {
    for (int i = 0; i < half; ++i) left[i] += left[i + half];
  }
  return left[0];
}

namespace {

uint16_t random_f16(Random& random) {
  // Any sign, exponents up to 2^0, subnormal ones among them.
  const int64_t exponent = random.below(8) == 0 ? 0 : 9 + random.below(6);
  return static_cast<uint16_t>(random.below(2) << 15 | exponent << 10 | random.below(1024));
}

// Where the halves of a stored block lie (MXFP4: its exponent); -1 where there is none.
struct HalfPlaces {
  int d, m;
};
HalfPlaces half_places(Codec codec) {
  switch (codec) {
    case Codec::q2_k: return {80, 82};
    case Codec::q3_k: return {108, -1};
    case Codec::q6_k: return {208, -1};
    case Codec::tq1_0: return {52, -1};
    case Codec::tq2_0: return {64, -1};
    case Codec::q4_1: case Codec::q5_1: case Codec::q4_k: case Codec::q5_k: return {0, 2};
    default: return {0, -1};
  }
}

// Half of a number of four bits of exponent and three of fraction.
float half_of_e4m3(uint8_t bits) {
  const int exponent = bits >> 3, rest = bits & 7;
  return std::ldexp(static_cast<float>(exponent == 0 ? rest : 8 + rest),
                    (exponent == 0 ? 1 : exponent) - 11);
}

template <Codec C>
void add_block(StoredMatrix& w, Random& random, uint8_t* block) {
  constexpr CodecFacts f = facts(C);
  for (int64_t i = 0; i < f.stored_bytes; ++i) block[i] = static_cast<uint8_t>(random.bits());
  const HalfPlaces places = half_places(C);
  const uint16_t d = random_f16(random), m = random_f16(random);
  if constexpr (f.scales == Scales::exponent) {
    block[0] = static_cast<uint8_t>(random.below(8) == 0 ? random.below(4) : 120 + random.below(9));
  } else if constexpr (C == Codec::iq1_m) {
    // The high four bits of each of four words; the low ones are scales.
    for (int i = 0; i < 4; ++i) {
      uint8_t& high = block[49 + 2 * i];
      high = static_cast<uint8_t>((high & 15) | (d >> (4 * i) & 15) << 4);
    }
  } else if constexpr (f.scales == Scales::single) {
    const float single = from_f16(d) * 1.37f;
    std::memcpy(block, &single, 4);
    if constexpr (f.mins) {
      block[4] = static_cast<uint8_t>(random.below(f.most < 255 ? f.most + 2 : 256));
    }
  } else if constexpr (f.scales == Scales::folded) {
    const float single = from_f16(d) * 1.37f;
    std::memcpy(block, &single, 4);
    for (int64_t g = 0; g < f.tiles * f.groups; ++g) {
      block[4 + g] = static_cast<uint8_t>(random.below(0x7f));
    }
  } else if constexpr (f.scales != Scales::small) {
    std::memcpy(block + places.d, &d, 2);
    if (places.m >= 0) std::memcpy(block + places.m, &m, 2);
  }
  StoredBlock stored;
  read_block<C>(block, stored);
  const bool scaled =
      f.scales == Scales::bytes || f.scales == Scales::nibbles || f.scales == Scales::odd;
  for (int64_t i = 0; i < f.stored_elements; ++i) {
    const int64_t per_group = kTile / f.groups;
    if (i % per_group == 0) {
      const float of_group =
          scaled ? static_cast<float>(static_cast<int8_t>(stored.scales[i / per_group])) : 1.0f;
      // An exponent of 0 or 1 would be a denormal number, which is zero here.
      float block_scale = from_f16(stored.d) * f.book.factor;
      if constexpr (f.scales == Scales::exponent) {
        block_scale = stored.d < 2 ? 0.0f : std::ldexp(1.0f, stored.d - 128);
      }
      if constexpr (f.scales == Scales::small) {
        block_scale = half_of_e4m3(stored.scales[i / per_group]);
      }
      if constexpr (f.scales == Scales::single) block_scale = stored.single;
      if constexpr (f.scales == Scales::folded) {
        block_scale = stored.single * half_of_e4m3(stored.scales[i / per_group]);
      }
      if (sums_blocks(f) && i == 0) {
        w.block_scales.push_back(block_scale);
        w.block_mins.push_back(f.mins ? from_f16(stored.m) : 0.0f);
      }
      w.scales.push_back(sums_blocks(f) ? of_group : block_scale * of_group);
      const float times = scaled ? static_cast<float>(stored.mins[i / per_group]) : 1.0f;
      float min = f.mins ? from_f16(stored.m) * times : 0.0f;
      if constexpr (f.scales == Scales::single && f.mins) {
        min = block_scale * static_cast<float>(stored.mins[0]);
      }
      w.mins.push_back(sums_blocks(f) ? times : min);
    }
    int32_t byte = stored.q[i / 4] >> (8 * (i % 4)) & 255;
    if (f.table != Table::none) byte = table_of(f.table)[byte];
    w.whole.push_back(byte - f.zero);
    float scale = w.scales.back(), min = w.mins.back();
    if (sums_blocks(f)) {
      scale *= w.block_scales.back();
      min *= w.block_mins.back();
    }
    const float value = scale * static_cast<float>(byte - f.zero);
    w.values.push_back(f.mins ? value - min : value);
  }
}

// Scales of any size that are no powers of two, then values, subnormal ones and zeros among them.
void add_scaled_row(StoredMatrix& w, Random& random, uint8_t* row) {
  for (int64_t run = 0; run < runs_of(w.in); ++run, row += 4) {
    const float scale = std::ldexp(1.0f + 0.9f * std::fabs(random.value()),
                                   -8 - static_cast<int>(random.below(8)));
    w.scales.push_back(scale);
    std::memcpy(row, &scale, 4);
  }
  for (int64_t k = 0; k < w.in; ++k) {
    do {
      row[k] = static_cast<uint8_t>(random.bits());
    } while ((row[k] & 0x7f) == 0x7f);
    w.values.push_back(from_e4m3(row[k]));
  }
}

// A block of NF4: a scale, then codes.
void add_nf4_block(StoredMatrix& w, Random& random, uint8_t* block) {
  const float scale = 0.01f * (1.0f + std::fabs(random.value()));
  w.scales.push_back(scale);
  std::memcpy(block, &scale, 4);
  for (int64_t k = 0; k < kNf4Run; ++k) {
    const int code = static_cast<int>(random.below(16));
    uint8_t& byte = block[4 + k / 2];
    byte = static_cast<uint8_t>(k % 2 == 0 ? code : byte | code << 4);
    w.values.push_back(kNf4Table[code]);
  }
}

}  // namespace

bool stands_for_others(Codec codec) {
  switch (codec) {
    case Codec::f32: case Codec::f16: case Codec::bf16: case Codec::f8_e4m3: case Codec::nf4:
    case Codec::q8_0:     // halves, whole bytes
    case Codec::q4_1:     // halves with minimums
    case Codec::q5_0:     // two planes
    case Codec::mxfp4:    // exponents and a table
    case Codec::q2_k:     // nibbles, two groups in a tile
    case Codec::q4_k:     // bytes with minimums, sums of blocks
    case Codec::iq4_xs:   // the same without minimums, of a table
    case Codec::q5_k:     // bytes with minimums
    case Codec::q6_k:     // bytes, two planes of more than one bit
    case Codec::nvfp4:    // small floats
    case Codec::u4_128:   // float32 scales and zero points
    case Codec::u8_32:    // the same of whole bytes
    case Codec::w8a8_32:  // rows of one scale
    case Codec::e2m1_64:  // float32 times small floats
    case Codec::iq3_s:    // a book of four values, signs of each
    case Codec::iq2_xs:   // a book of eight, even signs
    case Codec::iq1_m:    // a book with shifts
      return true;
    default: return false;
  }
}

StoredMatrix random_matrix(Codec codec, int64_t out, int64_t in, uint64_t seed) {
  Random random(seed);
  const CodecFacts& f = facts(codec);
  StoredMatrix w{codec, out, in, row_bytes(codec, in), {}, {}, {}, {}, {}, {}, {}};
  w.bytes.resize(static_cast<size_t>(out * w.row_bytes));
  if (codec == Codec::f8_e4m3) {
    for (int64_t i = 0; i < out; ++i) add_scaled_row(w, random, w.bytes.data() + i * w.row_bytes);
    return w;
  }
  for (size_t at = 0; at < w.bytes.size(); at += static_cast<size_t>(f.stored_bytes)) {
    uint8_t* block = w.bytes.data() + at;
    if (codec == Codec::f32) {
      w.values.push_back(random.value());
      std::memcpy(block, &w.values.back(), 4);
    } else if (codec == Codec::nf4) {
      add_nf4_block(w, random, block);
    } else if (is_quantised(codec)) {
      with_quantised(codec, [&]<Codec C>() { add_block<C>(w, random, block); });
    } else {
      uint16_t half = random_f16(random);
      if (codec == Codec::bf16) {
        half = static_cast<uint16_t>(std::bit_cast<uint32_t>(to_bf16(random.value())) >> 16);
      }
      w.values.push_back(codec == Codec::bf16 ? from_bf16(half) : from_f16(half));
      std::memcpy(block, &half, 2);
    }
  }
  return w;
}

float float_product(const Rounding& r, const float* w, const float* x, int64_t in) {
  float sum = 0;
  for (int64_t tile = 0; tile < in; tile += kTile) {
    EvenOdd chains;
    for (int64_t k = tile; k < in && k < tile + kTile; ++k) chains.add(r, k - tile, x[k], w[k]);
    sum = sum + chains.sum();
  }
  return sum;
}

// VDPBF16PS (Intel's manual, volume 2): of each pair the odd product is added first.
float pair_product(const float* w, const float* x, int64_t in) {
  float sum = 0;
  for (int64_t block = 0; block < in; block += 128) {
    float chain = 0;
    for (int64_t k = block; k < in && k < block + 128; k += 2) {
      if (k + 1 < in) chain = std::fma(x[k + 1], w[k + 1], chain);
      chain = std::fma(x[k], w[k], chain);
    }
    sum = sum + chain;
  }
  return sum;
}

namespace {

// Values without their scales, which each tile's sum meets.
float scaled_product(const Rounding& r, const float* w, const float* scales, int64_t run,
                     const float* x, int64_t in) {
  float sum = 0;
  for (int64_t tile = 0; tile < in; tile += kTile) {
    EvenOdd chains;
    for (int64_t k = tile; k < in && k < tile + kTile; ++k) chains.add(r, k - tile, x[k], w[k]);
    sum = r.multiply_add(chains.sum(), scales[tile / run], sum);
  }
  return sum;
}

float largest(const float* x, int64_t size) {
  float peak = 0;
  for (int64_t i = 0; i < size; ++i) peak = std::fmax(peak, std::fabs(x[i]));
  return peak;
}

// A row of activations as whole numbers, and the scale of each run of them.
struct WholeRow {
  std::vector<int32_t> q;
  std::vector<float> d;
};

// By the largest value of each run, or of the row.
WholeRow quantised(const CodecFacts& f, const std::vector<float>& x) {
  const auto in = static_cast<int64_t>(x.size());
  const int64_t size = sums_blocks(f) ? kBlockOfTiles * kTile : kTile;
  const float of_row = f.whole_row ? largest(x.data(), in) : 0.0f;
  WholeRow row;
  for (int64_t begin = 0; begin < in; begin += size) {
    const float* const run = x.data() + begin;
    const float peak = f.whole_row ? of_row : largest(run, size);
    row.d.push_back(peak / 127.0f);
    const float inverse = row.d.back() == 0.0f ? 0.0f : 127.0f / peak;
    for (int64_t i = 0; i < size; ++i) {
      row.q.push_back(static_cast<int32_t>(std::nearbyint(run[i] * inverse)));
    }
  }
  return row;
}

// The whole numbers of a group: the sum of products with q, and of x.
struct Whole {
  int32_t n = 0, of_x = 0;
};
Whole whole_sums(const int32_t* q, const int32_t* w, int64_t size) {
  Whole sums;
  for (int64_t i = 0; i < size; ++i) {
    sums.n += q[i] * w[i];
    sums.of_x += q[i];
  }
  return sums;
}

float int8_product(const Rounding& r, const StoredMatrix& w, int64_t row, const WholeRow& x) {
  const CodecFacts& f = facts(w.codec);
  const int64_t per_group = kTile / f.groups;
  const int32_t* whole = w.whole.data() + row * w.in;
  const float* scale = w.scales.data() + row * (w.in / per_group);
  const float* min = w.mins.data() + row * (w.in / per_group);
  float sum = 0;
  for (int64_t begin = 0; begin < w.in; begin += kTile) {
    const float d = x.d[static_cast<size_t>(begin / kTile)];
    for (int64_t from = 0; from < kTile; from += per_group, ++scale, ++min) {
      const Whole sums = whole_sums(x.q.data() + begin + from, whole + begin + from, per_group);
      sum = r.multiply_add(static_cast<float>(sums.n), *scale * d, sum);
      if (f.mins) sum = r.multiply_add(-*min, d * static_cast<float>(sums.of_x), sum);
    }
  }
  return sum;
}

// Of a kind that sums blocks of 256.
float block_product(const Rounding& r, const StoredMatrix& w, int64_t row, const WholeRow& x) {
  constexpr int64_t kBlock = kBlockOfTiles * kTile;
  const int32_t* whole = w.whole.data() + row * w.in;
  const float* scale = w.scales.data() + row * (w.in / kTile);
  const float* min = w.mins.data() + row * (w.in / kTile);
  const int64_t first = row * (w.in / kBlock);
  float sum = 0;
  for (int64_t begin = 0; begin < w.in; begin += kBlock) {
    const float d = x.d[static_cast<size_t>(begin / kBlock)];
    const size_t block = static_cast<size_t>(first + begin / kBlock);
    float part = 0;
    int32_t least = 0;
    for (int64_t from = 0; from < kBlock; from += kTile, ++scale, ++min) {
      const Whole sums = whole_sums(x.q.data() + begin + from, whole + begin + from, kTile);
      part = r.multiply_add(static_cast<float>(sums.n), *scale, part);
      least += static_cast<int32_t>(*min) * sums.of_x;
    }
    float scaled = part * w.block_scales[block];
    if (facts(w.codec).mins) {
      scaled = r.multiply_add(-static_cast<float>(least), w.block_mins[block], scaled);
    }
    sum = r.multiply_add(scaled, d, sum);
  }
  return sum;
}

}  // namespace

std::vector<float> product_twin(const Kernels& kernels, const StoredMatrix& w,
                                const std::vector<float>& x, int64_t rows, const float* bias,
                                float scale, const float* residual) {
  const Rounding r = rounding_of(kernels);
  std::vector<float> y(static_cast<size_t>(rows * w.out));
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<float> of(x.begin() + row * w.in, x.begin() + (row + 1) * w.in);
    if (rounds_activations(w.codec)) {
      for (float& v : of) v = to_bf16(v);
    }
    const WholeRow whole = is_quantised(w.codec) ? quantised(facts(w.codec), of) : WholeRow{};
    for (int64_t i = 0; i < w.out; ++i) {
      const float* const values = w.values.data() + i * w.in;
      float sum = sums_blocks(facts(w.codec))
                      ? block_product(r, w, i, whole)
                  : is_quantised(w.codec)
                      ? int8_product(r, w, i, whole)
                  : w.codec == Codec::f8_e4m3
                      ? scaled_product(r, values, w.scales.data() + i * runs_of(w.in), kRun,
                                       of.data(), w.in)
                  : w.codec == Codec::nf4
                      ? scaled_product(r, values, w.scales.data() + i * (w.in / kNf4Run), kNf4Run,
                                       of.data(), w.in)
                  : r.weight_pairs && w.codec == Codec::bf16
                      ? pair_product(values, of.data(), w.in)
                      : float_product(r, values, of.data(), w.in);
      if (bias != nullptr) sum += bias[i];
      sum *= scale;
      if (residual != nullptr) sum += residual[row * w.out + i];
      y[static_cast<size_t>(row * w.out + i)] = sum;
    }
  }
  return y;
}

std::vector<float> norm_twin(const Rounding& r, const std::vector<float>& x, int64_t width,
                             const NormWeights& norm) {
  std::vector<float> y(x.size());
  for (size_t begin = 0; begin < x.size(); begin += static_cast<size_t>(width)) {
    const float* row = x.data() + begin;
    float lanes[16] = {}, squares[16] = {}, mean = 0;
    if (norm.centred) {
      for (int64_t k = 0; k < width; ++k) lanes[k % 16] += row[k];
      mean = sum_of_lanes(lanes) / static_cast<float>(width);
    }
    for (int64_t k = 0; k < width; ++k) {
      const float d = row[k] - mean;
      squares[k % 16] = r.multiply_add(d, d, squares[k % 16]);
    }
    const float scale =
        1.0f / std::sqrt(sum_of_lanes(squares) / static_cast<float>(width) + norm.eps);
    for (int64_t k = 0; k < width; ++k) {
      float v = ((row[k] - mean) * scale) * norm.weight[k];
      if (norm.bias != nullptr) v += norm.bias[k];
      y[begin + static_cast<size_t>(k)] = v;
    }
  }
  return y;
}

}  // namespace headrace::tests
