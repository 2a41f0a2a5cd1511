// Norms, exponential, activations, rope and table lookup.

#include <algorithm>
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
  constexpr int64_t kRows = 5, kGroups = 2;
  Backend backend(kernels, 2);
  const Rounding r = rounding_of(kernels);
  for (const int64_t width : kWidths) {
    for (const bool centred : {false, true}) {
      Random random(static_cast<uint64_t>(width));
      const std::vector<float> x = random.values(kRows * width, 3.0f);
      const std::vector<float> weight = random.values(width), bias = random.values(width);
      const std::vector<float> residual = random.values(kRows * width);
      const NormWeights norm{weight.data(), centred ? bias.data() : nullptr, 1e-6f, centred};
      const std::string name = (centred ? "layer norm of " : "norm of ") + std::to_string(width);
      std::vector<float> y(x.size()), want = norm_twin(r, x, width, norm);
      backend.norm({x.data(), y.data(), nullptr, width, width, 1, norm}, kRows);
      checks.equal(y, want, name);
      for (size_t i = 0; i < want.size(); ++i) want[i] += residual[i];
      backend.norm({x.data(), y.data(), residual.data(), width, width, 1, norm}, kRows);
      checks.equal(y, want, name + " and residual");
    }
    // Two groups of columns in place, each with weights of its own.
    Random random(21);
    std::vector<float> x = random.values(kRows * kGroups * width), want;
    const std::vector<float> weight = random.values(kGroups * width);
    for (int64_t part = 0; part < kRows * kGroups; ++part) {
      const std::vector<float> of(x.begin() + part * width, x.begin() + (part + 1) * width);
      const NormWeights norm{weight.data() + part % kGroups * width, nullptr, 1e-6f, false};
      const std::vector<float> normed = norm_twin(r, of, width, norm);
      want.insert(want.end(), normed.begin(), normed.end());
    }
    backend.norm({x.data(), x.data(), nullptr, kGroups * width, width, kGroups,
                  {weight.data(), nullptr, 1e-6f, false}},
                 kRows);
    checks.equal(x, want, "norms of columns of " + std::to_string(width));
  }
}

double exact(Activation kind, double x) {
  switch (kind) {
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::gelu: return x / 2 * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh: {
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    }
    case Activation::softcap: return 20 * std::tanh(x / 20);
    case Activation::relu: return x < 0 ? 0 : x;
    case Activation::relu2: return x < 0 ? 0 : x * x;
    case Activation::swiglu_clamped: {
      const double v = std::min(x, 7.0);
      return v / (1 + std::exp(-1.702 * v));
    }
  }
  return 0;
}

