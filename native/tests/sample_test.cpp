// Explicit orders of stages, by what each has to leave; the default order as one of them.

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "backend.h"
#include "suites.h"

namespace headrace::tests {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

Chain chain_of(std::vector<Stage> stages, Penalties penalties = {nullptr, nullptr, 0, 1, 0, 0}) {
  Chain chain{};
  for (const Stage stage : stages) chain.stages[chain.count++] = stage;
  chain.penalties = penalties;
  return chain;
}

// Which tokens any of many draws gives.
std::vector<float> kept(Backend& backend, const std::vector<float>& logits, SampleRow row) {
  constexpr int64_t kDraws = 500;
  const int64_t n = static_cast<int64_t>(logits.size());
  std::vector<SampleRow> rows;
  std::vector<float> table;
  for (int64_t i = 0; i < kDraws; ++i) {
    row.uniform = static_cast<double>(i) / static_cast<double>(kDraws);
    rows.push_back(row);
    table.insert(table.end(), logits.begin(), logits.end());
  }
  std::vector<int32_t> ids(static_cast<size_t>(kDraws));
  int64_t bad = -1;
  std::vector<float> drawn(logits.size(), 0.0f);
  if (backend.sample(table.data(), n, n, rows, ids.data(), &bad) != 0) return {};
  for (const int32_t id : ids) drawn[static_cast<size_t>(id)] = 1.0f;
  return drawn;
}

void check_orders(Backend& backend, Checks& checks) {
  // Probabilities 0.1, 0.4, 0.05, 0.25, 0.2.
  std::vector<float> logits;
  for (const double p : {0.1, 0.4, 0.05, 0.25, 0.2}) {
    logits.push_back(static_cast<float>(std::log(p)));
  }
  const auto check = [&](SampleRow row, std::vector<float> want, const std::string& name) {
    checks.equal(kept(backend, logits, row), want, name);
  };
  using enum Stage;
  check({1, 3, 0.75f, 0, 0, chain_of({top_k, top_p})}, {0, 1, 0, 1, 0}, "top_k, then top_p");
  check({1, 3, 0.75f, 0, 0, chain_of({top_p, top_k})}, {0, 1, 0, 1, 1}, "top_p, then top_k");
  check({4, 0, 1, 0.49f, 0, chain_of({temperature, min_p})}, {1, 1, 1, 1, 1}, "min_p last");
  check({4, 0, 1, 0.49f, 0, chain_of({min_p, temperature})}, {0, 1, 0, 1, 1}, "min_p first");
  check({0, 2, 1, 0, 0, chain_of({top_k, temperature})}, {0, 1, 0, 0, 0}, "greedy");
  const std::vector<int32_t> ids = {1, 3, 9}, counts = {2, 0, 5};
  const Penalties strong{ids.data(), counts.data(), 3, 2.0f, 1.0f, 0.5f};
  check({0, 2, 1, 0, 0, chain_of({top_k, penalties, temperature}, strong)}, {0, 0, 0, 1, 0},
        "penalties after top_k");
  check({0, 2, 1, 0, 0, chain_of({temperature, penalties, top_k}, strong)}, {0, 0, 0, 0, 1},
        "penalties before top_k");
  // A gap that no float weight holds is still there for the temperature behind the filter.
  logits = {0, -300, kMasked};
  check({300, 2, 1, 0, 0, chain_of({top_k, temperature})}, {1, 1, 0}, "far behind, and masked");
  logits = {3e38f, 0};
  check({0.5f, 2, 1, 0, 0, chain_of({temperature, top_k})}, {}, "beyond the range of a float");
  logits = {kMasked, kMasked};
  check({1, 2, 1, 0, 0, chain_of({top_k, temperature})}, {}, "all masked");
}

// At temperature 1 a chain in the default order does the same work on the same numbers.
void check_default(Backend& backend, Checks& checks) {
  constexpr int64_t kRows = 60, kTokens = 203;
  Random random(31);
  const std::vector<float> logits = random.values(kRows * kTokens, 4.0f);
  std::vector<SampleRow> plain, chained;
  for (int64_t i = 0; i < kRows; ++i) {
    SampleRow row{i % 7 == 0 ? 0.0f : 1.0f, static_cast<int32_t>(i % 5 * 20),
                  i % 2 == 0 ? 0.9f : 1.0f, i % 3 == 0 ? 0.05f : 0.0f,
                  static_cast<double>(random.below(1000)) / 1000};
    plain.push_back(row);
    using enum Stage;
    row.chain = chain_of({penalties, temperature, min_p, top_k, top_p});
    chained.push_back(row);
  }
  std::vector<int32_t> a(kRows), b(kRows);
  int64_t bad = -1;
  const auto run = [&](const std::vector<SampleRow>& rows, std::vector<int32_t>& ids) {
    return backend.sample(logits.data(), kTokens, kTokens, rows, ids.data(), &bad);
  };
  checks.that(run(plain, a) == 0 && run(chained, b) == 0 && a == b, "the default order");
}

// A mask draws what the same row draws with -inf in place of what is masked: words of every kind, a
// last one that is not full, many ids and few; by the default order, by a chain, and by neither.
void check_masks(Backend& backend, Checks& checks) {
  constexpr int64_t kRows = 48;
  Random random(32);
  int64_t bad = -1;
  for (const int64_t width : {1, 31, 32, 33, 203, 2050}) {
    const int64_t words = (width + 31) / 32, n = std::max<int64_t>(1, width - 1);
    std::vector<float> logits = random.values(kRows * width, 4.0f);
    std::vector<float> masked = logits;
    std::vector<std::vector<uint32_t>> masks;
    std::vector<SampleRow> with_mask, with_scores;
    for (int64_t i = 0; i < kRows; ++i) {
      SampleRow row{i % 7 == 0 ? 0.0f : 0.8f, static_cast<int32_t>(i % 5 * 9),
                    i % 2 == 0 ? 0.9f : 1.0f, i % 3 == 0 ? 0.05f : 0.0f,
                    static_cast<double>(random.below(1000)) / 1000};
      using enum Stage;
      if (i % 4 == 1) row.chain = chain_of({top_p, temperature, top_k});
      with_scores.push_back(row);
      std::vector<uint32_t> mask;
      for (int64_t word = 0; word < words; ++word) {
        const uint32_t mixed = static_cast<uint32_t>(random.below(1 << 16)) * 65537u;
        const int64_t kind = random.below(3);
        mask.push_back(i % 8 < 4 ? (kind == 0 ? mixed & mixed << 3 : 0u)
                                 : (kind == 0 ? mixed : kind == 1 ? 0u : ~0u));
      }
      mask[0] |= 1;
      float* scores = masked.data() + i * width;
      for (int64_t id = 0; id < width; ++id) {
        if ((mask[static_cast<size_t>(id / 32)] >> (id % 32) & 1u) != 0) continue;
        scores[id] = kMasked;
        if (id % 5 == 0) logits[static_cast<size_t>(i * width + id)] = std::nanf("");
      }
      masks.push_back(std::move(mask));
    }
    for (int64_t i = 0; i < kRows; ++i) {
      with_mask.push_back(with_scores[static_cast<size_t>(i)]);
      with_mask.back().mask = masks[static_cast<size_t>(i)].data();
    }
    std::vector<int32_t> got(kRows), want(kRows);
    const std::string name = "masks of " + std::to_string(width) + " ids";
    checks.that(backend.sample(logits.data(), width, n, with_mask, got.data(), &bad) == 0 &&
                    backend.sample(masked.data(), width, n, with_scores, want.data(), &bad) == 0 &&
                    got == want,
                name);
    masks[5].assign(static_cast<size_t>(words), 0u);
    if (n < width) masks[5].back() |= uint32_t{1} << (n % 32);  // of padding, which is never drawn
    checks.that(
        backend.sample(logits.data(), width, n, with_mask, got.data(), &bad) == kAllMasked &&
            bad == 5,
        name + ", none of them allowed");
  }
}

}  // namespace

void sample_suite(const Kernels& kernels, Checks& checks) {
  Backend backend(kernels, 2);
  check_orders(backend, checks);
  check_default(backend, checks);
  check_masks(backend, checks);
}

}  // namespace headrace::tests
