// A ragged batch and the heads of a layer as they come from Python, checked before they are used.

#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels.h"
#include "kv_cache.h"
#include "neighbours.h"
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

// The arrays of a RaggedBatch, copied and checked once a step. Block tables are checked as far back
// as tokens see, the first time that a layer sees so far; then those that begin alike are found,
// too.
class BoundBatch {
 public:
  BoundBatch(const KvCache& cache, nanobind::handle positions, nanobind::handle query_start,
             const std::vector<nanobind::object>& block_tables)
      : cache_(cache) {
    fill(positions, query_start, block_tables);
  }

  // Another batch in the place of this one, of as many tokens. Where it is refused there is none.
  void refill(nanobind::handle positions, nanobind::handle query_start,
              const std::vector<nanobind::object>& block_tables) {
    const int64_t before = tokens();
    fill(positions, query_start, block_tables);
    if (tokens() != before) {
      refuse("a batch of " + std::to_string(tokens()) + " tokens in the place of " +
             std::to_string(before));
    }
  }

  const KvCache& cache() const { return cache_; }
  int64_t tokens() const { return static_cast<int64_t>(positions_.size()); }
  const int32_t* request_of() const { return request_of_.data(); }

  // For a layer whose tokens see so much.
  BatchView view(int64_t layer, const Visibility& sees) {
    BatchView view = checked_view(cache_.table(layer), sees);
    const int64_t near = cache_.near_table(layer);
    if (near < 0) return view;
    const BatchView near_view = checked_view(near, {window_of(0), kSpan});
    view.near_tables = near_view.block_tables;
    view.near_width = near_view.table_width;
    return view;
  }

 private:
  struct Table {
    std::vector<int32_t> blocks;
    int64_t width;
  };
  // A table and what its layers see, and which requests share what.
  struct Checked {
    int64_t number;
    int64_t window;
    int64_t chunk;
    std::vector<Neighbour> neighbours;
  };

  void fill(nanobind::handle positions, nanobind::handle query_start,
            const std::vector<nanobind::object>& block_tables) {
    positions_ = copied(View<int32_t>(positions, "positions", 1));
    query_start_ = copied(View<int32_t>(query_start, "query_start", 1));
    request_of_.clear();
    tables_.clear();
    checked_.clear();
    if (query_start_.empty()) refuse("query_start is empty");
    const int64_t requests = this->requests(), count = tokens();
    const std::vector<int32_t>& start = query_start_;
    if (start[0] != 0 || start.back() != count) {
      refuse("query_start must run from 0 to " + std::to_string(count));
    }
    for (int64_t r = 0; r < requests; ++r) {
      if (start[r + 1] < start[r]) refuse("query_start falls at request " + std::to_string(r));
    }
    for (int64_t r = 0; r < requests; ++r) {
      for (int64_t i = start[r] + 1; i < start[r + 1]; ++i) {
        if (positions_[i] > positions_[i - 1]) continue;
        refuse("positions of request " + std::to_string(r) + " do not ascend");
      }
      request_of_.insert(request_of_.end(), start[r + 1] - start[r], static_cast<int32_t>(r));
    }
    for (const nanobind::object& table : block_tables) {
      const View<int32_t> view(table, "block_tables", 2);
      view.require(0, requests);
      tables_.push_back({copied(view, requests * view.size(1)), view.size(1)});
    }
  }

  // With the table of this number, whose entries are blocks as far back as tokens see.
  BatchView checked_view(int64_t number, const Visibility& sees) {
    if (number >= static_cast<int64_t>(tables_.size())) {
      refuse("the batch has " + std::to_string(tables_.size()) +
             " block tables, and the blocks of a layer are in table " + std::to_string(number));
    }
    const Table& table = tables_[static_cast<size_t>(number)];
    BatchView view{positions_.data(), query_start_.data(), table.blocks.data(), table.width,
                   requests(), tokens()};
    auto known = std::find_if(checked_.begin(), checked_.end(), [&](const Checked& c) {
      return c.number == number && c.window == sees.window && c.chunk == sees.chunk;
    });
    if (known == checked_.end()) {
      for (int64_t r = 0; r < requests(); ++r) check_request(table, sees, r);
      known = checked_.insert(known, {number, sees.window, sees.chunk,
                                      find_neighbours(view, sees, cache_.block_size())});
    }
    view.neighbours = known->neighbours.data();
    view.num_neighbours = static_cast<int64_t>(known->neighbours.size());
    return view;
  }

  static std::vector<int32_t> copied(const View<int32_t>& view, int64_t count) {
    return {view.data(), view.data() + count};
  }
  static std::vector<int32_t> copied(const View<int32_t>& view) {
    return copied(view, view.size(0));
  }

  int64_t requests() const { return static_cast<int64_t>(query_start_.size()) - 1; }

  void check_request(const Table& of, const Visibility& sees, int64_t request) const {
    const int64_t begin = query_start_[request], end = query_start_[request + 1];
    if (begin == end) return;
    const std::string where = " of request " + std::to_string(request);
    const int64_t size = cache_.block_size(), width = of.width;
    if (positions_[begin] < 0 || positions_[end - 1] >= width * size) {
      refuse("positions" + where + " are not in [0, " + std::to_string(width * size) +
             "), what its block table covers");
    }
    const int32_t* table = of.blocks.data() + request * width;
    const int64_t opening = first_seen(sees, positions_[begin]);
    for (int64_t i = opening / size; i <= positions_[end - 1] / size; ++i) {
      if (table[i] < 0 || table[i] >= cache_.blocks()) {
        refuse("block id " + std::to_string(table[i]) + where + " is not in [0, " +
               std::to_string(cache_.blocks()) + ")");
      }
    }
  }

  const KvCache& cache_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> query_start_;
  std::vector<int32_t> request_of_;
  std::vector<Table> tables_;
  std::vector<Checked> checked_;
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