void check_activations(const Kernels& kernels, Checks& checks) {
  Backend backend(kernels, 2);
  for (const Activation kind : {Activation::silu, Activation::gelu, Activation::gelu_tanh,
                                Activation::softcap, Activation::relu, Activation::relu2,
                                Activation::swiglu_clamped}) {
    const std::string name = "activation " + std::to_string(static_cast<int>(kind)) + " of ";
    for (const int64_t width : {1, 15, 16, 17, 100, 1024, 1050}) {
      const std::vector<float> x = Random(7).values(2 * 2 * width, 6.0f);
      std::vector<float> whole(x.size()), want;
      backend.activate({x.data(), whole.data(), 2 * width, kind, false, 20.0f}, 2);
      for (const float v : x) want.push_back(static_cast<float>(exact(kind, v)));
      // The largest bound of docs/kernels.md for |x| <= 6, where it is negative.
      checks.near(whole, want, (7 + 3 * 24.0) * 0x1p-24, name + std::to_string(width));
      if (kind == Activation::softcap) continue;
      std::vector<float> gated(static_cast<size_t>(2 * width)), product;
      for (int64_t i = 0; i < 2 * width; ++i) {
        const size_t at = static_cast<size_t>(i / width * 2 * width + i % width);
        const float up = x[at + static_cast<size_t>(width)];
        const bool clamped = kind == Activation::swiglu_clamped;
        product.push_back(whole[at] * (clamped ? std::clamp(up, -7.0f, 7.0f) + 1.0f : up));
      }
      backend.activate({x.data(), gated.data(), width, kind, true, 0.0f}, 2);
      checks.equal(gated, product, "gated " + name + std::to_string(width));
      if (kind == Activation::swiglu_clamped) continue;
      constexpr float kLimit = 1.5f;
      for (int64_t i = 0; i < 2 * width; ++i) {
        const size_t at = static_cast<size_t>(i / width * 2 * width + i % width);
        const float up = std::clamp(x[at + static_cast<size_t>(width)], -kLimit, kLimit);
        product[static_cast<size_t>(i)] = std::min(whole[at], kLimit) * up;
      }
      backend.activate({x.data(), gated.data(), width, kind, true, kLimit}, 2);
      checks.equal(gated, product, "gated and limited " + name + std::to_string(width));
    }
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
                           {is_q ? q.data() : k.data(), nullptr, is_q ? 1e-6f : 1e-5f, false});
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
    if (static_cast<Codec>(i) == Codec::f8_e4m3) continue;  // no table is of it
    const Codec codec = static_cast<Codec>(i);
    for (const int64_t width : {32, 96, 33, 7, 256, 512}) {
      if (width % facts(codec).stored_elements != 0) continue;
      const StoredMatrix table = random_matrix(codec, 9, width, 13);
      const int32_t ids[] = {8, 0, 3, 3}, order[] = {4, 2, 0, 8, 1, 3, 5, 6, 7};
      for (const bool ordered : {false, true}) {
        std::vector<float> y(static_cast<size_t>(4 * width)), want;
        for (const int32_t id : ids) {
          const int64_t row = ordered ? order[id] : id;
          for (int64_t at = row * width; at < (row + 1) * width; ++at) {
            const float value = table.values[static_cast<size_t>(at)];
            // Of NF4 the twin has values and scales apart.
            want.push_back(codec == Codec::nf4
                               ? table.scales[static_cast<size_t>(at / kNf4Run)] * value
                               : value);
          }
        }
        const std::vector<float> residual = Random(3).values(4 * width);
        backend.embed({table.bytes.data(), table.row_bytes, width, codec,
                       ordered ? order : nullptr, ids, y.data(), 1.0f, nullptr},
                      4);
        checks.equal(y, want,
                     std::string(facts(codec).name) + " rows of width " + std::to_string(width));
        for (size_t i = 0; i < want.size(); ++i) want[i] = want[i] * 0.6f + residual[i];
        backend.embed({table.bytes.data(), table.row_bytes, width, codec,
                       ordered ? order : nullptr, ids, y.data(), 0.6f, residual.data()},
                      4);
        checks.equal(y, want, std::string(facts(codec).name) + " rows, scaled, on a residual");
      }
    }
  }
}

// What the limits are measured with: it runs, counts as many operations of bytes as it makes, whose
// products are all 1 (tiles aside, which count theirs by instructions), and reads no more than it
// should.
void check_probe(const Kernels& kernels, Checks& checks) {
  for (const Operands kind :
       {Operands::f32, Operands::bf16, Operands::int8, Operands::bf16_pairs}) {
    if (kernels.probe_ops[static_cast<int>(kind)] == 0) continue;
    checks.that(std::isfinite(kernels.probe_multiply(kind, 3)), "multiplies of the probe");
  }
  if (std::string(kernels.level).find("amx") == std::string::npos) {
    constexpr int64_t kRounds = 1000;
    const int64_t operations = kRounds * kernels.probe_ops[static_cast<int>(Operands::int8)];
    checks.that(kernels.probe_multiply(Operands::int8, kRounds) ==
                    static_cast<float>(operations / 2),
                "products of bytes of the probe");
  }
  const std::vector<float> ones(static_cast<size_t>(kProbeBytes) / 2, 1.0f);
  const int64_t bytes = static_cast<int64_t>(ones.size() * sizeof(float));
  checks.that(kernels.probe_read(reinterpret_cast<const uint8_t*>(ones.data()), bytes) ==
                  static_cast<float>(ones.size()),
              "reads of the probe");
}

}  // namespace

void elementwise_suite(const Kernels& kernels, Checks& checks) {
  check_exp(kernels, checks);
  check_norm(kernels, checks);
  check_activations(kernels, checks);
  check_rope(kernels, checks);
  check_embed(kernels, checks);
  check_probe(kernels, checks);
  // As many threads as asked for read denormals as zero.
  checks.that(Backend(kernels, 3).flushing_threads() == 3, "denormals are zero in every thread");
}

}  // namespace headrace::tests
