// Weights brought into panels of 16 outputs, once at load. docs/kernels.md shows the layouts.

#pragma once

#include <cstdint>
#include <vector>

#include "buffer.h"
#include "kernels.h"
#include "thread_pool.h"

namespace headrace {

class PackedLinear {
 public:
  // rows: where each output's stored row begins; null: a row of zeros. `in` is whole blocks of the
  // codec.
  PackedLinear(ThreadPool& pool, Codec codec, int64_t in, const std::vector<const uint8_t*>& rows,
               std::vector<float> bias);

  PackedMatrix view() const;
  int64_t bytes() const { return panels_.bytes(); }

 private:
  Codec codec_;
  int64_t out_;
  int64_t in_;
  int64_t tiles_;
  int64_t panel_bytes_;
  Buffer panels_;
  std::vector<float> bias_;
};

// One matrix of every expert of a layer, each in panels of its own, in one piece of memory.
class PackedExperts {
 public:
  // rows: the stored rows of the first expert, then of the next; bias: as many values, or none.
  PackedExperts(ThreadPool& pool, Codec codec, int64_t in, int64_t count,
                const std::vector<const uint8_t*>& rows, const std::vector<float>& bias);

  PackedMatrix view(int64_t expert) const;
  int64_t count() const { return count_; }
  int64_t out() const { return out_; }
  int64_t in() const { return all_.view().in; }
  int64_t bytes() const { return all_.bytes(); }

 private:
  int64_t count_;
  int64_t out_;     // of an expert
  int64_t panels_;  // of an expert
  PackedLinear all_;
};

// Stored bytes of a row of `width` values.
int64_t row_bytes(Codec codec, int64_t width);

}  // namespace headrace
