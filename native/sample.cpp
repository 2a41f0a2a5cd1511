#include "sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace headrace {
namespace {

// A mask that leaves one id in so many, or fewer, is followed id by id.
constexpr int64_t kSparse = 4;

int64_t end_of(const Row& row, int64_t block) {
  return std::min(row.n, (block + 1) * kRowBlock);
}

// The row of scores, or what keeps it from being sampled.
int32_t look_at(const Kernels& kernels, const float* scores, int64_t n, SampleScratch& scratch,
                Row* row) {
  float* highest = scratch.highest.data();
  *row = {scores, n, highest, kernels.highest(scores, n, highest)};
  if (std::isnan(row->most) || row->most == std::numeric_limits<float>::infinity()) return kNoToken;
  return std::isinf(row->most) ? kAllMasked : 0;
}

// The lowest id of the largest score.
int32_t first_of_most(const Row& row) {
  int64_t block = 0;
  while (row.highest[block] != row.most) ++block;
  int64_t id = block * kRowBlock;
  while (row.x[id] != row.most) ++id;
  return static_cast<int32_t>(id);
}

// The first token, in ascending id, whose cumulative weight exceeds `uniform` of the whole.
int32_t draw(const Kernels& kernels, const Row& row, Weighing weighing, const Kept& kept,
             double uniform, SampleScratch& scratch) {
  weighing.bound = kept.bound;
  int64_t* sums = scratch.sums.data();
  kernels.weigh(weighing, row.x, row.n, row.highest, sums);
  float weights[kRowBlock];
  const auto weigh_block = [&](int64_t block) {
    const int64_t begin = block * kRowBlock, n = end_of(row, block) - begin;
    kernels.exp_shifted(row.x + begin, n, weighing.most, weighing.temperature, weights);
    return n;
  };
  const auto weight_at = [&](int64_t block, int64_t i) {
    const int64_t id = block * kRowBlock + i;
    const bool counts = kept.has(row.x[id], id) && !(weights[i] < weighing.least);
    return counts ? fixed(weights[i]) : 0;
  };
  const int64_t blocks = (row.n + kRowBlock - 1) / kRowBlock;
  int64_t total = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    // Of the scores at the edge, `weigh` has none.
    if (block * kRowBlock <= kept.last && row.highest[block] >= kept.edge) {
      sums[block] = 0;
      const int64_t n = weigh_block(block);
      for (int64_t i = 0; i < n; ++i) sums[block] += weight_at(block, i);
    }
    total += sums[block];
  }
  const double share = uniform * static_cast<double>(total);
  // Rounding may carry the product up to the whole; the last token of any weight is then meant.
  int64_t left = std::min(static_cast<int64_t>(share), total - 1);
  int64_t block = 0;
  for (; left >= sums[block]; ++block) left -= sums[block];
  weigh_block(block);
  int64_t i = 0;
  for (; left >= weight_at(block, i); ++i) left -= weight_at(block, i);
  return static_cast<int32_t>(block * kRowBlock + i);
}

void penalise(float* scores, int64_t n, const Penalties& penalties) {
  for (int64_t i = 0; i < penalties.size; ++i) {
    if (penalties.ids[i] >= n) continue;
    float& score = scores[penalties.ids[i]];
    score = score > 0 ? score / penalties.repetition : score * penalties.repetition;
    if (penalties.counts[i] == 0) continue;
    score -= penalties.frequency * static_cast<float>(penalties.counts[i]);
    score -= penalties.presence;
  }
}

// Filters set what they drop to -inf. The largest of blocks follow.
void drop(float* scores, int64_t n, const Kept& kept, float* highest) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  for (int64_t begin = 0, block = 0; begin < n; begin += kRowBlock, ++block) {
    const int64_t end = std::min(n, begin + kRowBlock);
    if (!(highest[block] > kept.bound) && !(highest[block] >= kept.edge && begin <= kept.last)) {
      std::fill(scores + begin, scores + end, kNone);
      highest[block] = kNone;
      continue;
    }
    float most = kNone;
    for (int64_t id = begin; id < end; ++id) {
      scores[id] = kept.has(scores[id], id) ? scores[id] : kNone;
      most = std::max(most, scores[id]);
    }
    highest[block] = most;
  }
}

// Of the word of a mask that begins with the id `begin`, the bits of ids below n.
uint32_t word_of(const uint32_t* mask, int64_t begin, int64_t n) {
  const uint32_t word = mask[begin / 32];
  return n - begin < 32 ? word & ((uint32_t{1} << (n - begin)) - 1) : word;
}

