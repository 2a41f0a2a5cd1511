#include "twin.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "check.h"

namespace headrace::tests {

float Rounding::multiply_add(float a, float b, float c) const {
  return fused ? std::fma(a, b, c) : a * b + c;
}

Rounding rounding_of(const Kernels& kernels) { return {std::string(kernels.level) != "portable"}; }

float from_f16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, rest = bits & 1023;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(rest), -24)
                                   : std::ldexp(static_cast<float>(1024 + rest), exponent - 25);
  return bits >> 15 != 0 ? -size : size;
}

float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

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

void put(std::vector<uint8_t>& bytes, size_t at, const void* value, size_t size) {
  std::memcpy(bytes.data() + at, value, size);
}

}  // namespace

StoredMatrix random_matrix(Codec codec, int64_t out, int64_t in, uint64_t seed) {
  Random random(seed);
  const int64_t value_bytes = codec == Codec::f32 ? 4 : 2;
  StoredMatrix w{codec, out, in, codec == Codec::q8_0 ? in / kTile * 34 : in * value_bytes, {}, {}};
  w.bytes.resize(static_cast<size_t>(out * w.row_bytes));
  w.values.resize(static_cast<size_t>(out * in));
  size_t at = 0;
  float scale = 0;
  for (size_t i = 0; i < w.values.size(); ++i) {
    if (codec == Codec::f32) {
      w.values[i] = random.value();
      put(w.bytes, at, &w.values[i], 4);
      at += 4;
    } else if (codec == Codec::q8_0) {
      if (i % kTile == 0) {
        const uint16_t d = random_f16(random);
        scale = from_f16(d);
        put(w.bytes, at, &d, 2);
        at += 2;
      }
      const int8_t q = static_cast<int8_t>(random.below(256) - 128);
      w.values[i] = static_cast<float>(q) * scale;
      put(w.bytes, at++, &q, 1);
    } else {
      uint16_t half = random_f16(random);
      if (codec == Codec::bf16) {
        half = static_cast<uint16_t>(std::bit_cast<uint32_t>(to_bf16(random.value())) >> 16);
      }
      w.values[i] = codec == Codec::bf16 ? from_bf16(half) : from_f16(half);
      put(w.bytes, at, &half, 2);
      at += 2;
    }
  }
  return w;
}

namespace {

float float_product(const Rounding& r, const float* w, const float* x, int64_t in) {
  float sum = 0;
  for (int64_t tile = 0; tile < in; tile += kTile) {
    EvenOdd chains;
    for (int64_t k = tile; k < in && k < tile + kTile; ++k) chains.add(r, k - tile, x[k], w[k]);
    sum = sum + chains.sum();
  }
  return sum;
}

float q8_product(const Rounding& r, const uint8_t* w, const float* x, int64_t in) {
  float sum = 0;
  for (int64_t begin = 0; begin < in; begin += kTile, w += 34) {
    uint16_t dw;
    std::memcpy(&dw, w, 2);
    float peak = 0;
    for (int64_t i = 0; i < kTile; ++i) peak = std::fmax(peak, std::fabs(x[begin + i]));
    const float dx = peak / 127.0f, inverse = dx == 0.0f ? 0.0f : 127.0f / peak;
    int32_t n = 0;
    for (int64_t i = 0; i < kTile; ++i) {
      n += static_cast<int32_t>(std::nearbyint(x[begin + i] * inverse)) *
           static_cast<int8_t>(w[2 + i]);
    }
    sum = r.multiply_add(static_cast<float>(n), from_f16(dw) * dx, sum);
  }
  return sum;
}

}  // namespace

std::vector<float> product_twin(const Kernels& kernels, const StoredMatrix& w,
                                const std::vector<float>& x, int64_t rows, const float* bias,
                                const float* residual) {
  const Rounding r = rounding_of(kernels);
  std::vector<float> y(static_cast<size_t>(rows * w.out));
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<float> of(x.begin() + row * w.in, x.begin() + (row + 1) * w.in);
    if (w.codec == Codec::bf16) {
      for (float& v : of) v = to_bf16(v);
    }
    for (int64_t i = 0; i < w.out; ++i) {
      float sum = w.codec == Codec::q8_0
                      ? q8_product(r, w.row(i), of.data(), w.in)
                      : float_product(r, w.values.data() + i * w.in, of.data(), w.in);
      if (bias != nullptr) sum += bias[i];
      if (residual != nullptr) sum += residual[row * w.out + i];
      y[static_cast<size_t>(row * w.out + i)] = sum;
    }
  }
  return y;
}

std::vector<float> rms_norm_twin(const Rounding& r, const std::vector<float>& x, int64_t width,
                                 const std::vector<float>& weight, float eps) {
  std::vector<float> y(x.size());
  for (size_t begin = 0; begin < x.size(); begin += static_cast<size_t>(width)) {
    float lanes[16] = {};
    for (int64_t k = 0; k < width; ++k) {
      const float v = x[begin + static_cast<size_t>(k)];
      lanes[k % 16] = r.multiply_add(v, v, lanes[k % 16]);
    }
    const float mean = sum_of_lanes(lanes) / static_cast<float>(width);
    const float scale = 1.0f / std::sqrt(mean + eps);
    for (int64_t k = 0; k < width; ++k) {
      const size_t i = begin + static_cast<size_t>(k);
      y[i] = (x[i] * scale) * weight[static_cast<size_t>(k)];
    }
  }
  return y;
}

}  // namespace headrace::tests
