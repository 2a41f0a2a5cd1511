#include "kv_cache.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace headrace {
namespace {

void at_least_one(const char* field, int64_t value) {
  if (value < 1) {
    throw std::invalid_argument(std::string(field) + " of a KV cache must be at least 1, not " +
                                std::to_string(value));
  }
}

// The product; throws where it is beyond any memory.
template <size_t N>
int64_t bytes_of(const int64_t (&factors)[N], int64_t bytes) {
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(bytes, factor, &bytes)) {
      throw std::invalid_argument("num_layers, num_kv_heads, head_dim and num_blocks of a KV cache "
                                  "give more bytes than can be counted; ask for fewer blocks");
    }
  }
  return bytes;
}

}  // namespace

KvCache::KvCache(int64_t layers, int64_t heads, int64_t head_dim, int64_t block_size,
                 int64_t blocks, bool k_bf16, bool v_bf16)
    : layers_(layers), blocks_(blocks), first_{} {
  at_least_one("num_layers", layers);
  at_least_one("num_kv_heads", heads);
  at_least_one("head_dim", head_dim);
  at_least_one("num_blocks", blocks);
  if (head_dim > kMostHeads) {
    throw std::invalid_argument("head_dim " + std::to_string(head_dim) + " is above " +
                                std::to_string(kMostHeads));
  }
  if (head_dim % 2 != 0) {
    throw std::invalid_argument("head_dim " + std::to_string(head_dim) +
                                " is odd; it must be even");
  }
  if (block_size != 16 && block_size != 32 && block_size != kSpan) {
    throw std::invalid_argument("block_size " + std::to_string(block_size) +
                                " is not one of 16, 32, 64");
  }
  first_.k_bf16 = k_bf16;
  first_.v_bf16 = v_bf16;
  first_.heads = heads;
  first_.head_dim = head_dim;
  first_.d_panels = (head_dim + kLanes - 1) / kLanes;
  first_.block_size = block_size;
  first_.k_group_bytes = head_dim * kLanes * (k_bf16 ? 2 : 4);
  first_.v_group_bytes = first_.d_panels * kLanes * kLanes * (v_bf16 ? 2 : 4);
  const int64_t factors[] = {layers, blocks, heads, block_size / kLanes};
  k_ = Buffer(bytes_of(factors, first_.k_group_bytes));
  v_ = Buffer(bytes_of(factors, first_.v_group_bytes));
}

KvLayer KvCache::layer(int64_t index) const {
  KvLayer layer = first_;
  layer.k = k_.data() + k_.bytes() / layers_ * index;
  layer.v = v_.data() + v_.bytes() / layers_ * index;
  return layer;
}

void KvCache::copy_block(int64_t source, int64_t target) {
  for (const int64_t block : {source, target}) {
    if (block < 0 || block >= blocks_) {
      throw std::invalid_argument("block " + std::to_string(block) + " is not in [0, " +
                                  std::to_string(blocks_) + ")");
    }
  }
  for (const Buffer* buffer : {&k_, &v_}) {
    const int64_t bytes = buffer->bytes() / (layers_ * blocks_);
    for (int64_t layer = 0; layer < layers_; ++layer) {
      uint8_t* const first = buffer->data() + layer * blocks_ * bytes;
      std::memmove(first + target * bytes, first + source * bytes, bytes);
    }
  }
}

}  // namespace headrace
