// Passes over a row of scores, and what filters keep of it beside a twin that sorts.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "row_filters.h"
#include "sample.h"
#include "suites.h"

namespace headrace::tests {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kWidths[] = {1, 2, 15, 16, 17, 31, 48, 100, 127, 128, 129, 300};

using Floats = std::vector<float>;
using Amounts = std::vector<int64_t>;

int64_t size_of(const Floats& x) { return static_cast<int64_t>(x.size()); }
size_t blocks_of(int64_t n) { return static_cast<size_t>((n + kRowBlock - 1) / kRowBlock); }

void check_highest(const Kernels& kernels, Checks& checks) {
  for (const int64_t n : kWidths) {
    const Floats x = Random(17).values(n);
    Floats of(blocks_of(n)), want(of.size(), -kInfinity);
    for (int64_t i = 0; i < n; ++i) {
      float& most = want[static_cast<size_t>(i / kRowBlock)];
      most = std::max(most, x[static_cast<size_t>(i)]);
    }
    const std::string name = "highest of " + std::to_string(n);
    checks.that(kernels.highest(x.data(), n, of.data()) == *std::max_element(x.begin(), x.end()),
                name);
    checks.equal(of, want, name + ", of its blocks");
    for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
      Floats bad = x;
      bad[static_cast<size_t>(at)] = __builtin_nanf("");
      checks.that(std::isnan(kernels.highest(bad.data(), n, of.data())), "highest with NaN");
      Floats low(x.size(), -kInfinity);
      checks.that(kernels.highest(low.data(), n, of.data()) == -kInfinity, "highest of -inf");
      low[static_cast<size_t>(at)] = -3.0f;
      checks.that(kernels.highest(low.data(), n, of.data()) == -3.0f, "highest beside -inf");
    }
  }
}

// Of each score, whatever its bound.
Amounts weights_of(const Kernels& kernels, const Floats& x, const Weighing& w) {
  Floats weights(x.size());
  kernels.exp_shifted(x.data(), size_of(x), w.most, w.temperature, weights.data());
  Amounts all;
  for (const float weight : weights) all.push_back(weight < w.least ? 0 : fixed(weight));
  return all;
}

void check_passes(const Kernels& kernels, Checks& checks) {
  for (const int64_t n : kWidths) {
    Floats x = Random(18).values(n, 6.0f);
    if (n > 2) x[2] = -kInfinity;
    Floats highest(blocks_of(n));
    const float most = kernels.highest(x.data(), n, highest.data());
    for (const float bound : {-kInfinity, most - 3.0f, x[0], most}) {
      const std::string name = "row of " + std::to_string(n) + " above " + std::to_string(bound);
      Floats want, some;
      Amounts sums(highest.size()), want_sums(highest.size(), 0);
      const Weighing weighing{most, 0.7f, 1e-4f, bound};
      const Amounts weights = weights_of(kernels, x, weighing);
      for (int64_t i = 0; i < n; ++i) {
        const float score = x[static_cast<size_t>(i)];
        if (!(score > bound)) continue;
        want.push_back(score);
        if (score <= most - 1.0f) some.push_back(score);
        want_sums[static_cast<size_t>(i / kRowBlock)] += weights[static_cast<size_t>(i)];
      }
      for (const bool by_blocks : {true, false}) {
        const float* of = by_blocks ? highest.data() : nullptr;
        kernels.weigh(weighing, x.data(), n, of, sums.data());
        checks.that(sums == want_sums, name + ": weights");
        checks.that(kernels.count_above(x.data(), n, of, bound) == size_of(want), name + ": count");
        for (const bool all : {true, false}) {
          Floats taken = x;
          taken.resize(x.size() + kLanes);
          const float limit = all ? kInfinity : most - 1.0f;
          taken.resize(static_cast<size_t>(
              kernels.take(taken.data(), n, of, bound, limit, taken.data())));
          checks.equal(taken, all ? want : some, name + ": taken in place");
        }
      }
    }
    std::vector<uint32_t> mask;
    for (int64_t word = 0; word * 32 < n; ++word) mask.push_back(0x9d2c5680u >> word);
    Floats masked(x.size()), want = x;
    for (int64_t i = 0; i < n; ++i) {
      const bool allowed = (mask[static_cast<size_t>(i / 32)] >> (i % 32) & 1u) != 0;
      if (!allowed) want[static_cast<size_t>(i)] = -kInfinity;
    }
    kernels.mask(x.data(), n, mask.data(), masked.data());
    checks.equal(masked, want, "mask of " + std::to_string(n));
  }
  constexpr float kLeast = std::numeric_limits<float>::min();
  checks.equal({below(kLeast), below(0.0f), below(-0.0f), below(-kLeast), below(2.0f)},
               {0.0f, -kLeast, -kLeast, -0x1.000002p-126f, 0x1.fffffep0f}, "the float below");
}

