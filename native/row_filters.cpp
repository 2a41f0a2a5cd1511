#include "row_filters.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace headrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Scores that are sorted rather than sampled, and how many a sample has. A quantile of so many is
// off by half of their root, 6, once in three times; by three of it hardly ever.
constexpr int64_t kSamples = 128;
constexpr int64_t kAround = 16;
// How far in its exponent a weight may be from the exact one, rounding of score and power included.
constexpr double kExponentSlack = 1e-3;

// Where the running amount of scores, largest first, reaches a limit: at `value`, -inf where it
// never does. ahead: the amount of what is larger; own: of all that equal it.
struct Stop {
  float value = -kInfinity;
  int64_t ahead = 0;
  int64_t own = 0;
};

// A normal float at most x, but for -inf.
float at_most(double x) {
  if (x < -std::numeric_limits<float>::max()) return -kInfinity;
  return below(static_cast<float>(x));
}

// Amounts of scores: how many they are or, with a weighing, what they weigh.
class Amounts {
 public:
  Amounts(const Kernels& kernels, const Weighing* weighing, SampleScratch& scratch)
      : kernels_(kernels), weighing_(weighing), scratch_(scratch) {}

  int64_t above(const float* x, int64_t n, float bound) const {
    if (weighing_ == nullptr) return kernels_.count_above(x, n, nullptr, bound);
    Weighing weighing = *weighing_;
    weighing.bound = bound;
    int64_t* sums = scratch_.taken_sums.data();
    kernels_.weigh(weighing, x, n, nullptr, sums);
    int64_t all = 0;
    for (int64_t block = 0; block * kRowBlock < n; ++block) all += sums[block];
    return all;
  }

  // All of the scores are above -inf.
  int64_t all(const float* x, int64_t n) const {
    return weighing_ == nullptr ? n : above(x, n, -kInfinity);
  }

  // Of each of at most kSamples scores.
  void each(const float* x, int64_t n, int64_t* amounts) const {
    if (weighing_ == nullptr) {
      std::fill(amounts, amounts + n, 1);
      return;
    }
    float weights[kSamples];
    kernels_.exp_shifted(x, n, weighing_->most, weighing_->temperature, weights);
    for (int64_t i = 0; i < n; ++i) {
      amounts[i] = weights[i] < weighing_->least ? 0 : fixed(weights[i]);
    }
  }

 private:
  const Kernels& kernels_;
  const Weighing* weighing_;
  SampleScratch& scratch_;
};

// Among x[n], at most kSamples of them, which are sorted.
Stop stop_sorted(const Amounts& amounts, float* x, int64_t n, int64_t ahead, int64_t limit) {
  std::sort(x, x + n, std::greater<>());
  int64_t of[kSamples];
  amounts.each(x, n, of);
  for (int64_t i = 0; i < n;) {
    const int64_t first = i;
    int64_t own = 0;
    for (; i < n && x[i] == x[first]; ++i) own += of[i];
    if (ahead + own >= limit) return {x[first], ahead, own};
    ahead += own;
  }
  return {};
}

// A search for the stop among more and more of the scores until few are left. `near` has those that
// are `left`, in their order; `ahead` is the amount of those that were dropped because they are
// larger, and `whole` about what those that are left come to, which reaches the limit.
class Search {
 public:
  Search(const Kernels& kernels, const Amounts& amounts, int64_t limit, SampleScratch& scratch)
      : kernels_(kernels),
        amounts_(amounts),
        limit_(limit),
        near_(scratch.taken.data()),
        nearer_(scratch.nearer.data()) {}

  // Among the scores x[n] that are above `floor`; whole: as find_stop has it.
  Stop find(const float* x, int64_t n, const float* highest, float floor, int64_t whole) {
    left_ = kernels_.take(x, n, highest, floor, kInfinity, near_);
    whole_ = whole;
    if (left_ > kSamples && whole_ == 0) {
      whole_ = amounts_.all(near_, left_);
      if (whole_ < limit_) return {};
    }
    Stop stop;
    while (left_ > kSamples) {
      if (narrow(stop)) return stop;
    }
    return stop_sorted(amounts_, near_, left_, ahead_, limit_);
  }

