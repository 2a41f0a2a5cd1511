// One level's kernels on one thread pool: how the work of each operation is split.
//
// How work is split never shows in a result: no split runs through the sum of a row. Arguments are
// trusted (module.cpp checks them); one call at a time, others wait.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "buffer.h"
#include "kernels.h"
#include "kv_cache.h"
#include "pack.h"
#include "sample.h"
#include "thread_pool.h"

namespace headrace {

class Backend {
 public:
  Backend(const std::string& level, int threads);  // throws as select_level does
  Backend(const Kernels& kernels, int threads);

  const char* level() const { return kernels_.level; }
  ThreadPool& pool() { return pool_; }

  void linear(const PackedMatrix& weight, const float* x, int64_t rows, const NormWeights& norm,
              const float* residual, float scale, float* y);
  void norm(const NormArgs& args, int64_t rows);
  void embed(const EmbedArgs& args, int64_t rows);
  void rope(const RopeArgs& args, int64_t rows);
  void activate(const ActivationArgs& args, int64_t rows);
  void take_rows(const float* x, int64_t width, const int32_t* rows, int64_t count, float* y);
  void kv_write(KvWriteArgs args);  // request_of is filled here
  void attention(const AttentionArgs& args);
  // Status of the first bad row (see sample.h) with its number in `row`, or 0.
  int32_t sample(const float* logits, int64_t stride, int64_t n, const std::vector<SampleRow>& rows,
                 int32_t* ids, int64_t* row);
  int32_t top_logprobs(const float* logits, int64_t stride, int64_t n, int64_t rows,
                       const int32_t* chosen, int64_t k, float* logprobs, int32_t* ranks,
                       int32_t* ids, float* values, int64_t* row);
  // For tests: on how many of the pool's threads (the caller is one) a denormal is read as zero.
  int flushing_threads();

  // probe.cpp: bytes per second that all threads together read of a footprint of about `bytes`, and
  // operations per second (a multiply and an add are two); 0 for a kind the level does not multiply.
  double read_bandwidth(int64_t bytes);
  double peak_multiplies(Operands kind);

 private:
  Operand operand(const PackedMatrix& weight, const float* x, int64_t rows,
                  const NormWeights& norm, bool half);
  void* scratch(int thread) { return scratch_[static_cast<size_t>(thread)].data(); }
  void reserve_scratch(int64_t bytes);
  // Pieces for work that moves `bytes`: 1 where handing over would cost more than it saves.
  int64_t pieces(int64_t bytes) const;
  int32_t first_bad(const std::vector<int32_t>& status, int64_t* row) const;

  const Kernels& kernels_;
  ThreadPool pool_;
  Buffer operand_;
  std::vector<Buffer> scratch_;
  std::vector<SampleScratch> sample_scratch_;
  std::vector<AttentionItem> items_;
  std::vector<int32_t> request_of_;
};

}  // namespace headrace