int64_t count_allowed(const uint32_t* mask, int64_t n) {
  int64_t count = 0;
  for (int64_t begin = 0; begin < n; begin += 32) count += std::popcount(word_of(mask, begin, n));
  return count;
}

// The scores of the ids that the mask has, in their order, and these ids.
void gather_allowed(const float* logits, int64_t n, const uint32_t* mask,
                    SampleScratch& scratch) {
  size_t count = 0;
  for (int64_t begin = 0; begin < n; begin += 32) {
    for (uint32_t left = word_of(mask, begin, n); left != 0; left &= left - 1) {
      const int64_t id = begin + std::countr_zero(left);
      scratch.scores[count] = logits[id];
      scratch.ids[count++] = static_cast<int32_t>(id);
    }
  }
}

// `drop` by the weights of what is left.
void drop_by_min_p(const Kernels& kernels, const Row& row, float min_p, float* scores,
                   float* highest) {
  drop(scores, row.n, {weightless(row.most, 1.0f, min_p)}, highest);
  float weights[kRowBlock];
  for (int64_t block = 0; block * kRowBlock < row.n; ++block) {
    if (std::isinf(highest[block])) continue;
    const int64_t begin = block * kRowBlock, n = end_of(row, block) - begin;
    kernels.exp_shifted(scores + begin, n, row.most, 1.0f, weights);
    float& most = highest[block] = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < n; ++i) {
      float& score = scores[begin + i];
      score = weights[i] < min_p ? -std::numeric_limits<float>::infinity() : score;
      most = std::max(most, score);
    }
  }
}

int32_t chain_row(const Kernels& kernels, const float* logits, int64_t n, const SampleRow& of,
                  SampleScratch& scratch) {
  float* scores = scratch.scores.data();
  if (of.mask != nullptr) {
    kernels.mask(logits, n, of.mask, scores);
  } else {
    std::copy(logits, logits + n, scores);
  }
  Row row;
  int32_t bad = look_at(kernels, scores, n, scratch, &row);
  bool greedy = false;
  for (int s = 0; s < of.chain.count && bad == 0; ++s) {
    const Weighing weighing{row.most, 1.0f, 0.0f, 0.0f};
    Kept kept;
    switch (of.chain.stages[s]) {
      case Stage::penalties:
        penalise(scores, n, of.chain.penalties);
        bad = look_at(kernels, scores, n, scratch, &row);
        break;
      case Stage::temperature:
        greedy = of.temperature == 0;
        if (greedy) break;
        for (int64_t i = 0; i < n; ++i) scores[i] /= of.temperature;
        bad = look_at(kernels, scores, n, scratch, &row);
        break;
      case Stage::min_p:
        if (!(of.min_p > 0)) break;
        drop_by_min_p(kernels, row, of.min_p, scores, scratch.highest.data());
        break;
      case Stage::top_k:
        if (of.top_k == 0 || of.top_k >= n) break;
        keep_top_k(kernels, row, of.top_k, kept, scratch);
        drop(scores, n, kept, scratch.highest.data());
        break;
      case Stage::top_p:
        if (!(of.top_p < 1)) break;
        kept.bound = weightless(row.most, 1.0f, 0.0f);
        keep_top_p(kernels, row, weighing, static_cast<double>(of.top_p), kept, scratch);
        drop(scores, n, kept, scratch.highest.data());
        break;
    }
  }
  if (bad != 0) return bad;
  if (greedy) return first_of_most(row);
  const Kept all{weightless(row.most, 1.0f, 0.0f)};
  return draw(kernels, row, {row.most, 1.0f, 0.0f, 0.0f}, all, of.uniform, scratch);
}

// The default order, of logits that nothing masks.
int32_t plain_row(const Kernels& kernels, const float* logits, int64_t n, const SampleRow& of,
                  SampleScratch& scratch) {
  Row row;
  const int32_t bad = look_at(kernels, logits, n, scratch, &row);
  if (bad != 0) return bad;
  // And so is a denormal one, while denormals are read as zero.
  if (of.temperature == 0) return first_of_most(row);
  // The largest logit has weight exactly 1, at any temperature.
  const Weighing weighing{row.most, of.temperature, of.min_p, 0.0f};
  Kept kept{weightless(row.most, of.temperature, of.min_p)};
  if (of.top_k > 0 && of.top_k < n) keep_top_k(kernels, row, of.top_k, kept, scratch);
  if (of.top_p < 1) {
    keep_top_p(kernels, row, weighing, static_cast<double>(of.top_p), kept, scratch);
  }
  return draw(kernels, row, weighing, kept, of.uniform, scratch);
}