 private:
  // The scores of a sample between which the stop most likely is, and one of them that it is where
  // all that are left lie between these.
  struct Guess {
    float low, high, value;
  };

  void keep(float bound, float most) {
    left_ = kernels_.take(near_, left_, nullptr, bound, most, near_);
  }
  // What is larger than those that are kept has this amount.
  void pass(int64_t amount) {
    ahead_ += amount;
    whole_ = std::max<int64_t>(1, whole_ - amount);
  }

  Guess guess() const {
    float sample[kSamples];
    int64_t of[kSamples];
    for (int64_t i = 0; i < kSamples; ++i) sample[i] = near_[i * left_ / kSamples];
    std::sort(sample, sample + kSamples, std::greater<>());
    amounts_.each(sample, kSamples, of);
    double all = 0, running = 0;
    for (const int64_t amount : of) all += static_cast<double>(amount);
    const double needed = static_cast<double>(limit_ - ahead_);
    const double wanted = needed / static_cast<double>(whole_) * all;
    int64_t at = 0;
    while (at < kSamples - 1 && (running += static_cast<double>(of[at])) < wanted) ++at;
    const float high = at < kAround ? kInfinity : sample[at - kAround];
    if (at + kAround >= kSamples) return {-kInfinity, high, high};
    return {below(sample[at + kAround]), high, sample[at + kAround]};
  }

  // Drops scores above or below the stop; true where it is found instead.
  bool narrow(Stop& stop) {
    const int64_t needed = limit_ - ahead_;
    const Guess range = guess();
    const int64_t over =
        range.high == kInfinity ? 0 : amounts_.above(near_, left_, range.high);
    if (over >= needed) {
      whole_ = over;
      keep(range.high, kInfinity);
      return false;
    }
    const int64_t between =
        kernels_.take(near_, left_, nullptr, range.low, range.high, nearer_);
    if (between == left_) return narrow_by(range.value, stop);
    const int64_t own = amounts_.all(nearer_, between);
    if (over + own >= needed) {
      ahead_ += over;
      whole_ = own;
      left_ = between;
      std::swap(near_, nearer_);
    } else {
      pass(over + own);
      keep(-kInfinity, range.low);
    }
    return false;
  }

  // Many are equal to the end of the sample that all of them reach, or that none exceeds.
  bool narrow_by(float value, Stop& stop) {
    const int64_t needed = limit_ - ahead_;
    const int64_t larger = amounts_.above(near_, left_, value);
    const int64_t with = amounts_.above(near_, left_, below(value));
    if (larger >= needed) {
      whole_ = larger;
      keep(value, kInfinity);
    } else if (with >= needed) {
      stop = {value, ahead_ + larger, with - larger};
      return true;
    } else {
      pass(with);
      keep(-kInfinity, below(value));
    }
    return false;
  }

  const Kernels& kernels_;
  const Amounts& amounts_;
  const int64_t limit_;
  float* near_;
  float* nearer_;
  int64_t left_ = 0, ahead_ = 0, whole_ = 0;
};

// Among the scores x[n] that are above `floor`; limit is above 0.
// whole: about what these come to, where it is known that they reach the limit; else 0.
Stop find_stop(const Kernels& kernels, const float* x, int64_t n, const float* highest, float floor,
               int64_t limit, const Weighing* weighing, SampleScratch& scratch, int64_t whole = 0) {
  const Amounts amounts(kernels, weighing, scratch);
  return Search(kernels, amounts, limit, scratch).find(x, n, highest, floor, whole);
}

int64_t blocks_of(int64_t n) { return (n + kRowBlock - 1) / kRowBlock; }

// A score below which the stop of the row is not: that of the blocks' largest alone, since these
// are scores of the row, or `otherwise` where they do not come to the limit.
float bound_by_blocks(const Kernels& kernels, const Row& row, float floor, int64_t limit,
                      const Weighing* weighing, float otherwise, SampleScratch& scratch) {
  const Stop stop =
      find_stop(kernels, row.highest, blocks_of(row.n), nullptr, floor, limit, weighing, scratch);
  return stop.own == 0 ? otherwise : std::max(floor, below(stop.value));
}

}  // namespace