// Rows that a search by samples meets: spread, flat, with ties of many kinds, in order, and such
// that evenly spaced samples show nothing of the rest.
std::vector<Floats> rows_of(int64_t n) {
  Random random(static_cast<uint64_t>(n));
  std::vector<Floats> rows = {random.values(n, 4.0f), random.values(n, 0.01f), Floats(n, -2.0f)};
  Floats whole = random.values(n, 3.0f), rising(static_cast<size_t>(n)), hidden(rising);
  for (float& score : whole) score = std::round(score);
  for (int64_t i = 0; i < n; ++i) {
    rising[static_cast<size_t>(i)] = static_cast<float>(i) / 500.0f;
    hidden[static_cast<size_t>(i)] = i % std::max<int64_t>(1, n / 128) == 0 ? -9.0f : 1.0f;
  }
  Floats falling(rising.rbegin(), rising.rend()), peaked = random.values(n, 2.0f), few = peaked;
  for (int64_t i = 0; i < n; ++i) {
    if (i % 97 == 0) peaked[static_cast<size_t>(i)] += 8.0f;
    if (i % 50 != 3) few[static_cast<size_t>(i)] = -kInfinity;
  }
  few[0] = 0.0f;
  for (Floats& row : {std::ref(whole), std::ref(rising), std::ref(hidden), std::ref(falling),
                      std::ref(peaked), std::ref(few)}) {
    rows.push_back(row);
  }
  return rows;
}

// The places of scores from the highest on.
std::vector<size_t> sorted(const Floats& x) {
  std::vector<size_t> order(x.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
  return order;
}

// What is left of each score's weight by the definition: everything sorted, summed one by one.
Amounts filtered_twin(const Floats& x, const std::vector<size_t>& order, Amounts weights,
                      int64_t top_k, double top_p) {
  if (top_k > 0 && top_k < size_of(x)) {
    const float least = x[order[static_cast<size_t>(top_k - 1)]];
    for (size_t i = 0; i < x.size(); ++i) weights[i] = x[i] < least ? 0 : weights[i];
  }
  if (top_p < 1) {
    const double limit =
        top_p * static_cast<double>(std::accumulate(weights.begin(), weights.end(), int64_t{0}));
    int64_t ahead = 0;
    for (const size_t id : order) {
      const int64_t own = weights[id];
      if (static_cast<double>(ahead) >= limit) weights[id] = 0;
      ahead += own;
    }
  }
  return weights;
}

int32_t draw_twin(const Amounts& weights, double uniform) {
  const int64_t total = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  const double target = uniform * static_cast<double>(total);
  int64_t sum = 0;
  int32_t last = 0;
  for (size_t id = 0; id < weights.size() && static_cast<double>(sum) <= target; ++id) {
    sum += weights[id];
    if (weights[id] > 0) last = static_cast<int32_t>(id);
  }
  return last;
}

void check_draws(const Kernels& kernels, Checks& checks) {
  Random random(40);
  for (const int64_t n : {5, 129, 700, 20000}) {
    SampleScratch scratch;
    scratch.reserve(n, 30, false);
    int64_t row = 0;
    for (const Floats& x : rows_of(n)) {
      const float most = *std::max_element(x.begin(), x.end());
      const std::vector<size_t> order = sorted(x);
      for (const SampleRow& of : std::initializer_list<SampleRow>{
               {1.0f, 0, 1.0f, 0.0f, 0}, {0.7f, 1, 1.0f, 0.0f, 0}, {1.0f, 20, 0.95f, 0.0f, 0},
               {1.0f, static_cast<int32_t>(n / 3), 1.0f, 0.0f, 0}, {1.3f, 0, 0.9f, 0.0f, 0},
               {1.0f, 0, 0.5f, 0.0f, 0}, {1.0f, 0, 0.999999f, 0.0f, 0}, {1.0f, 0, 1e-6f, 0.0f, 0},
               {0.3f, 0, 1.0f, 0.05f, 0}, {1.0f, 50, 0.8f, 0.02f, 0}, {2.0f, 0, 0.3f, 0.5f, 0}}) {
        const Weighing weighing{most, of.temperature, of.min_p, 0.0f};
        const Amounts left = filtered_twin(x, order, weights_of(kernels, x, weighing), of.top_k,
                                           static_cast<double>(of.top_p));
        std::vector<int32_t> got, want;
        for (int64_t draw = 0; draw < 12; ++draw) {
          SampleRow drawn = of;
          drawn.uniform = draw == 0   ? 0.0
                          : draw == 1 ? 0x1.fffffffffffffp-1
                                      : static_cast<double>(random.below(1 << 16)) / (1 << 16);
          got.push_back(sample_row(kernels, x.data(), n, drawn, scratch));
          want.push_back(draw_twin(left, drawn.uniform));
        }
        checks.that(got == want, "row " + std::to_string(row) + " of " + std::to_string(n) +
                                     ": top_k " + std::to_string(of.top_k) + ", top_p " +
                                     std::to_string(of.top_p) + ", min_p " +
                                     std::to_string(of.min_p));
      }
      ++row;
    }
  }
}

}  // namespace

void row_suite(const Kernels& kernels, Checks& checks) {
  check_highest(kernels, checks);
  check_passes(kernels, checks);
  check_draws(kernels, checks);
}

}  // namespace headrace::tests
