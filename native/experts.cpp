// The chosen experts of a ragged batch: pairs of a token and an expert, sorted by expert, so that
// the matrices of each chosen expert are read once and those of no other are.
//
// Every stage is cut over all threads at once, pieces of (expert, panels, rows) where it
// multiplies: one token with k experts streams as a single matrix of k times the panels would.
// Results stay apart until all are there; then each token adds its own in the order of choice.

#include <algorithm>
#include <cstring>

#include "backend.h"
#include "product_cut.h"
#include "session.h"

namespace headrace {
namespace {

// Memory for the rows of one pass over the tokens, about: more tokens at a time read the weights
// less often.
constexpr int64_t kPassBytes = 256 << 20;
// Weights that a piece of a product reads, about, where there are not enough of them for the
// threads: long enough to stream.
constexpr int64_t kStreamBytes = 64 << 10;
constexpr int64_t kItemsPerThread = 16;

// One row of an operand to a row of another of the same kind.
void copy_row(const PackedMatrix& weight, const Operand& from, int64_t i, const Operand& to,
              int64_t j) {
  const auto copy = [i, j](auto* target, const auto* source, int64_t count) {
    if (count == 0) return;  // a kind without such values has no memory for them
    std::memcpy(target + j * count, source + i * count,
                static_cast<size_t>(count) * sizeof(*target));
  };
  if (to.half != nullptr) return copy(to.half, from.half, to.stride);
  if (to.values != nullptr) return copy(to.values, from.values, to.stride);
  const int64_t groups = weight.tiles * facts(weight.codec).groups;
  copy(to.q, from.q, weight.tiles * kTile);
  copy(to.d, from.d, weight.tiles);
  copy(to.start, from.start, groups);
  if (to.whole_sums != nullptr) return copy(to.whole_sums, from.whole_sums, groups);
  copy(to.sums, from.sums, groups);
}

// Rows as few and as many of them are multiplied need not be the same bytes.
bool differ(const Kernels& kernels, Codec codec) {
  return kernels.product(codec, false).half_operand != kernels.product(codec, true).half_operand;
}

}  // namespace

// Counting sort of the pairs of tokens [begin, end) by expert.
void Backend::sort_by_expert(const ExpertsArgs& a, int64_t begin, int64_t end) {
  const int32_t* experts = a.experts + begin * a.chosen;
  const int64_t pairs = (end - begin) * a.chosen, count = a.gate_up.count();
  first_pair_.assign(static_cast<size_t>(count + 1), 0);
  sorted_.resize(static_cast<size_t>(pairs));
  place_.resize(static_cast<size_t>(pairs));
  for (int64_t i = 0; i < pairs; ++i) ++first_pair_[static_cast<size_t>(experts[i] + 1)];
  for (int64_t e = 0; e < count; ++e) {
    int64_t& rows = first_pair_[static_cast<size_t>(e + 1)];
    rows += first_pair_[static_cast<size_t>(e)];
  }
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t at = first_pair_[static_cast<size_t>(experts[i])]++;
    sorted_[static_cast<size_t>(at)] = static_cast<int32_t>(i);
    place_[static_cast<size_t>(i)] = static_cast<int32_t>(at);
  }
  for (int64_t e = count; e > 0; --e) {
    first_pair_[static_cast<size_t>(e)] = first_pair_[static_cast<size_t>(e - 1)];
  }
  first_pair_[0] = 0;
}

// Which products the chosen experts take.
Backend::Products Backend::products_of(const PackedMatrix& matrix) const {
  const int64_t many_from = kernels_.many_from(matrix.codec);
  Products taken;
  for (size_t e = 0; e + 1 < first_pair_.size(); ++e) {
    const int64_t rows = first_pair_[e + 1] - first_pair_[e];
    taken.few |= rows > 0 && rows < many_from;
    taken.many |= rows >= many_from;
  }
  return taken;
}

