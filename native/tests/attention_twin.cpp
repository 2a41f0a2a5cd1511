#include "attention_twin.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headrace::tests {
namespace {

// What q or p becomes that meets what is stored.
float rounded(KvCodec codec, float x) { return codec == KvCodec::bf16 ? to_bf16(x) : x; }

// The e4m3 number nearest to x, of two the one with an even code; 448 where x is beyond.
float to_e4m3(float x) {
  constexpr uint8_t kCodes = 0x7f;
  static const std::vector<float> numbers = [] {
    std::vector<float> all;
    for (uint8_t code = 0; code < kCodes; ++code) all.push_back(from_e4m3(code));
    return all;
  }();
  size_t best = 0;
  for (size_t code = 1; code < kCodes; ++code) {
    const float near = std::abs(numbers[best] - std::abs(x));
    const float now = std::abs(numbers[code] - std::abs(x));
    if (now < near || (now == near && code % 2 == 0)) best = code;
  }
  return std::copysign(numbers[best], x);
}

// A head as it is stored: values times a scale, 1 where the codec has none.
struct StoredHead {
  std::vector<float> values;
  float scale = 1;
};

// Of all factors the one whose codes, with the best scale for them, come nearest to x.
StoredHead in_four_bits(std::vector<float> x, float extreme) {
  const float step = extreme / -8.0f;
  for (float& v : x) v *= -8.0f / extreme;
  StoredHead best;
  float most = 0;
  for (int i = 0; i < 16; ++i) {
    const float part = static_cast<float>(i / 2) / 2.0f;
    const float factor = i % 2 == 0 ? (8.0f + part) / 8.0f : (7.0f + part) / -8.0f;
    std::vector<float> q;
    float products[16] = {}, squares[16] = {};
    for (size_t d = 0; d < x.size(); ++d) {
      q.push_back(std::clamp(std::nearbyint(x[d] * factor), -8.0f, 7.0f));
      products[d % 16] += q[d] * x[d];
      squares[d % 16] += q[d] * q[d];
    }
    const float s = sum_of_lanes(products), n = sum_of_lanes(squares);
    if (s * s / n <= most) continue;
    most = s * s / n;
    best = {q, s / n * step};
  }
  return best;
}

StoredHead stored(KvCodec codec, std::vector<float> x, float of_layer) {
  const auto by_magnitude = [](float a, float b) { return std::abs(a) < std::abs(b); };
  const float extreme = *std::max_element(x.begin(), x.end(), by_magnitude);
  float scale = 1;
  switch (codec) {
    case KvCodec::f32: break;
    case KvCodec::bf16:
      for (float& v : x) v = to_bf16(v);
      break;
    case KvCodec::fp8:
      for (float& v : x) v = to_e4m3(v / of_layer);
      scale = of_layer;
      break;
    case KvCodec::int8:
      scale = std::abs(extreme) / 127.0f;
      for (float& v : x) v = std::nearbyint(v * (127.0f / std::abs(extreme)));
      break;
    case KvCodec::int4:
      return in_four_bits(std::move(x), extreme);
  }
  return {std::move(x), scale};
}

// A Hadamard matrix's blocks of the largest power of two that divides the width.
std::vector<float> rotated(std::vector<float> x) {
  const size_t width = x.size(), block = width & -width;
  for (size_t stride = 1; stride < block; stride *= 2) {
    std::vector<float> y(width);
    for (size_t i = 0; i < width; ++i) {
      y[i] = (i & stride) == 0 ? x[i] + x[i + stride] : x[i - stride] - x[i];
    }
    x = y;
  }
  // Rounded once from the number itself.
  for (float& v : x) v *= static_cast<float>(1.0 / std::sqrt(static_cast<double>(block)));
  return x;
}

float exp_of(const Kernels& kernels, float x) {
  float y;
  kernels.exp_shifted(&x, 1, 0.0f, 1.0f, &y);
  return y;
}

float capped(const Kernels& kernels, float x, float cap) {
  float y;
  kernels.activate({&x, &y, 1, Activation::softcap, false, cap}, 0, 1);
  return y;
}

// What the cache holds of a kv head, of each token, and what those of its own span read instead.
struct StoredTokens {
  std::vector<StoredHead> k, v, near_k, near_v;
};

// `width` values of a row, turned where a kind stores it so.
std::vector<float> head_of(const AttentionCase& c, const std::vector<float>& qkv, int64_t token,
                           int64_t column, int64_t width, bool turned) {
  const auto at = qkv.begin() + token * c.width() + column;
  std::vector<float> head(at, at + width);
  return turned ? rotated(head) : head;
}

StoredTokens stored_tokens(const AttentionCase& c, const std::vector<float>& qkv, int64_t kv_head) {
  StoredTokens of;
  const int64_t d = c.head_dim, k_column = (c.kv_heads * c.group + kv_head) * d;
  const auto add = [&](KvCodec k_codec, KvCodec v_codec, int64_t token,
                       std::vector<StoredHead>& keys, std::vector<StoredHead>& values) {
    keys.push_back(stored(k_codec, head_of(c, qkv, token, k_column, d, c.rotates(c.k_kind)),
                          c.k_scale));
    const StoredHead& k = keys.back();
    values.push_back(c.latent ? StoredHead{{k.values.end() - c.values(), k.values.end()}, k.scale}
                              : stored(v_codec,
                                       head_of(c, qkv, token, c.value_column(kv_head), c.values(),
                                               c.rotates(c.v_kind)), c.v_scale));
  };
  for (int64_t token = 0; token < c.tokens; ++token) {
    add(c.k_kind.codec, c.v_kind.codec, token, of.k, of.v);
    if (c.near) add(KvCodec::bf16, KvCodec::bf16, token, of.near_k, of.near_v);
  }
  return of;
}

// What is summed up over a part of a long context; nothing is where `most` is that of no score.
struct PartSums {
  std::vector<float> mixed;
  float most = -__builtin_inff();
  float total[16] = {};
};

void join(const Kernels& kernels, PartSums& to, const PartSums& later) {
  if (later.most == -__builtin_inff() && !to.mixed.empty()) return;
  if (to.most == -__builtin_inff()) {
    to = later;
    return;
  }
  const float most = std::max(to.most, later.most);
  const float before = exp_of(kernels, to.most - most), now = exp_of(kernels, later.most - most);
  for (size_t i = 0; i < to.mixed.size(); ++i) {
    to.mixed[i] = to.mixed[i] * before + later.mixed[i] * now;
  }
  for (int i = 0; i < 16; ++i) to.total[i] = to.total[i] * before + later.total[i] * now;
  to.most = most;
}

// One head of one token at `position`, in the order of docs/kernels.md.
void row_twin(const Kernels& kernels, const AttentionCase& c, const std::vector<float>& qkv,
              const StoredTokens& of, int64_t position, int64_t head, float scale, float* y) {
  const Rounding r = rounding_of(kernels);
  const bool k_pairs = r.attention_pairs && c.k_kind.codec != KvCodec::f32;
  const bool v_pairs = r.attention_pairs && c.value_kind().codec != KvCodec::f32;
  const bool scaled = v_pairs && c.value_kind().codec != KvCodec::bf16;
  const int64_t d = c.head_dim;
  std::vector<float> q;
  for (const float x : head_of(c, qkv, position, head * d, d, false)) {
    q.push_back(rounded(c.k_kind.codec, x));
  }
  if (c.rotates(c.k_kind)) q = rotated(q);
  for (float& x : q) x = k_pairs ? to_bf16(x) : x;
  // Of the parts before the one that is summed up, where there are any.
  PartSums before, now_of;
  now_of.mixed.resize(static_cast<size_t>(c.values()));
  float& most = now_of.most;
  float (&total)[16] = now_of.total;
  std::vector<float>& mixed = now_of.mixed;
  const int64_t chunk_from = c.chunk == 0 ? 0 : position - position % c.chunk;
  const int64_t seen_from = std::max<int64_t>(chunk_from, position + 1 - c.window);
  for (int64_t start = seen_from / kSpan * kSpan; start <= position; start += kSpan) {
    if (start % kPart == 0 && seen_from < start) {
      join(kernels, before, now_of);
      now_of = {std::vector<float>(mixed.size()), -__builtin_inff(), {}};
    }
    // Positions [from, n) of the span are seen.
    const int64_t from = std::max<int64_t>(0, seen_from - start);
    const int64_t n = std::min(kSpan, position + 1 - start);
    const bool near = c.near && position < start + kSpan;
    const std::vector<StoredHead>& keys = near ? of.near_k : of.k;
    const std::vector<StoredHead>& values = near ? of.near_v : of.v;
    float p[kSpan], highest = -__builtin_inff();
    for (int64_t t = from; t < n; ++t) {
      const float* const k = keys[static_cast<size_t>(start + t)].values.data();
      const float sum = k_pairs ? pair_product(k, q.data(), d) : float_product(r, k, q.data(), d);
      p[t] = sum * keys[static_cast<size_t>(start + t)].scale * scale;
      if (c.softcap != 0) p[t] = capped(kernels, p[t], c.softcap);
      if (c.slopes) p[t] += c.slope_of(head) * static_cast<float>(start + t - position);
      if (c.shows(position, start + t)) highest = std::max(highest, p[t]);
    }
    if (highest == -__builtin_inff()) continue;
    const float now = std::max(most, highest);
    const float keep = now == most ? 1.0f : exp_of(kernels, most - now);
    for (float& lane : total) lane *= keep;
    kernels.exp_shifted(p + from, n - from, now, 1.0f, p + from);
    for (int64_t t = from; t < n; ++t) {
      if (!c.shows(position, start + t)) p[t] = 0.0f;
      p[t] = rounded(c.value_kind().codec, p[t]);
      if (!v_pairs || scaled) total[t % 16] += p[t];
      p[t] *= values[static_cast<size_t>(start + t)].scale;
      if (scaled) p[t] = to_bf16(p[t]);
    }
    // In pairs the second of two comes first.
    for (int64_t t = 0; v_pairs && !scaled && t < kSpan; ++t) {
      if (from <= (t ^ 1) && (t ^ 1) < n) total[t / 2 % 16] += p[t ^ 1];
    }
    most = now;
    for (int64_t i = 0; v_pairs && i < c.values(); ++i) {
      float chain = 0, &sum = mixed[static_cast<size_t>(i)];
      for (int64_t t = 0; t < kSpan; ++t) {
        const int64_t at = t ^ 1;
        if (at < from || at >= n) continue;
        const StoredHead& v = values[static_cast<size_t>(start + at)];
        chain = std::fma(p[at], v.values[static_cast<size_t>(i)], chain);
      }
      sum = std::fma(sum, keep, chain);
    }
    for (int64_t i = 0; !v_pairs && i < c.values(); ++i) {
      float sum = mixed[static_cast<size_t>(i)] * keep;
      for (int64_t tile = from / kTile * kTile; tile < n; tile += kTile) {
        EvenOdd chains;
        for (int64_t t = std::max(from, tile); t < std::min(n, tile + kTile); ++t) {
          chains.add(r, t - tile, p[t],
                     values[static_cast<size_t>(start + t)].values[static_cast<size_t>(i)]);
        }
        sum = sum + chains.sum();
      }
      mixed[static_cast<size_t>(i)] = sum;
    }
  }
  join(kernels, before, now_of);
  mixed = before.mixed;
  float whole = sum_of_lanes(before.total);
  if (c.sinks) whole += exp_of(kernels, c.sink_of(head) - before.most);
  for (float& v : mixed) v /= whole;
  if (c.rotates(c.v_kind)) mixed = rotated(mixed);
  std::copy(mixed.begin(), mixed.end(), y);
}

}  // namespace

std::vector<float> attention_twin(const Kernels& kernels, const AttentionCase& c,
                                  const std::vector<float>& qkv, float scale) {
  const int64_t heads = c.kv_heads * c.group;
  std::vector<float> y(static_cast<size_t>(c.tokens * heads * c.values()));
  for (int64_t kv_head = 0; kv_head < c.kv_heads; ++kv_head) {
    const StoredTokens of = stored_tokens(c, qkv, kv_head);
    for (int64_t h = kv_head * c.group; h < (kv_head + 1) * c.group; ++h) {
      for (const Stretch& stretch : c.stretches()) {
        for (int64_t token = stretch.begin; token < stretch.end; ++token) {
          row_twin(kernels, c, qkv, of, token, h, scale,
                   y.data() + (token * heads + h) * c.values());
        }
      }
    }
  }
  return y;
}

}  // namespace headrace::tests
