// Norms, exponential, activations, rope, table lookup and the largest of a row.

#include <algorithm>
#include <cmath>
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
    const std::vector<float> bias = random.values(width), residual = random.values(9 * width);
    for (const bool layer : {false, true}) {
      for (const float* added : {static_cast<const float*>(nullptr), bias.data()}) {
        const NormWeights norm{weight.data(), added, 1e-6f, layer};
        const std::string name = std::string(layer ? "layer" : "rms") + " norm of " +
                                 std::to_string(width);
        std::vector<float> y(x.size()), want = norm_twin(rounding_of(kernels), x, width, norm);
        backend.norm({x.data(), y.data(), nullptr, width, width, 1, norm}, 9);
        checks.equal(y, want, name);
        for (size_t i = 0; i < want.size(); ++i) want[i] += residual[i];
        backend.norm({x.data(), y.data(), residual.data(), width, width, 1, norm}, 9);
        checks.equal(y, want, name + " and residual");
      }
    }
  }
}

// Two groups of columns in the middle of wider rows, in place.
void check_norm_columns(const Kernels& kernels, Checks& checks) {
  constexpr int64_t kRows = 5, kStride = 60, kStart = 7, kGroup = 18;
  Random random(19);
  std::vector<float> x = random.values(kRows * kStride), want = x;
  const std::vector<float> weight = random.values(2 * kGroup), bias = random.values(2 * kGroup);
  for (int64_t row = 0; row < kRows; ++row) {
    for (const int64_t at : {int64_t{0}, kGroup}) {
      float* from = want.data() + row * kStride + kStart + at;
      const std::vector<float> normed =
          norm_twin(rounding_of(kernels), {from, from + kGroup}, kGroup,
                    {weight.data() + at, bias.data() + at, 1e-5f, true});
      std::copy(normed.begin(), normed.end(), from);
    }
  }
  float* at = x.data() + kStart;
  Backend(kernels, 2).norm({at, at, nullptr, kStride, kGroup, 2,
                            {weight.data(), bias.data(), 1e-5f, true}},
                           kRows);
  checks.equal(x, want, "norm of columns");
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
    backend.activate({x.data(), y.data(), width, Activation::silu, true, 0.0f}, 5);
    checks.equal(y, want, "gated silu of " + std::to_string(width));
  }
}

// Against float64, with the bounds of docs/kernels.md and half a step for the expected value's own
// rounding. Every value also in another lane and piece.
void check_activations(const Kernels& kernels, Checks& checks) {
  struct Case {
    Activation kind;
    const char* name;
    double most;
    double (*of)(double);
  };
  const Case cases[] = {
      {Activation::silu, "silu", 3, [](double x) { return x / (1 + std::exp(-x)); }},
      {Activation::gelu, "gelu", 7, [](double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }},
      {Activation::gelu_tanh, "gelu_tanh", 6,
       [](double x) {
         const double z = std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
         return x / (1 + std::exp(-2 * z));
       }},
      {Activation::softcap, "softcap 1", 5.2, [](double x) { return std::tanh(x); }},
  };
  std::vector<float> x;
  for (float v = -4.0f; v < 40.0f; v += 0.00713f) x.push_back(v);
  for (float v = 1e-30f; v < 1.0f; v *= 1.7f) x.insert(x.end(), {v, -v});
  const int64_t n = static_cast<int64_t>(x.size());
  for (const Case& c : cases) {
    std::vector<float> want, y(x.size()), moved(x.size());
    for (const float v : x) want.push_back(static_cast<float>(c.of(v)));
    Backend(kernels, 2).activate({x.data(), y.data(), n, c.kind, false, 1.0f}, 1);
    // Above -4 no exponential is given more than 12, whose rounding adds as many at most thrice.
    const bool grows = c.kind == Activation::gelu || c.kind == Activation::gelu_tanh;
    checks.near(y, want, (c.most + (grows ? 36 : 0) + 1) * 0x1p-24, c.name);
    Backend(kernels, 1).activate({x.data() + 5, moved.data() + 5, n - 5, c.kind, false, 1.0f}, 1);
    std::copy(y.begin(), y.begin() + 5, moved.begin());
    checks.equal(moved, y, std::string(c.name) + " in other lanes");
    const float inf = std::numeric_limits<float>::infinity();
    const std::vector<float> ends = {inf, 3e38f, __builtin_nanf("")};
    std::vector<float> got(3);
    Backend(kernels, 1).activate({ends.data(), got.data(), 3, c.kind, false, 1.0f}, 1);
    const bool caps = c.kind == Activation::softcap;
    checks.equal(got, caps ? std::vector<float>{1.0f, 1.0f, ends[2]} : ends,
                 std::string(c.name) + " at its ends");
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
          if (normed) {
            const bool is_q = h < kQ;
            of = norm_twin(r, of, head_dim,
                           {(is_q ? q : k).data(), nullptr, is_q ? 1e-6f : 1e-5f, false});
          }
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
                       ordered ? order : nullptr, ids, y.data(), 1.0f, nullptr},
                      4);
        const std::string name =
            std::string(facts(codec).name) + " rows of width " + std::to_string(width);
        checks.equal(y, want, name);
        const std::vector<float> residual = Random(23).values(4 * width);
        for (size_t i = 0; i < want.size(); ++i) want[i] = want[i] * 9.7f + residual[i];
        backend.embed({table.bytes.data(), table.row_bytes, width, codec,
                       ordered ? order : nullptr, ids, y.data(), 9.7f, residual.data()},
                      4);
        checks.equal(y, want, name + ", scaled and added");
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
  check_norm_columns(kernels, checks);
  check_gated(kernels, checks);
  check_activations(kernels, checks);
  check_rope(kernels, checks);
  check_embed(kernels, checks);
  check_highest(kernels, checks);
  // As many threads as asked for read denormals as zero.
  checks.that(Backend(kernels, 3).flushing_threads() == 3, "denormals are zero in every thread");
}

}  // namespace headrace::tests
