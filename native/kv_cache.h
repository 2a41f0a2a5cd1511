// Paged storage of K and V for all layers, in the layouts of kernels.h. Starts as zeros.
//
// Blocks are contiguous: block b is bytes [b * page_bytes, (b + 1) * page_bytes) of the pool. A
// block holds tokens of the layers of one table, in the order of their indices; blocks are as long
// as the widest table needs, so that any table may take any block.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "buffer.h"
#include "kernels.h"
#include "populator.h"

namespace headrace {

// The place of a layer's K and V and their widths.
struct KvPlace {
  int64_t table;
  int64_t index;
  int64_t heads;
  int64_t head_dim;
  int64_t value_dim;
  bool latent;
  KvKind k_kind;
  KvKind v_kind;
  // Where the span that a token is in lies in bf16; -1 and 0 where it is read as it is stored.
  int64_t near_table = -1;
  int64_t near_index = 0;
  // What fp8 stores is multiplied by; above zero.
  float k_scale = 1;
  float v_scale = 1;
};

class KvCache {
 public:
  // places: of each layer, nothing where it keeps none. Throws std::invalid_argument naming what
  // cannot be.
  KvCache(const std::vector<std::optional<KvPlace>>& places, int64_t block_size, int64_t blocks);

  // Throws std::invalid_argument for a layer that keeps nothing.
  const KvLayer& layer(int64_t index) const;
  int64_t table(int64_t index) const { return tables_[static_cast<size_t>(index)].stored; }
  // Below zero where the layer keeps none in bf16.
  int64_t near_table(int64_t index) const { return tables_[static_cast<size_t>(index)].near; }
  // A block into another. Throws std::invalid_argument where there is no such block.
  void copy_block(int64_t source, int64_t target);
  // Has memory of the blocks below `blocks` ready, beside what else is done or before it returns.
  void populate(int64_t blocks, bool wait);
  // So many blocks, from the first on, have been populated.
  int64_t populated() const { return populator_.done() / page_bytes_; }
  int64_t blocks() const { return blocks_; }
  int64_t block_size() const { return block_size_; }
  int64_t bytes() const { return pages_.bytes(); }

 private:
  int64_t block_size_;
  int64_t blocks_;
  int64_t page_bytes_ = 0;
  std::vector<std::optional<KvLayer>> layers_;
  struct Tables {
    int64_t stored = 0;
    int64_t near = -1;
  };
  std::vector<Tables> tables_;  // of each layer
  Buffer pages_;
  Populator populator_{pages_};
};

}  // namespace headrace
