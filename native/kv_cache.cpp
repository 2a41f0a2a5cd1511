#include "kv_cache.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace headrace {
namespace {

[[noreturn]] void refuse_cache(const std::string& message) { throw std::invalid_argument(message); }

void check_range(const char* field, int64_t value, int64_t most) {
  if (value < 1) {
    refuse_cache(std::string(field) + " of a KV cache must be at least 1, not " +
                 std::to_string(value));
  }
  if (value > most) {
    refuse_cache(std::string(field) + " " + std::to_string(value) + " is above " +
                 std::to_string(most));
  }
}

// The product; throws where it is beyond any memory.
int64_t product(std::initializer_list<int64_t> factors) {
  int64_t bytes = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(bytes, factor, &bytes)) {
      refuse_cache("num_kv_heads, head_dim, value_dim and num_blocks of a KV cache give more bytes "
                   "than can be counted; ask for fewer blocks");
    }
  }
  return bytes;
}

int64_t checked_sum(int64_t a, int64_t b) {
  if (__builtin_add_overflow(a, b, &a)) product({INT64_MAX, 2});
  return a;
}

void check_rotated(const char* field, const KvPlace& place, KvKind kind, int64_t width) {
  if (kind.rotated && !place.latent && width > kMostRotated) {
    refuse_cache(std::string(field) + " " + std::to_string(width) + " is above " +
                 std::to_string(kMostRotated) + ", the widest that " + kind.name + " rotates");
  }
}

// The widths of a layer; where it lies is not known yet.
KvLayer shape_of(const KvPlace& place, int64_t block_size) {
  const KvKind k = place.k_kind, v = place.v_kind;
  check_range("num_kv_heads", place.heads, kMostHeads);
  check_range("head_dim", place.head_dim, kMostHeads);
  check_range("value_dim", place.value_dim, kMostHeads);
  if (place.head_dim % 2 != 0) {
    refuse_cache("head_dim " + std::to_string(place.head_dim) + " is odd; it must be even");
  }
  if (place.latent && place.value_dim > place.head_dim) {
    refuse_cache("value_dim " + std::to_string(place.value_dim) + " exceeds head_dim " +
                 std::to_string(place.head_dim) + ", of which latent values are a part");
  }
  check_rotated("head_dim", place, k, place.head_dim);
  check_rotated("value_dim", place, v, place.value_dim);
  KvLayer layer{};
  layer.k_codec = k.codec;
  layer.v_codec = place.latent ? k.codec : v.codec;
  layer.k_rotated = k.rotated && !place.latent;
  layer.v_rotated = v.rotated && !place.latent;
  layer.latent = place.latent;
  layer.heads = place.heads;
  layer.head_dim = place.head_dim;
  layer.value_dim = place.value_dim;
  layer.v_panels = (place.value_dim + kLanes - 1) / kLanes;
  layer.block_size = block_size;
  layer.k_group_bytes = kv_group_bytes(layer.k_codec, place.head_dim);
  layer.v_group_bytes = kv_group_bytes(layer.v_codec, layer.v_panels * kLanes);
  layer.k_scale = place.k_scale;
  layer.v_scale = place.latent ? place.k_scale : place.v_scale;
  for (const float scale : {layer.k_scale, layer.v_scale}) {
    if (scale >= kLeastKvScale && scale <= kMostKvScale) continue;
    refuse_cache("scale " + std::to_string(scale) +
                 " of K or V of a KV cache is not in [2^-60, 2^60]");
  }
  if (place.near_table < 0) return layer;
  for (const KvKind& kind : {k, place.latent ? k : v}) {
    if (may_be_near(kind)) continue;
    refuse_cache(std::string("positions near a token are kept in bf16 beside kinds of eight and "
                             "four bits, not beside ") + kind.name);
  }
  layer.near_k_group_bytes = kv_group_bytes(KvCodec::bf16, place.head_dim);
  layer.near_v_group_bytes = kv_group_bytes(KvCodec::bf16, layer.v_panels * kLanes);
  return layer;
}

bool same(const KvPlace& a, const KvPlace& b) {
  return a.heads == b.heads && a.head_dim == b.head_dim && a.value_dim == b.value_dim &&
         a.latent == b.latent && a.k_kind.name == b.k_kind.name && a.v_kind.name == b.v_kind.name &&
         a.near_table == b.near_table && a.near_index == b.near_index && a.k_scale == b.k_scale &&
         a.v_scale == b.v_scale;
}