// Rows of x as the products read them that the chosen experts take.
Backend::OperandPair Backend::prepared(const ExpertMatrices& weight, const float* x, int64_t rows,
                                    Buffer& few, Buffer& many) {
  const PackedMatrix matrix = weight.shape();
  if (reads_rows_as_they_are(matrix)) return {operand_of(matrix, x), operand_of(matrix, x)};
  const auto prepare = [&](Buffer& buffer, bool many_rows) {
    const Operand to =
        lay_out(buffer, matrix, rows, kernels_.product(matrix.codec, many_rows).half_operand);
    const PrepareArgs args{x, matrix.in, matrix.in, {}, matrix.codec, matrix.tiles, to};
    pool_.for_ranges(rows, pieces(rows * matrix.in * 4), [&](int64_t begin, int64_t end, int) {
      kernels_.prepare(args, begin, end);
    });
    return to;
  };
  if (!differ(kernels_, matrix.codec)) {
    const Operand both = prepare(few, false);
    return {both, both};
  }
  const Products taken = products_of(matrix);
  return {taken.few ? prepare(few, false) : Operand{},
          taken.many ? prepare(many, true) : Operand{}};
}

// The row of each pair's token at the pair's place.
Backend::OperandPair Backend::gathered(const ExpertMatrices& weight, const OperandPair& from) {
  const PackedMatrix matrix = weight.shape();
  const int64_t pairs = static_cast<int64_t>(sorted_.size());
  const int64_t chosen = chosen_;
  const auto gather = [&](const Operand& source, Buffer& buffer) {
    const Operand to = lay_out(buffer, matrix, pairs, source.half != nullptr);
    pool_.for_ranges(pairs, pieces(pairs * matrix.in * 2), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        copy_row(matrix, source, sorted_[static_cast<size_t>(i)] / chosen, to, i);
      }
    });
    return to;
  };
  if (!differ(kernels_, matrix.codec)) {
    const Operand both = gather(from.few, few_operand_);
    return {both, both};
  }
  const Products taken = products_of(matrix);
  return {taken.few ? gather(from.few, few_operand_) : Operand{},
          taken.many ? gather(from.many, many_operand_) : Operand{}};
}

// y[pairs][out] = the matrix of each pair's expert times its row. Experts that are packed on demand
// go in groups that fit in the cache, those that are there already first.
void Backend::multiply(const ExpertMatrices& weight, const OperandPair& x, float* y) {
  if (weight.out() == 0) return;
  active_.clear();
  for (int64_t e = 0; e < weight.count(); ++e) {
    if (first_pair_[static_cast<size_t>(e + 1)] > first_pair_[static_cast<size_t>(e)]) {
      active_.push_back(static_cast<int32_t>(e));
    }
  }
  if (weight.cache() == nullptr) return multiply_experts(weight, x, y);
  const std::lock_guard lock(weight.cache()->mutex());
  std::stable_partition(active_.begin(), active_.end(),
                        [&](int32_t e) { return weight.is_packed(e); });
  const std::vector<int32_t> all(active_);
  for (size_t done = 0; done < all.size();) {
    active_.assign(all.begin() + static_cast<std::ptrdiff_t>(done), all.end());
    active_.resize(static_cast<size_t>(weight.pack_group(pool_, active_)));
    multiply_experts(weight, x, y);
    done += active_.size();
  }
}

// The same for the experts in active_, all of them packed.
void Backend::multiply_experts(const ExpertMatrices& weight, const OperandPair& x, float* y) {
  const PackedMatrix matrix = weight.shape();
  const int64_t many_from = kernels_.many_from(matrix.codec);
  const auto rows_of = [&](int32_t e) {
    return first_pair_[static_cast<size_t>(e) + 1] - first_pair_[static_cast<size_t>(e)];
  };
  int64_t work = 0;
  for (const int32_t e : active_) work += work_of(matrix, rows_of(e));
  const int64_t wanted = std::min(work / kStreamBytes + 1, pool_.size() * kItemsPerThread);
  expert_items_.clear();
  for (const int32_t e : active_) {
    const int64_t rows = rows_of(e), first = first_pair_[static_cast<size_t>(e)];
    const int64_t share = wanted * work_of(matrix, rows) / std::max<int64_t>(1, work);
    const ProductCut cut(matrix.out, rows, std::max<int64_t>(1, share));
    for (int64_t piece = 0; piece < cut.count(); ++piece) {
      expert_items_.push_back({e, cut.panels(piece, piece + 1), first + cut.row_begin(piece),
                               first + cut.row_end(piece)});
    }
  }
  const Product &few = kernels_.product(matrix.codec, false),
                &many = kernels_.product(matrix.codec, true);
  reserve_scratch(std::max(few.scratch_bytes, many.scratch_bytes));
  const auto item_at = [&](int64_t i) { return expert_items_[static_cast<size_t>(i)]; };
  const auto count = static_cast<int64_t>(expert_items_.size());
  pool_.for_runs(count, [&](int64_t i, int64_t end, int thread) {
    ExpertItem item = item_at(i);
    // Of the same matrix and rows, what goes on where this one ends.
    int64_t& reach = item.panels.reach;
    for (++i; i < end && item_at(i).panels.begin == reach; ++i) reach = item_at(i).panels.end;
    const bool many_rows = rows_of(item.expert) >= many_from;
    const LinearArgs args{weight.view(item.expert), many_rows ? x.many : x.few, y, matrix.out,
                          nullptr, 1.0f, kernels_.unpacks_beside_dots};
    (many_rows ? many : few).linear(args, item.panels, item.row_begin, item.row_end,
                                    scratch(thread));
  });
}

