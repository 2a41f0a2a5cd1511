// The arithmetic of docs/kernels.md again, one number at a time: what every level is compared with.
//
// Written from that page and not from the kernels. `Rounding` says where levels may differ: whether
// a product and a sum are one rounding, and what goes by pairs.

#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"

namespace headrace::tests {

struct Rounding {
  bool fused;
  bool weight_pairs;     // products of BF16 weights by VDPBF16PS
  bool attention_pairs;  // q.K and p.V by VDPBF16PS, where K and V are not f32
  float multiply_add(float a, float b, float c) const;
};
Rounding rounding_of(const Kernels& kernels);

float from_f16(uint16_t bits);
float from_bf16(uint16_t bits);
float from_e4m3(uint8_t bits);  // OCP 8-bit floats; no NaN
float to_bf16(float x);  // nearest even, as f32

// Two chains of even and odd terms.
struct EvenOdd {
  float even = 0, odd = 0;
  void add(const Rounding& r, int64_t k, float a, float b);
  float sum() const { return even + odd; }
};

// Products of a row of floats: by chains, and by VDPBF16PS of numbers that are bf16.
float float_product(const Rounding& r, const float* w, const float* x, int64_t in);
float pair_product(const float* w, const float* x, int64_t in);

// Lanes summed by halves.
float sum_of_lanes(const float (&lanes)[16]);

// Stored rows of random weights of a codec, and what they stand for.
struct StoredMatrix {
  Codec codec;
  int64_t out, in;
  int64_t row_bytes;
  std::vector<uint8_t> bytes;
  std::vector<float> values;  // [out][in]; F8_E4M3, NF4: without scales, [out][runs]
  // Quantised kinds: values are scale * whole - min, groups as the kind has them.
  std::vector<int32_t> whole;       // [out][in]
  std::vector<float> scales, mins;  // [out][in / 32 * groups]
  // Of kinds that sum blocks scales and mins are whole numbers; what these multiply, [out][in /
  // 256].
  std::vector<float> block_scales, block_mins;

  const uint8_t* row(int64_t i) const { return bytes.data() + i * row_bytes; }
};
StoredMatrix random_matrix(Codec codec, int64_t out, int64_t in, uint64_t seed);

// Whether a kind is checked over every shape, batch and number of threads: the floats and one kind
// of each way to hold scales, values and points. The others share the code of one of these and are
// checked bit for bit once with few rows and once with many.
bool stands_for_others(Codec codec);

// y[rows][out] of x[rows][in].
std::vector<float> product_twin(const Kernels& kernels, const StoredMatrix& w,
                                const std::vector<float>& x, int64_t rows, const float* bias,
                                float scale, const float* residual);
// Each `width` values of x; weight and bias are those of one.
std::vector<float> norm_twin(const Rounding& r, const std::vector<float>& x, int64_t width,
                             const NormWeights& norm);

}  // namespace headrace::tests
