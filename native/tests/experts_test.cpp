// Experts: equal to the product twin of each expert and the sums of each token, bit for bit, with
// experts of few and of many rows in one batch. Routing: against float64 with the library's exp.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>

#include "backend.h"
#include "suites.h"
#include "twin.h"

namespace headrace::tests {
namespace {

constexpr int64_t kExperts = 4, kChosen = 2;

struct Layer {
  std::vector<StoredMatrix> gate_up, down;
  std::vector<float> gate_up_bias, down_bias;  // of all experts
};

std::unique_ptr<ExpertMatrices> matrices(Backend& backend, const std::vector<StoredMatrix>& experts,
                                         const std::vector<float>& bias) {
  std::vector<std::vector<StoredRows>> stored;
  for (const StoredMatrix& w : experts) {
    const int64_t half = w.out / 2;
    stored.push_back({{w.row(0), nullptr, half, w.row_bytes},
                      {w.row(half), nullptr, w.out - half, w.row_bytes}});
  }
  return std::make_unique<ExpertMatrices>(backend.pool(), experts[0].codec, experts[0].in, stored,
                                          bias, backend.expert_cache());
}

// The MLP of one expert for one token.
std::vector<float> mlp_twin(const Kernels& kernels, const Layer& layer, int64_t expert,
                            const std::vector<float>& x) {
  const StoredMatrix &up = layer.gate_up[static_cast<size_t>(expert)],
                     &down = layer.down[static_cast<size_t>(expert)];
  const std::vector<float> row = product_twin(
      kernels, up, x, 1, layer.gate_up_bias.data() + expert * up.out, 1.0f, nullptr);
  std::vector<float> inner(static_cast<size_t>(down.in));
  const int64_t pieces = (down.in + kActivationColumns - 1) / kActivationColumns;
  kernels.activate({row.data(), inner.data(), down.in, Activation::silu, true, 0.0f}, 0, pieces);
  return product_twin(kernels, down, inner, 1, layer.down_bias.data() + expert * down.out, 1.0f,
                      nullptr);
}

void check_codec(const Kernels& kernels, Checks& checks, Codec codec) {
  constexpr int64_t kTokens = 40;
  const int64_t block = facts(codec).stored_elements;
  const int64_t hidden = block > 32 ? 256 : (block == 1 ? 72 : 96);
  const int64_t inner = block > 32 ? 256 : (block == 1 ? 41 : 64);
  Random random(17);
  Layer layer;
  for (int64_t e = 0; e < kExperts; ++e) {
    layer.gate_up.push_back(random_matrix(codec, 2 * inner, hidden, random.bits()));
    layer.down.push_back(random_matrix(codec, hidden, inner, random.bits()));
  }
  layer.gate_up_bias = random.values(kExperts * 2 * inner);
  layer.down_bias = random.values(kExperts * hidden);
  const std::vector<float> x = random.values(kTokens * hidden, 2.0f);
  const std::vector<float> residual = random.values(kTokens * hidden);
  const std::vector<float> weights = random.values(kTokens * kChosen);
  // Expert 2 has all tokens, expert 3 none, the others few.
  std::vector<int32_t> experts;
  for (int64_t t = 0; t < kTokens; ++t) {
    const int32_t other = t < 30 ? 0 : 1;
    experts.push_back(t % 2 == 0 ? 2 : other);
    experts.push_back(t % 2 == 0 ? other : 2);
  }
  std::vector<float> want;
  for (int64_t t = 0; t < kTokens; ++t) {
    const std::vector<float> row(x.begin() + t * hidden, x.begin() + (t + 1) * hidden);
    const size_t pair = static_cast<size_t>(t * kChosen);
    const std::vector<float> a = mlp_twin(kernels, layer, experts[pair], row);
    const std::vector<float> b = mlp_twin(kernels, layer, experts[pair + 1], row);
    for (size_t i = 0; i < a.size(); ++i) {
      const float sum = weights[pair] * a[i] + weights[pair + 1] * b[i];
      want.push_back(sum * 0.7f + residual[want.size()]);
    }
  }
  for (const int threads : {1, 3}) {
    for (const bool cached : {false, true}) {
      Backend backend(kernels, threads);
      const auto all = matrices(backend, layer.gate_up, {});
      // Room for two matrices of three: groups, and others that have to go.
      if (cached) backend.cache_experts(2 * all->bytes() / kExperts);
      const auto gate_up = matrices(backend, layer.gate_up, layer.gate_up_bias);
      const auto down = matrices(backend, layer.down, layer.down_bias);
      for (const int64_t tokens : {int64_t{1}, int64_t{5}, kTokens}) {
        std::vector<float> y(static_cast<size_t>(tokens * hidden));
        backend.experts({*gate_up, *down, x.data(), tokens, kChosen, experts.data(),
                         weights.data(), Activation::silu, false, residual.data(), 0.7f,
                         y.data()});
        checks.equal(y, {want.begin(), want.begin() + tokens * hidden},
                     std::string("experts ") + facts(codec).name + ", tokens " +
                         std::to_string(tokens) + ", threads " + std::to_string(threads) +
                         (cached ? ", cached" : ""));
      }
      if (!cached) continue;
      const ExpertCacheStats stats = backend.expert_cache()->stats();
      checks.that(stats.held_bytes <= stats.limit_bytes, "bytes that the cache holds");
      // Two, two and three experts of two matrices; each of six has to be packed once at least.
      checks.that(stats.misses >= 6 && stats.hits + stats.misses == 14,
                  "hits and misses of the cache");
    }
  }
}

// The panels of every expert, whether they are packed at load or on demand.
std::vector<uint8_t> panels_of(Backend& backend, const ExpertMatrices& matrices) {
  std::vector<uint8_t> all;
  const int64_t bytes = matrices.bytes() / matrices.count();
  for (int32_t e = 0; e < matrices.count(); ++e) {
    if (matrices.cache() != nullptr) matrices.pack_group(backend.pool(), {e});
    const uint8_t* panels = matrices.view(e).panels;
    all.insert(all.end(), panels, panels + bytes);
  }
  return all;
}

// Rows in pieces: turned values, and MXFP4 apart, of two matrices in turn and joined; 21 rows each,
// so that a panel has rows of both and the last is not full.
void check_pieces(const Kernels& kernels, Checks& checks, Codec codec, bool in_turn) {
  constexpr int64_t kRows = 21, kIn = 96, kParts = 2;
  const int64_t size = facts(codec).stored_bytes;
  const bool apart = codec == Codec::mxfp4;
  const int64_t each = kIn / facts(codec).stored_elements;  // pieces of a row
  std::vector<StoredMatrix> experts;
  std::vector<std::vector<uint8_t>> memory(kExperts), exponents(kExperts);
  std::vector<std::vector<StoredRows>> pieces;
  for (int64_t e = 0; e < kExperts; ++e) {
    experts.push_back(random_matrix(codec, kParts * kRows, kIn, static_cast<uint64_t>(e + 1)));
    std::vector<uint8_t>&to = memory[static_cast<size_t>(e)],
    &scales = exponents[static_cast<size_t>(e)];
    const int64_t bytes = apart ? size - 1 : size, rows = kParts * kRows;
    to.resize(static_cast<size_t>(rows * each * bytes));
    scales.resize(static_cast<size_t>(rows * each));
    // Where row i of all lies: with the other matrix's in turn, or behind all of the first.
    const auto place = [&](int64_t i) {
      return in_turn ? i % kRows * kParts + i / kRows : i;
    };
    const int64_t row_stride = apart ? each * bytes : bytes;
    const int64_t stride = apart ? bytes : rows * bytes;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < each; ++k) {
        const uint8_t* from = experts.back().row(i) + k * size;
        uint8_t* at = to.data() + place(i) * row_stride + k * stride;
        if (!apart) {
          std::memcpy(at, from, static_cast<size_t>(size));
          continue;
        }
        scales[static_cast<size_t>(place(i) * each + k)] = from[0];
        for (int64_t v = 0; v < 32; ++v) {
          const int nibble = (v < 16 ? from[1 + v] : from[1 + v - 16] >> 4) & 15;
          at[v / 2] = static_cast<uint8_t>(at[v / 2] | nibble << (v % 2 * 4));
        }
      }
    }
    std::vector<StoredRows>& parts = pieces.emplace_back();
    const int64_t step = in_turn ? kParts : 1;
    for (int64_t part = 0; part < kParts; ++part) {
      const int64_t first = place(part * kRows);
      parts.push_back({to.data() + first * row_stride, nullptr, kRows, experts.back().row_bytes,
                       {bytes, stride, step * row_stride,
                        apart ? scales.data() + first * each : nullptr, step * each}});
    }
  }
  const std::string what = std::string("experts in pieces, ") + facts(codec).name;
  for (const int threads : {1, 3}) {
    Backend backend(kernels, threads);
    const auto plain = matrices(backend, experts, {});
    const std::vector<uint8_t> want = panels_of(backend, *plain);
    for (const bool cached : {false, true}) {
      if (cached) backend.cache_experts(2 * plain->bytes() / kExperts);
      const ExpertMatrices got(backend.pool(), codec, kIn, pieces, {}, backend.expert_cache());
      checks.that(panels_of(backend, got) == want, what + (cached ? ", cached" : ""));
      if (!cached) continue;
      const int64_t stored = kExperts * kParts * kRows * experts[0].row_bytes;
      checks.that(backend.expert_cache()->stats().read_bytes == stored, what + ", bytes read");
    }
  }
}

