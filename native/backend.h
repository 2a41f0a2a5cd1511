// One level's kernels on one thread pool: how the work of each operation is split.
//
// How work is split never shows in a result: no split runs through the sum of a row. Arguments are
// trusted (bindings/ checks them); one call at a time, others wait.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "buffer.h"
#include "expert_weights.h"
#include "kernels.h"
#include "kv_cache.h"
#include "pack.h"
#include "route.h"
#include "sample.h"
#include "thread_pool.h"

namespace headrace {

class Tape;

// The chosen experts of `tokens` rows: experts and weights are [tokens][chosen], in the order in
// which results are added.
struct ExpertsArgs {
  const ExpertMatrices& gate_up;
  const ExpertMatrices& down;
  const float* x;
  int64_t tokens;
  int64_t chosen;  // at least 1
  const int32_t* experts;
  const float* weights;
  Activation activation;
  bool weigh_input;
  const float* residual;  // or null
  float scale;
  float* y;
  float limit = 0.0f;  // as `cap` of ActivationArgs
};

// Products of heads, each with a matrix of its own: of each row the columns of a head are `kept`
// that stay as they are and those that it multiplies.
struct HeadsArgs {
  const ExpertMatrices& weight;  // one matrix of each head, all packed
  const float* x;                // f32[rows][heads * (kept + in)]
  int64_t rows;
  int64_t kept;
  const float* beside;  // f32[rows][beside_width], what stands after the last head; or null
  int64_t beside_width;
  float* y;  // f32[rows][heads * (kept + out) + beside_width]
};

class Backend {
 public:
  Backend(const std::string& level, int threads);  // throws as select_level does
  Backend(const Kernels& kernels, int threads);

  const char* level() const { return kernels_.level; }
  // Where experts are packed on demand from now on: null, or a cache of their matrices.
  void cache_experts(int64_t bytes) { expert_cache_ = std::make_shared<ExpertCache>(bytes); }
  const std::shared_ptr<ExpertCache>& expert_cache() const { return expert_cache_; }
  ThreadPool& pool() { return pool_; }
  // What packed weights lie in; from whoever has acquired the pool.
  Slabs& weights() { return weights_; }
  // What operations are noted on as they are bound, or null.
  void note_on(Tape* tape) { tape_ = tape; }
  Tape* tape() const { return tape_; }

  void linear(const PackedMatrix& weight, const float* x, int64_t rows, const NormWeights& norm,
              const float* residual, float scale, float* y);
  void norm(const NormArgs& args, int64_t rows);
  void embed(const EmbedArgs& args, int64_t rows);
  void rope(const RopeArgs& args, int64_t rows);
  void activate(const ActivationArgs& args, int64_t rows);
  void take_rows(const float* x, int64_t width, const int32_t* rows, int64_t count, float* y);
  // `width` columns of rows of x, which are `x_stride` wide, into those of rows of y.
  void place(const float* x, int64_t x_stride, int64_t width, int64_t rows, float* y,
             int64_t y_stride);
  void add(const float* x, const float* y, int64_t count, float* sum);
  // Column i of x into column columns[i] of y, and -inf into all others.
  void spread(const float* x, int64_t width, int64_t rows, const int64_t* columns, float* y,
              int64_t stride);
  // The first `columns` values of each row of `stride`, times the row's factor; in place.
  void scale_rows(float* x, int64_t stride, int64_t columns, const float* factors, int64_t rows);
  // Multiplies each head of x[rows][heads * width] by the sigmoid of its gate, gates[rows][heads].
  void gate_heads(float* x, int64_t heads, int64_t width, const float* gates, int64_t rows);
  void route(const Routing& routing, const float* logits, const float* bias, int64_t rows,
             int32_t* experts, float* weights);
  void experts(const ExpertsArgs& args);  // experts.cpp
  void head_linear(const HeadsArgs& args);  // heads.cpp
  void kv_write(const KvWriteArgs& args);
  void attention(const AttentionArgs& args);  // attention_items.cpp
  // Status of the first bad row (see sample.h) with its number in `row`, or 0.
  int32_t sample(const float* logits, int64_t stride, int64_t n, const std::vector<SampleRow>& rows,
                 int32_t* ids, int64_t* row);
  int32_t top_logprobs(const float* logits, int64_t stride, int64_t n, int64_t rows,
                       const int32_t* chosen, int64_t k, float* logprobs, int32_t* ranks,
                       int32_t* ids, float* values, int64_t* row);
  // For tests: on how many of the pool's threads (the caller is one) a denormal is read as zero.
  int flushing_threads();

