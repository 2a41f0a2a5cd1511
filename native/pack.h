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
  // rows: where each output's stored row begins. `in` is whole blocks of the codec.
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

// Stored bytes of a row of `width` values.
int64_t row_bytes(Codec codec, int64_t width);
// Bytes of a panel over `tiles` tiles of k.
int64_t panel_bytes(Codec codec, int64_t tiles);
// One panel of 16 stored rows, null past the last output, into zeroed memory.
void pack_panel(Codec codec, int64_t in, const uint8_t* const* rows, uint8_t* to);

}  // namespace headrace
