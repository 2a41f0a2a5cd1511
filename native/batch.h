// A ragged batch as it comes from Python, checked once and trusted afterwards.

#pragma once

#include <cstdint>
#include <string>

#include "kernels.h"
#include "kv_cache.h"
#include "view.h"

namespace headrace {

// Positions a token sees: all of them where Python says 0. Far from where sums could overflow.
inline int64_t window_of(int64_t window) {
  constexpr int64_t kAll = int64_t{1} << 40;
  if (window < 0) refuse("window " + std::to_string(window) + " is negative; 0 means none");
  return window == 0 || window > kAll ? kAll : window;
}

// Heads of an attention or rope call.
inline void check_head_counts(int64_t heads, int64_t kv_heads, int64_t head_dim) {
  const auto check = [](const char* field, int64_t value) {
    if (value >= 1 && value <= kMostHeads) return;
    refuse(std::string(field) + " " + std::to_string(value) + " is not in [1, " +
           std::to_string(kMostHeads) + "]");
  };
  check("num_heads", heads);
  check("num_kv_heads", kv_heads);
  check("head_dim", head_dim);
}

// Positions a token sees, but for masks. A chunk of 0 is none.
inline Visibility visibility_of(int64_t window, int64_t chunk) {
  if (chunk < 0) refuse("chunk " + std::to_string(chunk) + " is negative; 0 means none");
  return {window_of(window), chunk};
}

// The arrays of a RaggedBatch, checked against a cache and, in block tables, as far back as its
// tokens see.
class Batch {
 public:
  Batch(const KvCache& cache, int64_t tokens, const Visibility& sees, nanobind::handle positions,
        nanobind::handle query_start, nanobind::handle block_tables)
      : sees_(sees), positions_(positions, "positions", 1),
        query_start_(query_start, "query_start", 1), block_tables_(block_tables, "block_tables", 2) {
    positions_.require(0, tokens);
    if (query_start_.size(0) < 1) refuse("query_start is empty");
    const int64_t requests = query_start_.size(0) - 1;
    block_tables_.require(0, requests);
    const int32_t* start = query_start_.data();
    if (start[0] != 0 || start[requests] != tokens) {
      refuse("query_start must run from 0 to " + std::to_string(tokens));
    }
    for (int64_t r = 0; r < requests; ++r) {
      if (start[r + 1] < start[r]) refuse("query_start falls at request " + std::to_string(r));
    }
    for (int64_t r = 0; r < requests; ++r) check_request(cache, r, start[r], start[r + 1]);
  }

  BatchView view() const {
    return {positions_.data(), query_start_.data(), block_tables_.data(), block_tables_.size(1),
            query_start_.size(0) - 1, positions_.size(0)};
  }

 private:
  void check_request(const KvCache& cache, int64_t request, int64_t begin, int64_t end) const {
    if (begin == end) return;
    const int32_t* position = positions_.data();
    const std::string where = " of request " + std::to_string(request);
    for (int64_t i = begin + 1; i < end; ++i) {
      if (position[i] <= position[i - 1]) refuse("positions" + where + " do not ascend");
    }
    const int64_t size = cache.layer(0).block_size, width = block_tables_.size(1);
    if (position[begin] < 0 || position[end - 1] >= width * size) {
      refuse("positions" + where + " are not in [0, " + std::to_string(width * size) +
             "), what its block table covers");
    }
    const int32_t* table = block_tables_.data() + request * width;
    const int64_t opening = first_seen(sees_, position[begin]);
    for (int64_t i = opening / size; i <= position[end - 1] / size; ++i) {
      if (table[i] < 0 || table[i] >= cache.blocks()) {
        refuse("block id " + std::to_string(table[i]) + where + " is not in [0, " +
               std::to_string(cache.blocks()) + ")");
      }
    }
  }

  Visibility sees_;
  View<int32_t> positions_;
  View<int32_t> query_start_;
  View<int32_t> block_tables_;
};

// Masks of every token, for each span of 64 positions from 0 to beyond its own. One that shows a
// token nothing of what its interval has is refused: its softmax would be over nothing.
class Masks {
 public:
  Masks(nanobind::handle masks, const Visibility& sees, const BatchView& batch)
      : view_(masks, "masks", 2) {
    if (!view_) return;
    view_.require(0, batch.tokens);
    const int64_t spans = view_.view().size(1);
    for (int64_t token = 0; token < batch.tokens; ++token) {
      const int64_t position = batch.positions[token];
      const std::string where = "masks of token " + std::to_string(token);
      if (position / kSpan >= spans) {
        refuse(where + " have " + std::to_string(spans) + " spans, position " +
               std::to_string(position) + " is in number " + std::to_string(position / kSpan));
      }
      if (!any(view_.data() + token * spans, first_seen(sees, position), position)) {
        refuse(where + " show it nothing of what it could see");
      }
    }
  }

  Visibility of(Visibility sees) const {
    if (!view_) return sees;
    sees.masks = view_.data();
    sees.mask_spans = view_.view().size(1);
    return sees;
  }

 private:
  static bool any(const uint64_t* masks, int64_t first, int64_t last) {
    for (int64_t span = first / kSpan; span <= last / kSpan; ++span) {
      uint64_t seen = masks[span];
      if (span == first / kSpan) seen &= ~uint64_t{0} << first % kSpan;
      if (span == last / kSpan) seen &= ~uint64_t{0} >> (kSpan - 1 - last % kSpan);
      if (seen != 0) return true;
    }
    return false;
  }

  OptionalView<uint64_t> view_;
};

// Heads and layer of an attention call, against the cache it uses.
inline void check_heads(const KvCache& cache, int64_t layer, int64_t heads, int64_t kv_heads,
                        int64_t head_dim) {
  check_head_counts(heads, kv_heads, head_dim);
  const KvLayer kv = cache.layer(0);
  if (kv.heads != kv_heads || kv.head_dim != head_dim) {
    refuse("the cache holds " + std::to_string(kv.heads) + " heads of " +
           std::to_string(kv.head_dim) + ", attention has " + std::to_string(kv_heads) + " of " +
           std::to_string(head_dim));
  }
  if (heads % kv_heads != 0) {
    refuse("num_heads " + std::to_string(heads) + " is not a multiple of num_kv_heads " +
           std::to_string(kv_heads));
  }
  if (layer < 0 || layer >= cache.layers()) {
    refuse("layer " + std::to_string(layer) + " is not in [0, " + std::to_string(cache.layers()) +
           ")");
  }
}

}  // namespace headrace