float below(float x) {
  constexpr float kLeast = std::numeric_limits<float>::min();
  if (x > -kLeast && x <= kLeast) return x == kLeast ? 0.0f : -kLeast;
  return std::nextafter(x, -kInfinity);
}

int64_t fixed(float weight) { return std::llrint(static_cast<double>(weight) * kFixedOne); }

float weightless(float most, float temperature, float min_p) {
  // Below half of a unit a weight rounds to 0.
  const double weight = std::max(static_cast<double>(min_p), 0.5 / kFixedOne);
  const double exponent = std::log(weight) - kExponentSlack;
  return at_most(static_cast<double>(most) + static_cast<double>(temperature) * exponent);
}

float keep_top_k(const Kernels& kernels, const Row& row, int64_t k, Kept& kept,
                 SampleScratch& scratch) {
  const float floor = bound_by_blocks(kernels, row, kept.bound, k, nullptr, kept.bound, scratch);
  const Stop stop = find_stop(kernels, row.x, row.n, row.highest, floor, k, nullptr, scratch);
  if (stop.own > 0) kept.bound = std::max(kept.bound, below(stop.value));
  return stop.value;
}

void keep_top_p(const Kernels& kernels, const Row& row, Weighing weighing, double top_p, Kept& kept,
                SampleScratch& scratch) {
  const int64_t blocks = blocks_of(row.n);
  weighing.bound = kept.bound;
  kernels.weigh(weighing, row.x, row.n, row.highest, scratch.sums.data());
  int64_t total = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    total += scratch.sums[static_cast<size_t>(block)];
  }
  const auto share = static_cast<int64_t>(std::ceil(top_p * static_cast<double>(total)));
  const int64_t limit = std::clamp<int64_t>(share, 1, total);

  // What n scores as low as this weigh together fits into what may be left out.
  const double spare = static_cast<double>(total - limit) / static_cast<double>(row.n);
  float floor = kept.bound;
  if (spare > 1 / kExponentSlack) {
    const double exponent = std::log(spare / kFixedOne) - 2 * kExponentSlack;
    floor = std::max(floor, at_most(static_cast<double>(row.most) +
                                    static_cast<double>(weighing.temperature) * exponent));
  }
  floor = bound_by_blocks(kernels, row, floor, limit, &weighing, floor, scratch);
  const Stop stop =
      find_stop(kernels, row.x, row.n, row.highest, floor, limit, &weighing, scratch, total);
  if (stop.own == 0) return;
  kept.bound = below(stop.value);
  // Of equal scores, which have one weight, as many as it takes.
  int64_t weight;
  Amounts(kernels, &weighing, scratch).each(&stop.value, 1, &weight);
  int64_t wanted = (limit - stop.ahead + weight - 1) / weight;
  if (wanted * weight >= stop.own) return;
  kept.bound = kept.edge = stop.value;
  for (int64_t block = 0; wanted > 0; ++block) {
    if (row.highest[block] < kept.edge) continue;
    const int64_t end = std::min(row.n, (block + 1) * kRowBlock);
    for (int64_t id = block * kRowBlock; id < end && wanted > 0; ++id) {
      if (row.x[id] != kept.edge) continue;
      kept.last = id;
      --wanted;
    }
  }
}

void SampleScratch::reserve(int64_t n, int64_t k, bool scored) {
  const auto room = [](auto& of, int64_t size) {
    if (static_cast<int64_t>(of.size()) < size) of.resize(static_cast<size_t>(size));
  };
  const int64_t blocks = blocks_of(n);
  room(highest, blocks);
  room(sums, blocks);
  room(taken, n + kLanes);
  room(nearer, n + kLanes);
  room(taken_sums, blocks);
  if (scored) {
    room(scores, n);
    room(ids, n);
  }
  best.reserve(static_cast<size_t>(k));
}

}  // namespace headrace
