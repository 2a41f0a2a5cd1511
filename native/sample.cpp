#include "sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace headrace {
namespace {

using Bucket = SampleScratch::Bucket;

// A mask that leaves one id in so many, or fewer, is followed id by id.
constexpr int64_t kSparse = 4;

// A number that orders as the float does; both zeros are one.
uint32_t key_of(float x) {
  uint32_t bits;
  x += 0.0f;
  std::memcpy(&bits, &x, sizeof bits);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The largest logit, or what keeps the row from being sampled.
int32_t check_row(const Kernels& kernels, const float* logits, int64_t n, float* most) {
  *most = kernels.highest(logits, n);
  if (std::isnan(*most) || *most == std::numeric_limits<float>::infinity()) return kNoToken;
  return std::isinf(*most) ? kAllMasked : 0;
}

// Where a walk from the most likely token down stops: at the key `at`, after `ahead` (a count or a
// mass) of what is likelier.
template <class Amount>
struct Stop {
  uint32_t at;
  Amount ahead;
};

// The first key, in descending order, at which the running amount of weight > 0 tokens reaches
// `limit`; key 0 when none does. Two rounds of 2^16 buckets: the upper half of the key, then the
// lower, so nothing is sorted.
template <class Amount, class Of>
Stop<Amount> walk_down(const float* logits, int64_t n, SampleScratch& scratch, Amount limit,
                       Amount Bucket::*amount, const Of& of) {
  const float* weights = scratch.weights.data();
  uint32_t prefix = 0;
  Amount ahead = 0;
  for (int shift = 16; shift >= 0; shift -= 16) {
    scratch.buckets.assign(SampleScratch::kBuckets, Bucket{0, 0.0});
    Bucket* buckets = scratch.buckets.data();
    for (int64_t i = 0; i < n; ++i) {
      if (!(weights[i] > 0)) continue;
      const uint32_t key = key_of(logits[i]);
      if (shift == 0 && key >> 16 != prefix) continue;
      buckets[(key >> shift) & 0xffff].*amount += of(weights[i]);
    }
    int64_t b = SampleScratch::kBuckets - 1;
    for (; b >= 0; --b) {
      if (ahead + buckets[b].*amount >= limit) break;
      ahead += buckets[b].*amount;
    }
    if (b < 0) return {0, ahead};
    prefix = shift == 16 ? static_cast<uint32_t>(b) : prefix << 16 | static_cast<uint32_t>(b);
  }
  return {prefix, ahead};
}

void keep_top_k(const float* logits, int64_t n, int64_t k, SampleScratch& scratch) {
  const Stop<int64_t> stop = walk_down<int64_t>(logits, n, scratch, k, &Bucket::count,
                                                [](float) { return int64_t{1}; });
  for (int64_t i = 0; i < n; ++i) {
    if (key_of(logits[i]) < stop.at) scratch.weights[static_cast<size_t>(i)] = 0;
  }
}

// Tokens stay while the likelier ones (lower ids first among equals) have not reached top_p.
void keep_top_p(const float* logits, int64_t n, double top_p, SampleScratch& scratch) {
  float* weights = scratch.weights.data();
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(weights[i]);
  const double limit = top_p * total;
  const Stop<double> stop =
      walk_down<double>(logits, n, scratch, limit, &Bucket::mass,
                        [](float weight) { return static_cast<double>(weight); });
  double ahead = stop.ahead;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t key = key_of(logits[i]);
    if (key > stop.at) continue;
    const float weight = weights[i];
    if (key < stop.at || ahead >= limit) weights[i] = 0;
    if (key == stop.at) ahead += static_cast<double>(weight);
  }
}

// The first token, in ascending id, whose cumulative weight exceeds `uniform` of the whole.
int32_t draw(const float* weights, int64_t n, double uniform) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(weights[i]);
  const double target = uniform * total;
  double cumulative = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (weights[i] == 0) continue;
    cumulative += static_cast<double>(weights[i]);
    last = i;
    if (cumulative > target) break;
  }
  return static_cast<int32_t>(last);
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

