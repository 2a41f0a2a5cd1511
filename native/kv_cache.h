// Paged storage of K and V for all layers, in the layouts of kernels.h. Starts as zeros.

#pragma once

#include <cstdint>

#include "buffer.h"
#include "kernels.h"

namespace headrace {

class KvCache {
 public:
  // Throws std::invalid_argument naming what cannot be.
  KvCache(int64_t layers, int64_t heads, int64_t head_dim, int64_t block_size, int64_t blocks,
          bool k_bf16, bool v_bf16);

  KvLayer layer(int64_t index) const;
  // All layers of a block into another. Throws std::invalid_argument where there is no such block.
  void copy_block(int64_t source, int64_t target);
  int64_t layers() const { return layers_; }
  int64_t blocks() const { return blocks_; }
  int64_t bytes() const { return k_.bytes() + v_.bytes(); }

 private:
  int64_t layers_;
  int64_t blocks_;
  KvLayer first_;  // of layer 0
  Buffer k_;
  Buffer v_;
};

}  // namespace headrace