// scratch.best: the k largest scores, lowest ids first among equals, in that order.
void find_best(const Kernels& kernels, const Row& row, int64_t k, SampleScratch& scratch) {
  std::vector<SampleScratch::Entry>& best = scratch.best;
  best.clear();
  if (k == 0) return;
  Kept kept;
  const float least = keep_top_k(kernels, row, k, kept, scratch);
  const auto collect = [&](const auto& belongs) {
    for (int64_t block = 0; block * kRowBlock < row.n; ++block) {
      if (row.highest[block] < least) continue;
      for (int64_t id = block * kRowBlock; id < end_of(row, block); ++id) {
        if (!belongs(row.x[id])) continue;
        best.push_back({row.x[id], static_cast<int32_t>(id)});
        if (static_cast<int64_t>(best.size()) == k) return;
      }
    }
  };
  // Fewer than k are larger than the least; of its equals the first ones belong to them.
  collect([&](float score) { return score > least; });
  std::sort(best.begin(), best.end(), [](const auto& a, const auto& b) {
    return a.score != b.score ? a.score > b.score : a.id < b.id;
  });
  if (static_cast<int64_t>(best.size()) < k) collect([&](float score) { return score == least; });
}

// How many scores come before that of `chosen`, lower ids first among equals.
int64_t count_ahead(const Kernels& kernels, const Row& row, int32_t chosen) {
  const float mine = row.x[chosen];
  int64_t ahead = kernels.count_above(row.x, row.n, row.highest, mine);
  for (int64_t block = 0; block * kRowBlock < chosen; ++block) {
    if (row.highest[block] < mine) continue;
    const int64_t end = std::min<int64_t>(chosen, end_of(row, block));
    for (int64_t id = block * kRowBlock; id < end; ++id) ahead += row.x[id] == mine;
  }
  return ahead;
}

}  // namespace

int32_t sample_row(const Kernels& kernels, const float* logits, int64_t n, const SampleRow& row,
                   SampleScratch& scratch) {
  if (row.chain.count > 0) return chain_row(kernels, logits, n, row, scratch);
  if (row.mask == nullptr) return plain_row(kernels, logits, n, row, scratch);
  const int64_t allowed = count_allowed(row.mask, n);
  if (allowed == 0) return kAllMasked;
  if (allowed > n / kSparse) {
    kernels.mask(logits, n, row.mask, scratch.scores.data());
    return plain_row(kernels, scratch.scores.data(), n, row, scratch);
  }
  // What is masked has weight 0, which no sum, count or order of the others sees.
  gather_allowed(logits, n, row.mask, scratch);
  const int32_t at = plain_row(kernels, scratch.scores.data(), allowed, row, scratch);
  return at < 0 ? at : scratch.ids[static_cast<size_t>(at)];
}

int32_t top_logprobs_row(const Kernels& kernels, const float* logits, int64_t n, int32_t chosen,
                         int64_t k, float* logprob, int32_t* rank, int32_t* ids, float* values,
                         SampleScratch& scratch) {
  Row row;
  const int32_t bad = look_at(kernels, logits, n, scratch, &row);
  if (bad != 0) return bad;
  const Weighing weighing{row.most, 1.0f, 0.0f, weightless(row.most, 1.0f, 0.0f)};
  kernels.weigh(weighing, logits, n, row.highest, scratch.sums.data());
  int64_t total = 0;
  for (int64_t block = 0; block * kRowBlock < n; ++block) {
    total += scratch.sums[static_cast<size_t>(block)];
  }
  const double log_total =
      std::log(static_cast<double>(total) / kFixedOne) + static_cast<double>(row.most);
  const auto logprob_of = [&](float score) {
    return static_cast<float>(static_cast<double>(score) - log_total);
  };
  *logprob = logprob_of(logits[chosen]);
  *rank = static_cast<int32_t>(count_ahead(kernels, row, chosen) + 1);
  find_best(kernels, row, k, scratch);
  for (size_t i = 0; i < scratch.best.size(); ++i) {
    ids[i] = scratch.best[i].id;
    values[i] = logprob_of(scratch.best[i].score);
  }
  return 0;
}

}  // namespace headrace
