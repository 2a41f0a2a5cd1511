// Norm, exponential, gated activation, rope, table lookup and the largest of a row.

#include <limits>
#include <string>

#include "backend.h"
#include "suites.h"
#include "twin.h"

namespace headrace::tests {
namespace {

constexpr int64_t kWidths[] = {1, 2, 15, 16, 17, 31, 48, 100};

std::vector<float> exp_of(const Kernels& kernels, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  kernels.exp_shifted(x.data(), static_cast<int64_t>(x.size()), 0.0f, 1.0f, y.data());
  return y;
}

void check_exp(const Kernels& kernels, Checks& checks) {
  std::vector<float> x;
  for (float v = -87.0f; v < 88.5f; v += 0.0173f) x.push_back(v);
  std::vector<float> want;
  for (const float v : x) want.push_back(static_cast<float>(std::exp(static_cast<double>(v))));
  // 1.5e-7 of the exact value, and half a step more for the expected value's own rounding.
  checks.near(exp_of(kernels, x), want, 1.5e-7 + 0x1p-24, "exp");
  const float inf = std::numeric_limits<float>::infinity();
  checks.equal(exp_of(kernels, {0.0f, -0.0f, -104.5f, -inf, 89.5f, inf, __builtin_nanf("")}),
               {1.0f, 1.0f, 0.0f, 0.0f, inf, inf, __builtin_nanf("")}, "exp at its ends");
  for (const int64_t n : kWidths) {
    const std::vector<float> from = Random(5).values(n, 10.0f);
    std::vector<float> shifted(from.size()), moved;
    kernels.exp_shifted(from.data(), n, 3.0f, 0.7f, shifted.data());
    for (const float v : from) moved.push_back((v - 3.0f) / 0.7f);
    checks.equal(shifted, exp_of(kernels, moved), "exp of " + std::to_string(n));
  }
}

void check_norm(const Kernels& kernels, Checks& checks) {
  Backend backend(kernels, 2);
  for (const int64_t width : kWidths) {
    Random random(static_cast<uint64_t>(width));
    const std::vector<float> x = random.values(9 * width, 3.0f), weight = random.values(width);
    std::vector<float> y(x.size());
    backend.rms_norm({x.data(), y.data(), weight.data(), width, 1e-6f}, 9);
    checks.equal(y, rms_norm_twin(rounding_of(kernels), x, width, weight, 1e-6f),
                 "norm of " + std::to_string(width));
  }
}

void check_gated(const Kernels& kernels, Checks& checks) {
  Backend backend(kernels, 2);
  for (const int64_t width : kWidths) {
    const std::vector<float> x = Random(7).values(5 * 2 * width, 6.0f);
    std::vector<float> y(static_cast<size_t>(5 * width)), want;
    for (int64_t row = 0; row < 5; ++row) {
      for (int64_t i = 0; i < width; ++i) {
        const float gate = x[static_cast<size_t>(row * 2 * width + i)];
        const float up = x[static_cast<size_t>(row * 2 * width + width + i)];
        want.push_back(gate / (1.0f + exp_of(kernels, {-gate})[0]) * up);
      }
    }
    backend.gated_silu({x.data(), y.data(), width}, 5);
    checks.equal(y, want, "gated silu of " + std::to_string(width));
  }
}

void check_rope(const Kernels& kernels, Checks& checks) {
  constexpr int64_t kRows = 4, kQ = 3, kK = 2;
  const Rounding r = rounding_of(kernels);
  for (const int64_t head_dim : {6, 32, 80}) {
    for (const bool normed : {false, true}) {
      const int64_t half = head_dim / 2 - (head_dim > 6 ? 3 : 0), width = (kQ + 2 * kK) * head_dim;
      Random random(11);
      std::vector<float> qkv = random.values(kRows * width), want = qkv;
      const std::vector<float> cos = random.values(50 * half), sin = random.values(50 * half);
      const std::vector<float> q = random.values(head_dim), k = random.values(head_dim);
      const int32_t positions[kRows] = {0, 49, 3, 17};
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t h = 0; h < kQ + kK; ++h) {
          float* head = want.data() + row * width + h * head_dim;
          std::vector<float> of(head, head + head_dim);
          if (normed) of = rms_norm_twin(r, of, head_dim, h < kQ ? q : k, h < kQ ? 1e-6f : 1e-5f);
          std::copy(of.begin(), of.end(), head);
          for (int64_t i = 0; i < half; ++i) {
            const float c = cos[static_cast<size_t>(positions[row] * half + i)];
            const float s = sin[static_cast<size_t>(positions[row] * half + i)];
            const float a = of[static_cast<size_t>(i)], b = of[static_cast<size_t>(half + i)];
            head[i] = r.multiply_add(-b, s, a * c);
            head[half + i] = r.multiply_add(a, s, b * c);
          }
        }
      }
      Backend backend(kernels, 1);
      backend.rope({qkv.data(), width, kQ, kK, head_dim, half, cos.data(), sin.data(), positions,
                    normed ? q.data() : nullptr, normed ? k.data() : nullptr, 1e-6f, 1e-5f},
                   kRows);
      checks.equal(qkv, want, "rope of " + std::to_string(head_dim));
    }
  }
}

void check_embed(const Kernels& kernels, Checks& checks) {
  Backend backend(kernels, 2);
  for (int i = 0; i < kCodecs; ++i) {
    const Codec codec = static_cast<Codec>(i);
    for (const int64_t width : {32, 96, 33, 7, 256, 512}) {
      if (width % facts(codec).stored_elements != 0) continue;
      const StoredMatrix table = random_matrix(codec, 9, width, 13);
      const int32_t ids[] = {8, 0, 3, 3}, order[] = {4, 2, 0, 8, 1, 3, 5, 6, 7};
      for (const bool ordered : {false, true}) {
        std::vector<float> y(static_cast<size_t>(4 * width)), want;
        for (const int32_t id : ids) {
          const auto row = table.values.begin() + (ordered ? order[id] : id) * width;
          want.insert(want.end(), row, row + width);
        }
        backend.embed({table.bytes.data(), table.row_bytes, width, codec,
                       ordered ? order : nullptr, ids, y.data()},
                      4);
        checks.equal(y, want, std::string(facts(codec).name) + " rows of width " + std::to_string(width));
      }
    }
  }
}

void check_highest(const Kernels& kernels, Checks& checks) {
  for (const int64_t n : kWidths) {
    std::vector<float> x = Random(17).values(n);
    float most = x[0];
    for (const float v : x) most = v > most ? v : most;
    checks.that(kernels.highest(x.data(), n) == most, "highest of " + std::to_string(n));
    for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
      std::vector<float> bad = x;
      bad[static_cast<size_t>(at)] = __builtin_nanf("");
      checks.that(std::isnan(kernels.highest(bad.data(), n)), "highest with NaN");
      std::vector<float> low(x.size(), -__builtin_inff());
      checks.that(kernels.highest(low.data(), n) == -__builtin_inff(), "highest of -inf");
      low[static_cast<size_t>(at)] = -3.0f;
      checks.that(kernels.highest(low.data(), n) == -3.0f, "highest beside -inf");
    }
  }
}

}  // namespace

void elementwise_suite(const Kernels& kernels, Checks& checks) {
  check_exp(kernels, checks);
  check_norm(kernels, checks);
  check_gated(kernels, checks);
  check_rope(kernels, checks);
  check_embed(kernels, checks);
  check_highest(kernels, checks);
  // As many threads as asked for read denormals as zero.
  checks.that(Backend(kernels, 3).flushing_threads() == 3, "denormals are zero in every thread");
}

}  // namespace headrace::tests