// Rows of an expert that are cut into passes, since it has few panels for the threads: 140 of 17
// and more, 64 KiB of weights a piece. Memory of the backend is new, so that a row nobody computes
// is no earlier one.
void check_passes(const Kernels& kernels, Checks& checks, Codec codec) {
  constexpr int64_t kTokens = 150, kFirst = 140, kHidden = 256, kInner = 32;
  Random random(29);
  Layer layer;
  for (int64_t e = 0; e < 2; ++e) {
    layer.gate_up.push_back(random_matrix(codec, 2 * kInner, kHidden, random.bits()));
    layer.down.push_back(random_matrix(codec, kHidden, kInner, random.bits()));
  }
  layer.gate_up_bias = random.values(2 * 2 * kInner);
  layer.down_bias = random.values(2 * kHidden);
  const std::vector<float> x = random.values(kTokens * kHidden, 2.0f), weights(kTokens, 1.0f);
  std::vector<int32_t> experts(kTokens, 1);
  std::fill_n(experts.begin(), kFirst, 0);
  std::vector<float> want;
  for (int64_t t = 0; t < kTokens; ++t) {
    const std::vector<float> row(x.begin() + t * kHidden, x.begin() + (t + 1) * kHidden);
    const std::vector<float> y = mlp_twin(kernels, layer, experts[static_cast<size_t>(t)], row);
    want.insert(want.end(), y.begin(), y.end());
  }
  Backend backend(kernels, 2);
  const auto gate_up = matrices(backend, layer.gate_up, layer.gate_up_bias),
             down = matrices(backend, layer.down, layer.down_bias);
  std::vector<float> y(want.size());
  backend.experts({*gate_up, *down, x.data(), kTokens, 1, experts.data(), weights.data(),
                   Activation::silu, false, nullptr, 1.0f, y.data()});
  checks.equal(y, want, std::string("experts in passes, ") + facts(codec).name);
}