void Backend::chosen_experts(const ExpertsArgs& a, int64_t begin, int64_t end) {
  const int64_t tokens = end - begin, pairs = tokens * a.chosen;
  const int64_t hidden = a.gate_up.in(), inner = a.down.in(), out = a.down.out();
  const float* x = a.x + begin * hidden;
  const float* weights = a.weights + begin * a.chosen;
  chosen_ = a.chosen;
  sort_by_expert(a, begin, end);
  // Rows of gate and up, and, once these are not needed any more, the results.
  const int64_t widest = std::max(2 * inner, out);
  float* wide = reinterpret_cast<float*>(wide_rows_.at_least(pairs * widest * 4));
  float* narrow = reinterpret_cast<float*>(narrow_rows_.at_least(pairs * inner * 4));

  OperandPair rows;
  if (a.weigh_input) {
    float* weighed = reinterpret_cast<float*>(weighed_rows_.at_least(pairs * hidden * 4));
    pool_.for_ranges(pairs, pieces(pairs * hidden * 8), [&](int64_t from, int64_t to, int) {
      for (int64_t i = from; i < to; ++i) {
        const int64_t pair = sorted_[static_cast<size_t>(i)];
        const float* row = x + pair / a.chosen * hidden;
        for (int64_t k = 0; k < hidden; ++k) weighed[i * hidden + k] = row[k] * weights[pair];
      }
    });
    rows = prepared(a.gate_up, weighed, pairs, few_operand_, many_operand_);
  } else {
    rows = gathered(a.gate_up, prepared(a.gate_up, x, tokens, few_of_tokens_, many_of_tokens_));
  }
  multiply(a.gate_up, rows, wide);

  const ActivationArgs gated{wide, narrow, inner, a.activation, true, a.limit};
  const int64_t per_row = (inner + kActivationColumns - 1) / kActivationColumns;
  pool_.for_ranges(pairs * per_row, pieces(pairs * inner * 16),
                   [&](int64_t from, int64_t to, int) { kernels_.activate(gated, from, to); });
  multiply(a.down, prepared(a.down, narrow, pairs, few_operand_, many_operand_), wide);

  const CombineArgs sum{wide,
                        place_.data(),
                        a.weigh_input ? nullptr : weights,
                        a.chosen,
                        out,
                        a.residual == nullptr ? nullptr : a.residual + begin * out,
                        a.scale,
                        a.y + begin * out};
  const int64_t of_token = (out + kActivationColumns - 1) / kActivationColumns;
  pool_.for_ranges(tokens * of_token, pieces(pairs * out * 4),
                   [&](int64_t from, int64_t to, int) { kernels_.combine(sum, from, to); });
}

void Backend::experts(const ExpertsArgs& a) {
  const Session session(pool_);
  const int64_t of_pair =
      4 * (std::max(2 * a.down.in(), a.down.out()) + a.down.in() + 2 * a.gate_up.in());
  const int64_t step = std::max<int64_t>(1, kPassBytes / std::max<int64_t>(1, of_pair * a.chosen));
  const int64_t passes = (a.tokens + step - 1) / step;
  for (int64_t pass = 0; pass < passes; ++pass) {
    chosen_experts(a, a.tokens * pass / passes, a.tokens * (pass + 1) / passes);
  }
}

}  // namespace headrace
