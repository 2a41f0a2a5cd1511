// Weights brought into panels of 16 outputs, once at load. docs/kernels.md shows the layouts.

#pragma once

#include <cstdint>
#include <vector>

#include "buffer.h"
#include "kernels.h"
#include "stored_rows.h"
#include "thread_pool.h"

namespace headrace {

class PackedLinear {
 public:
  // parts: stored rows of the outputs. `in` is whole blocks of the codec.
  // memory: what the panels lie in.
  PackedLinear(ThreadPool& pool, Slabs& memory, Codec codec, int64_t in,
               const std::vector<StoredRows>& parts, std::vector<float> bias);

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

// Stored bytes of a row of `width` values; of F8_E4M3 the scale of each run, in front of the
// values.
int64_t row_bytes(Codec codec, int64_t width);
// Bytes of a panel over `tiles` tiles of k.
int64_t panel_bytes(Codec codec, int64_t tiles);
// One panel of 16 stored rows, null past the last output, into zeroed memory.
void pack_panel(Codec codec, int64_t in, const uint8_t* const* rows, uint8_t* to);
// The same of rows [16 * panel, ...) of parts that are stacked. gathered: memory for 16 rows, used
// where a part's are gathered.
void pack_rows(Codec codec, int64_t in, const std::vector<StoredRows>& parts, int64_t panel,
               uint8_t* gathered, uint8_t* to);

}  // namespace headrace
