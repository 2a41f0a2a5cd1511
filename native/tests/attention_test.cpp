// Attention through a paged cache: equal to the twin bit for bit over ragged lengths and head sizes,
// whether a prompt comes at once, in chunks or token by token, and whether requests share what they read.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "backend.h"
#include "neighbours.h"
#include "suites.h"
#include "twin.h"

namespace headrace::tests {
namespace {

// What q or p becomes that meets what is stored.
float rounded(KvCodec codec, float x) { return codec == KvCodec::bf16 ? to_bf16(x) : x; }

// The e4m3 number nearest to x, of two the one with an even code; 448 where x is beyond.
float to_e4m3(float x) {
  uint8_t best = 0;
  for (uint8_t code = 1; code < 0x7f; ++code) {
    const float near = std::abs(from_e4m3(best) - std::abs(x));
    const float now = std::abs(from_e4m3(code) - std::abs(x));
    if (now < near || (now == near && code % 2 == 0)) best = code;
  }
  return std::copysign(from_e4m3(best), x);
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

struct Case {
  int64_t kv_heads, group, head_dim, block_size, tokens;
  KvKind k_kind, v_kind;
  int64_t window = 1 << 30;
  float softcap = 0;
  int64_t chunk = 0;
  bool sinks = false, slopes = false, masks = false;
  int64_t value_dim = 0;  // 0: that of keys
  bool latent = false;    // values are the last dimensions of the keys
  bool near = false;      // the span that a token is in is read in bf16
  float k_scale = 1, v_scale = 1;
  float sink = -1;  // of the first head

  int64_t values() const { return value_dim == 0 ? head_dim : value_dim; }
  KvKind value_kind() const { return latent ? k_kind : v_kind; }
  bool rotates(KvKind kind) const { return kind.rotated && !latent; }
  int64_t width() const {
    return kv_heads * ((group + 1) * head_dim + (latent ? 0 : values()));
  }
  // Where the values of a kv head begin in a row.
  int64_t value_column(int64_t kv_head) const {
    const int64_t keys = kv_heads * group * head_dim;
    return latent ? keys + (kv_head + 1) * head_dim - values()
                  : keys + kv_heads * head_dim + kv_head * values();
  }
  std::string name() const {
    return "attention of " + std::to_string(tokens) + " tokens, " + std::to_string(kv_heads) +
           " x " + std::to_string(group) + " heads of " + std::to_string(head_dim) + ", K " +
           k_kind.name + ", V " + value_kind().name + " of " +
           std::to_string(values()) + (latent ? " within K" : "") +
           ", window " + std::to_string(window) + ", softcap " + std::to_string(softcap) +
           ", chunk " + std::to_string(chunk) +
           (sinks ? ", sinks from " + std::to_string(sink) : "") +
           (slopes ? ", slopes" : "") + (masks ? ", masks" : "") + (near ? ", near" : "");
  }
  float sink_of(int64_t head) const { return 0.75f * static_cast<float>(head) + sink; }
  float slope_of(int64_t head) const { return 1.0f / static_cast<float>(2 << head % 8); }
  // Two positions of three, and its own.
  bool shows(int64_t token, int64_t position) const {
    return !masks || token == position || (token + position) % 3 != 0;
  }
};

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

// `width` values of a row, turned where a kind asks for it.
std::vector<float> head_of(const Case& c, const std::vector<float>& qkv, int64_t token,
                           int64_t column, int64_t width, bool turned) {
  const auto at = qkv.begin() + token * c.width() + column;
  std::vector<float> head(at, at + width);
  return turned ? rotated(head) : head;
}

StoredTokens stored_tokens(const Case& c, const std::vector<float>& qkv, int64_t kv_head) {
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
void row_twin(const Kernels& kernels, const Case& c, const std::vector<float>& qkv,
              const StoredTokens& of, int64_t position, int64_t head, float scale, float* y) {
  const Rounding r = rounding_of(kernels);
  const bool k_pairs = r.pairs && c.k_kind.codec != KvCodec::f32;
  const bool v_pairs = r.pairs && c.value_kind().codec != KvCodec::f32;
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
    for (int64_t t = from; t < n; ++t) {
      p[t] = c.shows(position, start + t) ? exp_of(kernels, p[t] - now) : 0.0f;
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
        chain = std::fma(p[at], values[static_cast<size_t>(start + at)].values[static_cast<size_t>(i)],
                         chain);
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

std::vector<float> attention_twin(const Kernels& kernels, const Case& c,
                                  const std::vector<float>& qkv, float scale) {
  const int64_t heads = c.kv_heads * c.group;
  std::vector<float> y(static_cast<size_t>(c.tokens * heads * c.values()));
  for (int64_t h = 0; h < heads; ++h) {
    const StoredTokens of = stored_tokens(c, qkv, h / c.group);
    for (int64_t token = 0; token < c.tokens; ++token) {
      row_twin(kernels, c, qkv, of, token, h, scale, y.data() + (token * heads + h) * c.values());
    }
  }
  return y;
}

// The same prompt in chunks of `chunk` tokens.
std::vector<float> in_chunks(Backend& backend, const Case& c, const std::vector<float>& qkv,
                             float scale, int64_t chunk) {
  const int64_t heads = c.kv_heads * c.group, d = c.head_dim;
  const int64_t blocks = (c.tokens + c.block_size - 1) / c.block_size;
  const KvPlace place{0, 0, c.kv_heads, d, c.values(), c.latent, c.k_kind, c.v_kind,
                      c.near ? 1 : -1, 0, c.k_scale, c.v_scale};
  KvCache cache({place}, c.block_size, 2 * blocks);
  std::vector<int32_t> table, near_table, positions;
  const std::vector<int32_t> request_of(static_cast<size_t>(c.tokens));  // all of request 0
  for (int64_t i = blocks; i > 0; --i) {
    table.push_back(static_cast<int32_t>(i - 1));
    near_table.push_back(static_cast<int32_t>(2 * blocks - i));
  }
  for (int64_t i = 0; i < c.tokens; ++i) positions.push_back(static_cast<int32_t>(i));
  std::vector<float> y(static_cast<size_t>(c.tokens * heads * c.values())), sinks, slopes;
  for (int64_t head = 0; head < heads; ++head) {
    sinks.push_back(c.sink_of(head));
    slopes.push_back(c.slope_of(head));
  }
  const int64_t spans = (c.tokens + kSpan - 1) / kSpan;
  std::vector<uint64_t> masks(static_cast<size_t>(c.tokens * spans));
  for (int64_t token = 0; token < c.tokens; ++token) {
    for (int64_t position = 0; position < c.tokens; ++position) {
      const uint64_t bit = uint64_t{c.shows(token, position)} << position % kSpan;
      masks[static_cast<size_t>(token * spans + position / kSpan)] |= bit;
    }
  }
  for (int64_t at = 0; at < c.tokens; at += chunk) {
    const int64_t n = std::min(chunk, c.tokens - at);
    const int32_t start[] = {0, static_cast<int32_t>(n)};
    const BatchView batch{positions.data() + at, start, table.data(), blocks, 1, n,
                          near_table.data(), blocks};
    const float* rows = qkv.data() + at * c.width();
    backend.kv_write({cache.layer(0), batch, request_of.data(), rows, c.width(), heads * d,
                      c.latent ? 0 : c.value_column(0)});
    Visibility sees{c.window, c.chunk};
    if (c.masks) {
      sees.masks = masks.data() + at * spans;
      sees.mask_spans = spans;
    }
    backend.attention({cache.layer(0), batch, rows, c.width(), c.group, scale, sees, c.softcap,
                       c.sinks ? sinks.data() : nullptr, c.slopes ? slopes.data() : nullptr,
                       y.data() + at * heads * c.values()});
  }
  return y;
}

void check(const Kernels& kernels, Checks& checks, const Case& c) {
  const float scale = 0.3f;
  const std::vector<float> qkv =
      Random(static_cast<uint64_t>(c.tokens)).values(c.tokens * c.width(), 2.0f);
  const std::vector<float> want = attention_twin(kernels, c, qkv, scale);
  for (const int threads : {1, 2}) {
    Backend backend(kernels, threads);
    for (const int64_t chunk : {c.tokens, int64_t{1}, int64_t{23}}) {
      // Alone, a token of a long context is cut into parts that threads share.
      if (chunk == 1 && threads > 1 && c.tokens <= kPart) continue;
      checks.equal(in_chunks(backend, c, qkv, scale, chunk), want,
                   c.name() + ", chunks of " + std::to_string(chunk));
    }
  }
}

// Requests of which some begin with the same blocks: `shared` of the one before, of blocks of 16.
struct Sharer {
  int64_t before, now, shared;
};
constexpr Sharer kSharers[] = {{200, 1, 0},  {330, 1, 12}, {290, 3, 16}, {257, 1, 16}, {420, 4, 5},
                               {198, 40, 4}, {100, 2, 0},  {230, 1, 0},  {231, 1, 14}};

// What is shared is read once, with the bits of each request alone; all is `longer` times as long.
void check_shared(const Kernels& kernels, Checks& checks, const Case& c, int64_t longer = 1) {
  constexpr int64_t kRequests = std::size(kSharers);
  const int64_t width = 32 * longer;
  const int64_t heads = c.kv_heads * c.group;
  std::vector<int32_t> tables, near_tables, positions, start = {0};
  int32_t blocks = 0;
  int64_t spans = 0;
  for (const Sharer& r : kSharers) {
    const size_t row = tables.size();
    for (int64_t i = 0; i < width; ++i) {
      const size_t before = row + static_cast<size_t>(i) - static_cast<size_t>(width);
      tables.push_back(i < longer * r.shared ? tables[before] : blocks++);
      near_tables.push_back(blocks++);
    }
    for (int64_t i = 0; i < r.now; ++i) positions.push_back(static_cast<int32_t>(longer * r.before + i));
    start.push_back(static_cast<int32_t>(positions.size()));
    spans = std::max(spans, (longer * r.before + r.now + kSpan - 1) / kSpan);
  }
  const auto tokens = static_cast<int64_t>(positions.size());
  KvCache cache({KvPlace{0, 0, c.kv_heads, c.head_dim, c.values(), c.latent, c.k_kind, c.v_kind,
                         c.near ? 1 : -1, 0, c.k_scale, c.v_scale}}, 16, blocks);
  Backend backend(kernels, 2);
  Random random(7);
  for (int64_t r = 0; r < kRequests; ++r) {
    const int64_t n = longer * kSharers[r].before + kSharers[r].now;
    std::vector<int32_t> at, request_of(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) at.push_back(static_cast<int32_t>(i));
    const int32_t one[] = {0, static_cast<int32_t>(n)};
    const std::vector<float> rows = random.values(n * c.width(), 2.0f);
    backend.kv_write({cache.layer(0), {at.data(), one, tables.data() + r * width, width, 1, n,
                                       near_tables.data() + r * width, width},
                      request_of.data(), rows.data(), c.width(), heads * c.head_dim,
                      c.latent ? 0 : c.value_column(0)});
  }
  std::vector<float> sinks, slopes;
  for (int64_t head = 0; head < heads; ++head) {
    sinks.push_back(c.sink_of(head));
    slopes.push_back(c.slope_of(head));
  }
  Visibility sees{c.window, c.chunk};
  std::vector<uint64_t> masks(static_cast<size_t>(tokens * spans));
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t position = 0; position < spans * kSpan; ++position) {
      const bool shown = c.shows(positions[static_cast<size_t>(token)], position);
      masks[static_cast<size_t>(token * spans + position / kSpan)] |= uint64_t{shown}
                                                                      << position % kSpan;
    }
  }
  if (c.masks) {
    sees.masks = masks.data();
    sees.mask_spans = spans;
  }
  const BatchView batch{positions.data(), start.data(), tables.data(), width, kRequests, tokens,
                        near_tables.data(), width};
  const std::vector<Neighbour> found = find_neighbours(batch, sees, 16);
  BatchView sharing = batch;
  sharing.neighbours = found.data();
  sharing.num_neighbours = static_cast<int64_t>(found.size());
  checks.that(!found.empty(), c.name() + ", some share a prefix");
  const std::vector<float> rows = random.values(tokens * c.width(), 2.0f);
  const auto attended = [&](int threads, const BatchView& of) {
    std::vector<float> y(static_cast<size_t>(tokens * heads * c.values()));
    Backend(kernels, threads)
        .attention({cache.layer(0), of, rows.data(), c.width(), c.group, 0.3f, sees, c.softcap,
                    c.sinks ? sinks.data() : nullptr, c.slopes ? slopes.data() : nullptr, y.data()});
    return y;
  };
  const std::vector<float> want = attended(1, batch);
  for (const int threads : {1, 5}) {
    checks.equal(attended(threads, sharing), want,
                 c.name() + ", shared, threads " + std::to_string(threads));
  }
}

}  // namespace

void attention_suite(const Kernels& kernels, Checks& checks) {
  const KvKind f32 = kKvKinds[0], bf16 = kKvKinds[1];
  constexpr size_t kKinds = std::size(kKvKinds);
  for (const KvKind& k : kKvKinds) {
    for (const KvKind& v : kKvKinds) check(kernels, checks, {2, 3, 18, 16, 83, k, v});
    check(kernels, checks, {1, 1, 64, 32, 130, k, k});
  }
  check(kernels, checks, {1, 1, 64, 32, 130, f32, bf16});
  check(kernels, checks, {1, 1, 64, 32, 130, bf16, f32});
  check(kernels, checks, {1, 5, 80, 64, 65, bf16, bf16});
  check(kernels, checks, {1, 7, 272, 16, 70, bf16, bf16});  // products of pairs are cut at 128
  check(kernels, checks, {1, 2, 2, 16, 33, f32, f32});
  const KvKind fp8 = kKvKinds[2];
  for (const bool near : {false, true}) {
    check(kernels, checks, {2, 2, 32, 16, 150, fp8, fp8, 1 << 30, 0, 0, false, false, false, 0, false,
                            near, 0.37f, 3.1f});
    check(kernels, checks, {1, 20, 40, 16, 140, fp8, fp8, 1 << 30, 0, 0, false, false, false, 24, true,
                            near, 0.013f, 0.013f});
  }
  for (const int64_t window : {1, 7, 64, 90}) {
    check(kernels, checks, {1, 2, 20, 16, 140, window % 2 == 0 ? bf16 : f32, bf16, window, 2.5f});
  }
  for (const int64_t chunk : {0, 48, 100}) {
    const KvKind a = chunk == 48 ? bf16 : f32, b = chunk == 48 ? f32 : bf16;
    check(kernels, checks, {2, 2, 32, 16, 150, a, a, 90, 0, chunk, true});
    check(kernels, checks, {1, 4, 20, 32, 150, b, a, 1 << 30, 0, chunk, false, true});
    check(kernels, checks, {1, 2, 16, 64, 150, a, b, 70, 0, chunk, true, true, true});
  }
  for (const int64_t window : {150, 1 << 30}) {
    check_shared(kernels, checks, {2, 3, 18, 16, 0, bf16, f32, window, 0, 0, true});
    check_shared(kernels, checks, {2, 1, 18, 16, 0, bf16, bf16, window, 0, 128, false, false, true});
  }
  // Contexts of several parts.
  for (const bool extra : {false, true}) {
    check(kernels, checks, {1, 2, 4, 64, 2 * kPart + 70, bf16, extra ? fp8 : bf16, 1 << 30, 0, 0, extra,
                            extra, extra});
    check(kernels, checks, {1, 1, 6, 16, 2 * kPart + 5, extra ? f32 : bf16, bf16, kPart + 100, 0, 0,
                            extra});
  }
  // Sinks far above all scores: of whole parts no weight is seen beside them.
  for (const KvKind& kind : {f32, bf16}) {
    Case far{1, 2, 8, 16, 2 * kPart + 70, kind, kind, 1 << 30, 0, 0, true};
    far.sink = 24;
    check(kernels, checks, far);
    far.masks = true;
    check(kernels, checks, far);
  }
  check_shared(kernels, checks, {1, 2, 8, 16, 0, bf16, bf16, 1 << 30, 0, 0, true, false, true}, 6);
  check_shared(kernels, checks, {2, 1, 6, 16, 0, bf16, fp8, kPart + 200}, 6);
  check(kernels, checks, {1, 3, 8, 16, kPart + 90, bf16, bf16, 1 << 30, 0, 700, true});
  check(kernels, checks, {1, 2, 16, 16, kPart + 90, bf16, bf16, 1 << 30, 0, 0, false, false, false, 8, true});
  for (size_t i = 0; i < kKinds; ++i) {
    const KvKind a = kKvKinds[i], b = kKvKinds[(i + 1) % kKinds];
    check(kernels, checks, {2, 2, 24, 16, 83, a, b, 1 << 30, 0, 0, false, false, false, 16});
    check(kernels, checks, {1, 2, 16, 32, 70, b, a, 40, 0, 0, true, false, false, 40});
    check(kernels, checks, {1, 20, 80, 16, 83, a, a, 1 << 30, 0, 0, true, true, false, 64, true});
    check(kernels, checks, {2, 3, 34, 64, 150, a, a, 70, 0, 0, false, false, true, 20, true});
    check_shared(kernels, checks, {2, 2, 32, 16, 0, a, b});
    check_shared(kernels, checks, {1, 5, 48, 16, 0, a, a, 150, 0, 0, true, false, true, 24, true});
    if (!may_be_near(a)) continue;
    const KvKind c = may_be_near(b) ? b : a;
    check_shared(kernels, checks, {1, 2, 24, 16, 0, a, c, 1 << 30, 2.5f, 0, false, true, false, 40,
                                   false, true});
    check(kernels, checks, {2, 3, 18, 16, 150, a, c, 1 << 30, 0, 0, false, false, false, 0, false,
                            true});
    check(kernels, checks, {1, 2, 64, 32, 200, c, a, 70, 0, 0, true, false, false, 40, false, true});
    check(kernels, checks, {1, 20, 80, 16, 140, a, a, 1 << 30, 0, 0, true, true, true, 64, true,
                            true});
  }
}

}  // namespace headrace::tests
