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

// Heads of an attention or rope call, each number in range.
struct HeadCounts {
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t value_dim;
  bool latent;

  int64_t row_width() const {
    return (heads + kv_heads) * head_dim + (latent ? 0 : kv_heads * value_dim);
  }
};

// Those of Python's AttentionShape, where a value_dim of 0 is head_dim.
inline HeadCounts head_counts(nanobind::handle shape) {
  const auto read = [&](const char* field, int64_t least) {
    const int64_t value = nanobind::cast<int64_t>(shape.attr(field));
    if (value < least || value > kMostHeads) {
      refuse(std::string(field) + " " + std::to_string(value) + " is not in [" +
             std::to_string(least) + ", " + std::to_string(kMostHeads) + "]");
    }
    return value;
  };
  HeadCounts counts{read("num_heads", 1), read("num_kv_heads", 1), read("head_dim", 1),
                    read("value_dim", 0), nanobind::cast<bool>(shape.attr("latent"))};
  if (counts.value_dim == 0) counts.value_dim = counts.head_dim;
  return counts;
}

// Positions a token sees, but for masks. A chunk of 0 is none.
inline Visibility visibility_of(nanobind::handle shape) {
  const int64_t window = nanobind::cast<int64_t>(shape.attr("window"));
  const int64_t chunk = nanobind::cast<int64_t>(shape.attr("chunk"));
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
    const int64_t size = cache.block_size(), width = block_tables_.size(1);
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

// Heads of a layer, for messages.
inline std::string in_words(int64_t heads, int64_t head_dim, int64_t value_dim, bool latent) {
  std::string words = std::to_string(heads) + " heads of " + std::to_string(head_dim);
  if (latent) return words + " whose last " + std::to_string(value_dim) + " are the values";
  return value_dim == head_dim ? words : words + " with values of " + std::to_string(value_dim);
}

// Heads of an attention call, against those of its layer in the cache.
inline void check_heads(const KvLayer& kv, const HeadCounts& heads) {
  if (kv.heads != heads.kv_heads || kv.head_dim != heads.head_dim ||
      kv.value_dim != heads.value_dim || kv.latent != heads.latent) {
    refuse("the cache holds " + in_words(kv.heads, kv.head_dim, kv.value_dim, kv.latent) +
           ", attention has " +
           in_words(heads.kv_heads, heads.head_dim, heads.value_dim, heads.latent));
  }
  if (heads.heads % heads.kv_heads != 0) {
    refuse("num_heads " + std::to_string(heads.heads) + " is not a multiple of num_kv_heads " +
           std::to_string(heads.kv_heads));
  }
}

}  // namespace headrace