  // probe.cpp: bytes per second that all threads together read of a footprint of about `bytes`, and
  // operations per second (a multiply and an add are two); 0 for a kind the level does not
  // multiply.
  double read_bandwidth(int64_t bytes);
  double peak_multiplies(Operands kind);

 private:
  Operand operand(const PackedMatrix& weight, const float* x, int64_t rows,
                  const NormWeights& norm, bool half);
  // experts.cpp: the same for the two products that a level may have for few and for many rows.
  struct OperandPair {
    Operand few, many;
  };
  struct Products {
    bool few = false, many = false;
  };
  struct ExpertItem {
    int32_t expert;
    PanelRange panels;
    int64_t row_begin, row_end;
  };
  // Runs that an item of attention takes: `count` of them, and from where on they share what they
  // read.
  struct Pack {
    int64_t first, count, from;
  };
  // attention_items.cpp: which tokens go together, and how their work is cut.
  void pack_runs(const AttentionArgs& args, int64_t tile);
  void cut_items(const AttentionArgs& args, int64_t share);
  void make_items(const AttentionArgs& args, int64_t q_heads, int64_t together_rows);
  void run_items(const AttentionArgs& args);
  static int64_t heads_together(const AttentionArgs& args, const AttentionItem& head_item,
                                int64_t most_rows, int64_t share);
  int64_t latent_heads(const AttentionArgs& args, int64_t most_rows, int64_t tile, int64_t packs);
  void multiply_heads(const HeadsArgs& args, int64_t begin, int64_t end);
  void chosen_experts(const ExpertsArgs& args, int64_t begin, int64_t end);
  void sort_by_expert(const ExpertsArgs& args, int64_t begin, int64_t end);
  Products products_of(const PackedMatrix& matrix) const;
  OperandPair prepared(const ExpertMatrices& weight, const float* x, int64_t rows, Buffer& few,
                       Buffer& many);
  OperandPair gathered(const ExpertMatrices& weight, const OperandPair& from);
  void multiply(const ExpertMatrices& weight, const OperandPair& x, float* y);
  void multiply_experts(const ExpertMatrices& weight, const OperandPair& x, float* y);
  void* scratch(int thread) { return scratch_[static_cast<size_t>(thread)].data(); }
  void reserve_scratch(int64_t bytes);
  // Pieces for work that moves `bytes`: 1 where handing over would cost more than it saves.
  int64_t pieces(int64_t bytes) const;
  int32_t first_bad(const std::vector<int32_t>& status, int64_t* row) const;

  const Kernels& kernels_;
  ThreadPool pool_;
  Tape* tape_ = nullptr;
  std::shared_ptr<ExpertCache> expert_cache_;
  // Address space, not memory: at most a huge page at the end of each is of no use.
  static constexpr int64_t kWeightSlab = int64_t{128} << 20;
  Slabs weights_{kWeightSlab};
  Buffer operand_;
  std::vector<Buffer> scratch_;
  std::vector<SampleScratch> sample_scratch_;
  std::vector<RouteScratch> route_scratch_;
  std::vector<AttentionRun> runs_;
  std::vector<Pack> packs_;
  std::vector<AttentionItem> head_items_;  // of one kv head of each pack
  std::vector<AttentionItem> items_;
  std::vector<AttentionItem> whole_items_;  // of which items_ has the parts
  Buffer part_sums_;

  // Of experts: pairs of a token and one of its experts, sorted by expert, stably.
  std::vector<int64_t> first_pair_;    // of each expert, and the end
  std::vector<int32_t> sorted_;        // the pair at each place
  std::vector<int32_t> place_;         // of each pair
  std::vector<int32_t> active_;        // experts that go together
  std::vector<ExpertItem> expert_items_;
  int64_t chosen_ = 1;
  Buffer few_of_tokens_, many_of_tokens_, few_operand_, many_operand_;
  Buffer weighed_rows_, wide_rows_, narrow_rows_;
};

}  // namespace headrace
