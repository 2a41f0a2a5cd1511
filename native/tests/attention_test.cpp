// Attention through a paged cache: equal to the twin bit for bit over ragged lengths and head
// sizes, whether a prompt comes at once, in chunks or token by token, and whether requests share
// what they read.

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "attention_twin.h"
#include "backend.h"
#include "neighbours.h"
#include "suites.h"
#include "twin.h"

namespace headrace::tests {
namespace {

// The same prompt, whose tokens come and attend in chunks of `chunk`; others come at once.
std::vector<float> in_chunks(Backend& backend, const AttentionCase& c,
                             const std::vector<float>& qkv, float scale, int64_t chunk) {
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
  const auto take = [&](int64_t at, int64_t n, bool attends) {
    const int32_t start[] = {0, static_cast<int32_t>(n)};
    const BatchView batch{positions.data() + at, start, table.data(), blocks, 1, n,
                          near_table.data(), blocks};
    const float* rows = qkv.data() + at * c.width();
    backend.kv_write({cache.layer(0), batch, request_of.data(), rows, c.width(), heads * d,
                      c.latent ? 0 : c.value_column(0)});
    if (!attends) return;
    Visibility sees{c.window, c.chunk};
    if (c.masks) {
      sees.masks = masks.data() + at * spans;
      sees.mask_spans = spans;
    }
    backend.attention({cache.layer(0), batch, rows, c.width(), c.group, scale, sees, c.softcap,
                       c.sinks ? sinks.data() : nullptr, c.slopes ? slopes.data() : nullptr,
                       y.data() + at * heads * c.values()});
  };
  int64_t taken = 0;
  for (const Stretch& stretch : c.stretches()) {
    if (taken < stretch.begin) take(taken, stretch.begin - taken, false);
    for (int64_t at = stretch.begin; at < stretch.end; at += chunk) {
      take(at, std::min(chunk, stretch.end - at), true);
    }
    taken = stretch.end;
  }
  return y;
}

void check(const Kernels& kernels, Checks& checks, const AttentionCase& c) {
  const float scale = 0.3f;
  const std::vector<float> qkv =
      Random(static_cast<uint64_t>(c.tokens)).values(c.tokens * c.width(), 2.0f);
  const std::vector<float> want = attention_twin(kernels, c, qkv, scale);
  for (const int threads : {1, 2}) {
    Backend backend(kernels, threads);
    for (const int64_t chunk : {c.tokens, int64_t{1}, int64_t{23}}) {
      // Threads share rows, and of a long context the parts that a token alone is cut into.
      if (threads > 1 && chunk != c.tokens && (chunk != 1 || c.tokens <= kPart)) continue;
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
void check_shared(const Kernels& kernels, Checks& checks, const AttentionCase& c,
                  int64_t longer = 1) {
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
    for (int64_t i = 0; i < r.now; ++i) {
      positions.push_back(static_cast<int32_t>(longer * r.before + i));
    }
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
                    c.sinks ? sinks.data() : nullptr, c.slopes ? slopes.data() : nullptr,
                    y.data()});
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
    check(kernels, checks,
          {2, 2, 32, 16, 150, fp8, fp8, 1 << 30, 0, 0, false, false, false, 0, false, near, 0.37f,
           3.1f});
    check(kernels, checks,
          {1, 20, 40, 16, 140, fp8, fp8, 1 << 30, 0, 0, false, false, false, 24, true, near, 0.013f,
           0.013f});
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
    check_shared(kernels, checks,
                 {2, 1, 18, 16, 0, bf16, bf16, window, 0, 128, false, false, true});
  }
  // Contexts of several parts.
  for (const bool extra : {false, true}) {
    check(kernels, checks,
          {1, 2, 4, 64, 2 * kPart + 70, bf16, extra ? fp8 : bf16, 1 << 30, 0, 0, extra, extra,
           extra});
    check(kernels, checks, {1, 1, 6, 16, 2 * kPart + 5, extra ? f32 : bf16, bf16, kPart + 100, 0, 0,
                            extra});
    // Of kv heads that go together, cut.
    check(kernels, checks,
          {8, 1, 16, 16, 2 * kPart + 70, extra ? fp8 : bf16, bf16, 1 << 30, 0, 0, extra});
  }
  // Sinks far above all scores: of whole parts no weight is seen beside them.
  for (const KvKind& kind : {f32, bf16}) {
    AttentionCase far{1, 2, 8, 16, 2 * kPart + 70, kind, kind, 1 << 30, 0, 0, true};
    far.sink = 24;
    check(kernels, checks, far);
    far.masks = true;
    check(kernels, checks, far);
  }
  check_shared(kernels, checks, {1, 2, 8, 16, 0, bf16, bf16, 1 << 30, 0, 0, true, false, true}, 6);
  check_shared(kernels, checks, {2, 1, 6, 16, 0, bf16, fp8, kPart + 200}, 6);
  check(kernels, checks, {1, 3, 8, 16, kPart + 90, bf16, bf16, 1 << 30, 0, 700, true});
  check(kernels, checks,
        {1, 2, 16, 16, kPart + 90, bf16, bf16, 1 << 30, 0, 0, false, false, false, 8, true});
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
    check(kernels, checks,
          {1, 2, 64, 32, 200, c, a, 70, 0, 0, true, false, false, 40, false, true});
    check(kernels, checks, {1, 20, 80, 16, 140, a, a, 1 << 30, 0, 0, true, true, true, 64, true,
                            true});
  }
}

}  // namespace headrace::tests