// Filters set the weights of what they drop to 0; here its scores follow. Weights of 0 from the
// start are too small for a float: min_p and top_p drop them as well, and top_k is given others.
void drop(float* scores, int64_t n, const float* weights) {
  for (int64_t i = 0; i < n; ++i) {
    if (weights[i] == 0) scores[i] = -std::numeric_limits<float>::infinity();
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

// The scores of all ids, -inf where the mask has no bit.
void masked_scores(const float* logits, int64_t n, const uint32_t* mask, SampleScratch& scratch) {
  scratch.scores.assign(logits, logits + n);
  if (mask == nullptr) return;
  for (int64_t begin = 0; begin < n; begin += 32) {
    // Within a string nearly all is allowed: what is left out is walked over.
    const int64_t count = std::min<int64_t>(32, n - begin);
    const uint32_t all = count < 32 ? (uint32_t{1} << count) - 1 : ~uint32_t{0};
    for (uint32_t left = ~mask[begin / 32] & all; left != 0; left &= left - 1) {
      scratch.scores[static_cast<size_t>(begin + std::countr_zero(left))] =
          -std::numeric_limits<float>::infinity();
    }
  }
}

// The scores of the ids that the mask has, in their order, and these ids.
void gather_allowed(const float* logits, int64_t n, const uint32_t* mask, SampleScratch& scratch) {
  scratch.scores.clear();
  scratch.ids.clear();
  for (int64_t begin = 0; begin < n; begin += 32) {
    for (uint32_t left = word_of(mask, begin, n); left != 0; left &= left - 1) {
      const int64_t id = begin + std::countr_zero(left);
      scratch.scores.push_back(logits[id]);
      scratch.ids.push_back(static_cast<int32_t>(id));
    }
  }
}

int32_t chain_row(const Kernels& kernels, const float* logits, int64_t n, const SampleRow& row,
                  SampleScratch& scratch) {
  scratch.weights.resize(static_cast<size_t>(n));
  masked_scores(logits, n, row.mask, scratch);
  float* weights = scratch.weights.data();
  float* scores = scratch.scores.data();
  float most;
  int32_t bad = check_row(kernels, scores, n, &most);
  bool greedy = false;
  for (int s = 0; s < row.chain.count && bad == 0; ++s) {
    switch (row.chain.stages[s]) {
      case Stage::penalties:
        penalise(scores, n, row.chain.penalties);
        bad = check_row(kernels, scores, n, &most);
        break;
      case Stage::temperature:
        greedy = row.temperature == 0;
        if (greedy) break;
        for (int64_t i = 0; i < n; ++i) scores[i] /= row.temperature;
        bad = check_row(kernels, scores, n, &most);
        break;
      case Stage::min_p:
        if (!(row.min_p > 0)) break;
        kernels.exp_shifted(scores, n, most, 1.0f, weights);
        for (int64_t i = 0; i < n; ++i) weights[i] = weights[i] < row.min_p ? 0.0f : weights[i];
        drop(scores, n, weights);
        break;
      case Stage::top_k:
        if (row.top_k == 0 || row.top_k >= n) break;
        for (int64_t i = 0; i < n; ++i) weights[i] = std::isinf(scores[i]) ? 0.0f : 1.0f;
        keep_top_k(scores, n, row.top_k, scratch);
        drop(scores, n, weights);
        break;
      case Stage::top_p:
        if (!(row.top_p < 1)) break;
        kernels.exp_shifted(scores, n, most, 1.0f, weights);
        keep_top_p(scores, n, static_cast<double>(row.top_p), scratch);
        drop(scores, n, weights);
        break;
    }
  }
  if (bad != 0) return bad;
  if (greedy) return static_cast<int32_t>(std::find(scores, scores + n, most) - scores);
  kernels.exp_shifted(scores, n, most, 1.0f, weights);
  return draw(weights, n, row.uniform);
}

// The default order, of logits that nothing masks.
int32_t plain_row(const Kernels& kernels, const float* logits, int64_t n, const SampleRow& row,
                  SampleScratch& scratch) {
  float most;
  const int32_t bad = check_row(kernels, logits, n, &most);
  if (bad != 0) return bad;
  if (row.temperature == 0) {  // and so is a denormal one, while denormals are read as zero
    return static_cast<int32_t>(std::find(logits, logits + n, most) - logits);
  }
  scratch.weights.resize(static_cast<size_t>(n));
  float* weights = scratch.weights.data();
  // The largest logit has weight exactly 1, at any temperature.
  kernels.exp_shifted(logits, n, most, row.temperature, weights);
  if (row.min_p > 0) {
    for (int64_t i = 0; i < n; ++i) weights[i] = weights[i] < row.min_p ? 0.0f : weights[i];
  }
  if (row.top_k > 0 && row.top_k < n) keep_top_k(logits, n, row.top_k, scratch);
  if (row.top_p < 1) keep_top_p(logits, n, static_cast<double>(row.top_p), scratch);
  return draw(weights, n, row.uniform);
}

}  // namespace

void SampleScratch::reserve(int64_t n, int64_t k, bool scored) {
  weights.reserve(static_cast<size_t>(n));
  if (scored) {
    scores.reserve(static_cast<size_t>(n));
    ids.reserve(static_cast<size_t>(n / kSparse));
  }
  buckets.reserve(kBuckets);
  best.reserve(static_cast<size_t>(k));
}

int32_t sample_row(const Kernels& kernels, const float* logits, int64_t n, const SampleRow& row,
                   SampleScratch& scratch) {
  if (row.chain.count > 0) return chain_row(kernels, logits, n, row, scratch);
  if (row.mask == nullptr) return plain_row(kernels, logits, n, row, scratch);
  const int64_t allowed = count_allowed(row.mask, n);
  if (allowed == 0) return kAllMasked;
  if (allowed > n / kSparse) {
    masked_scores(logits, n, row.mask, scratch);
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
  float most;
  const int32_t bad = check_row(kernels, logits, n, &most);
  if (bad != 0) return bad;
  scratch.weights.resize(static_cast<size_t>(n));
  kernels.exp_shifted(logits, n, most, 1.0f, scratch.weights.data());
  double total = 0;
  for (const float weight : scratch.weights) total += static_cast<double>(weight);
  const double log_total = std::log(total) + static_cast<double>(most);
  const auto logprob_of = [&](int64_t id) {
    return static_cast<float>(static_cast<double>(logits[id]) - log_total);
  };

  const float mine = logits[chosen];
  int64_t ahead = 0;
  for (int64_t i = 0; i < n; ++i) ahead += logits[i] > mine;
  for (int64_t i = 0; i < chosen; ++i) ahead += logits[i] == mine;
  *logprob = logprob_of(chosen);
  *rank = static_cast<int32_t>(ahead + 1);

  // A heap of the k best so far with the worst of them on top; most tokens fail its one test.
  using Entry = SampleScratch::Entry;
  const auto better = [](const Entry& a, const Entry& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  std::vector<Entry>& best = scratch.best;
  best.clear();
  for (int64_t i = 0; i < n && k > 0; ++i) {
    if (static_cast<int64_t>(best.size()) < k) {
      best.emplace_back(logits[i], i);
      std::push_heap(best.begin(), best.end(), better);
    } else if (logits[i] > best.front().first) {
      std::pop_heap(best.begin(), best.end(), better);
      best.back() = {logits[i], i};
      std::push_heap(best.begin(), best.end(), better);
    }
  }
  std::sort_heap(best.begin(), best.end(), better);
  for (size_t i = 0; i < best.size(); ++i) {
    ids[i] = static_cast<int32_t>(best[i].second);
    values[i] = logprob_of(best[i].second);
  }
  return 0;
}

}  // namespace headrace