// No inner values and no outputs are no mistake: results are zero, or there are none.
void check_empty(const Kernels& kernels, Checks& checks) {
  constexpr int64_t kTokens = 3;
  const std::vector<int32_t> experts{0, 1, 0};
  const std::vector<float> weights(kTokens, 1.0f);
  Backend backend(kernels, 1);
  for (const int64_t hidden : {0, 64}) {
    const int64_t inner = 64 - hidden;
    const std::vector<StoredMatrix> up(2, random_matrix(Codec::f32, 2 * inner, hidden, 1)),
        last(2, random_matrix(Codec::f32, hidden, inner, 2));
    const auto gate_up = matrices(backend, up, {}), down = matrices(backend, last, {});
    const std::vector<float> x(static_cast<size_t>(kTokens * hidden), 1.0f);
    std::vector<float> y(x);
    backend.experts({*gate_up, *down, x.data(), kTokens, 1, experts.data(), weights.data(),
                     Activation::silu, false, nullptr, 1.0f, y.data()});
    checks.equal(y, std::vector<float>(y.size()), "experts without inner values or outputs");
  }
}

void check_routing(const Kernels& kernels, Checks& checks) {
  constexpr int64_t kRows = 9, kCount = 37, kMost = 5;
  Backend backend(kernels, 2);
  const std::vector<float> logits = Random(23).values(kRows * kCount, 6.0f);
  std::vector<int32_t> ids(kRows * kMost), want_ids;
  std::vector<float> weights(kRows * kMost), want;
  const Routing routing{kCount, kMost, RouterScore::softmax, true, 0.0, 1.5, 1, 1, false, 0.0};
  backend.route(routing, logits.data(), nullptr, kRows, ids.data(), weights.data());
  for (int64_t row = 0; row < kRows; ++row) {
    const float* of = logits.data() + row * kCount;
    std::vector<int32_t> order(kCount);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [of](int32_t a, int32_t b) { return of[a] > of[b]; });
    double total = 0;
    for (int64_t i = 0; i < kMost; ++i) {
      total += std::exp(static_cast<double>(of[order[static_cast<size_t>(i)]]));
    }
    for (int64_t i = 0; i < kMost; ++i) {
      const int32_t expert = order[static_cast<size_t>(i)];
      want_ids.push_back(expert);
      want.push_back(static_cast<float>(1.5 * std::exp(static_cast<double>(of[expert])) / total));
    }
  }
  checks.that(ids == want_ids, "experts of routes");
  checks.near(weights, want, 0x1p-23, "weights of routes");
}

}  // namespace

void experts_suite(const Kernels& kernels, Checks& checks) {
  for (int i = 0; i < kCodecs; ++i) {
    const Codec codec = static_cast<Codec>(i);
    if (stands_for_others(codec)) check_codec(kernels, checks, codec);
  }
  for (const Codec codec : {Codec::f32, Codec::f16, Codec::bf16, Codec::mxfp4}) {
    for (const bool in_turn : {false, true}) check_pieces(kernels, checks, codec, in_turn);
  }
  for (const Codec codec : {Codec::f32, Codec::q8_0}) check_passes(kernels, checks, codec);
  check_empty(kernels, checks);
  check_routing(kernels, checks);
}

}  // namespace headrace::tests