// A piece of a block: K and V of a layer, stored for good or near.
struct Piece {
  KvPlace place;
  bool near;
  int64_t offset;
};

}  // namespace

KvCache::KvCache(const std::vector<std::optional<KvPlace>>& places, int64_t block_size,
                 int64_t blocks)
    : block_size_(block_size), blocks_(blocks) {
  check_range("num_blocks", blocks, INT64_MAX);
  if (block_size != 16 && block_size != 32 && block_size != kSpan) {
    refuse_cache("block_size " + std::to_string(block_size) + " is not one of 16, 32, 64");
  }
  // In the order of tables and of their indices.
  std::map<std::pair<int64_t, int64_t>, Piece> pieces;
  const auto enter = [&](int64_t table, int64_t index, const KvPlace& place, bool near) {
    const auto [found, fresh] = pieces.insert({{table, index}, {place, near, 0}});
    if (fresh) return;
    if (found->second.near != near || !same(found->second.place, place)) {
      refuse_cache("layers in one place of a KV cache differ in width or in kind");
    }
  };
  for (const std::optional<KvPlace>& place : places) {
    if (!place) continue;
    if (place->table < 0) {
      refuse_cache("table " + std::to_string(place->table) +
                   " of a layer of a KV cache must be at least 0");
    }
    enter(place->table, place->index, *place, false);
    if (place->near_table >= 0) enter(place->near_table, place->near_index, *place, true);
  }
  if (pieces.empty()) refuse_cache("num_layers of a KV cache must be at least 1, not 0");
  int64_t table = pieces.begin()->first.first, end = 0;
  for (auto& [key, piece] : pieces) {
    if (key.first != table) end = 0;
    table = key.first;
    piece.offset = end;
    const KvLayer layer = shape_of(piece.place, block_size);
    const int64_t k = piece.near ? layer.near_k_group_bytes : layer.k_group_bytes;
    const int64_t v = piece.near ? layer.near_v_group_bytes : layer.v_group_bytes;
    const int64_t group = k + (layer.latent ? 0 : v);
    end = checked_sum(end, product({layer.heads, block_size / kLanes, group}));
    page_bytes_ = std::max(page_bytes_, end);
  }
  pages_ = Buffer(product({page_bytes_, blocks}));
  for (const std::optional<KvPlace>& place : places) {
    tables_.push_back(place ? Tables{place->table, place->near_table} : Tables{});
    if (!place) {
      layers_.emplace_back();
      continue;
    }
    KvLayer layer = shape_of(*place, block_size);
    layer.page_bytes = page_bytes_;
    const int64_t groups = layer.heads * (block_size / kLanes);
    layer.k = pages_.data() + pieces.at({place->table, place->index}).offset;
    layer.v = layer.latent ? nullptr : layer.k + groups * layer.k_group_bytes;
    if (place->near_table >= 0) {
      layer.near_k = pages_.data() + pieces.at({place->near_table, place->near_index}).offset;
      layer.near_v = layer.latent ? nullptr : layer.near_k + groups * layer.near_k_group_bytes;
    }
    layers_.emplace_back(layer);
  }
}

const KvLayer& KvCache::layer(int64_t index) const {
  const int64_t count = static_cast<int64_t>(layers_.size());
  if (index < 0 || index >= count) {
    refuse_cache("layer " + std::to_string(index) + " is not in [0, " + std::to_string(count) +
                 ")");
  }
  const std::optional<KvLayer>& layer = layers_[static_cast<size_t>(index)];
  if (!layer) refuse_cache("layer " + std::to_string(index) + " keeps no K and V");
  return *layer;
}

void KvCache::populate(int64_t blocks, bool wait) {
  const int64_t end = std::clamp<int64_t>(blocks, 0, blocks_) * page_bytes_;
  if (wait) {
    populator_.reach_now(end);
  } else {
    populator_.reach(end);
  }
}

void KvCache::copy_block(int64_t source, int64_t target) {
  for (const int64_t block : {source, target}) {
    if (block < 0 || block >= blocks_) {
      refuse_cache("block " + std::to_string(block) + " is not in [0, " +
                   std::to_string(blocks_) + ")");
    }
  }
  std::memmove(pages_.data() + target * page_bytes_, pages_.data() + source * page_bytes_,
               static_cast<size_t>(page_bytes_));
}

}  // namespace headrace
