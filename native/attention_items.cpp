// Attention of a ragged batch: which tokens go together, and how their work is cut for the threads.
//
// An item is a pack of tokens and a kv head, or some, whose K and V are read once for all of them,
// or a part of what one sees, whose sums are joined with those of the others in ascending order.
// Rows are computed apart, so that no cut changes a result.

#include <algorithm>

#include "backend.h"
#include "session.h"

namespace headrace {
namespace {

// Rows (tokens x heads of a group) of an attention item, for all of which K and V are read once: as
// many as leave each thread some items. 96 rows of q, their sums and those of parts that are done
// are about 170 KiB at head_dim 128; wider heads have fewer, so that scratch stays within a
// second-level cache.
constexpr int64_t kLeastAttentionRows = 48, kMostAttentionRows = 96;
constexpr int64_t kAttentionValues = kMostAttentionRows * 128;
// Of latent layers more, for the values of each span are unpacked for the rows of an item.
constexpr int64_t kLatentValues = 32 * 576;
// Rows of an item that are worth unpacking values for, where threads would be idle otherwise.
constexpr int64_t kLatentRows = 4;
// Items of attention for each thread where all are alike: one that takes as long as more of them do
// is cut.
constexpr int64_t kItemsPerThread = 4;
// Rows of a kv head of an item that is cut at most: a head's group or two of a token, or some
// drafts. With those of a prompt there are items enough.
constexpr int64_t kCutRows = 16;
// Rows of an item of several kv heads at most: their q and sums are 40 KiB at head_dim 128.
constexpr int64_t kTogetherRows = 32;
// Beyond any position.
constexpr int64_t kAll = int64_t{1} << 62;

// Products that an item takes, in those of a q head of a token with a position; its end is counted
// whole.
int64_t attention_cost(const AttentionArgs& args, const AttentionItem& item) {
  int64_t positions = 0;
  for (int64_t i = 0; i < item.count; ++i) {
    const AttentionRun& run = item.runs[i];
    const int32_t* const at = args.batch.positions;
    const int64_t first = std::max(item.begin, first_seen(args.sees, at[run.begin]));
    const int64_t end = std::min<int64_t>(item.end, at[run.end - 1] + 1);
    positions += (run.end - run.begin) * std::max<int64_t>(0, end - first);
  }
  return positions * (item.q_end - item.q_begin) * item.heads;
}

// Rows of an item at most, at least 1: as many as leave each of so many threads some items, within
// what its values may take.
int64_t rows_of_item(const AttentionArgs& args, int64_t threads) {
  const KvLayer& kv = args.kv;
  const int64_t all_rows = args.batch.query_start[args.batch.requests] * args.group * kv.heads;
  const int64_t rows = std::clamp(all_rows / (threads * kItemsPerThread), kLeastAttentionRows,
                                  kMostAttentionRows);
  const int64_t values = kv.latent ? kLatentValues : kAttentionValues;
  return std::max<int64_t>(1, std::min(rows, values / std::max(kv.head_dim, kv.value_dim)));
}

}  // namespace

// Q heads that an item of a latent layer takes of a group, of `packs` for each kv head: all of them
// where rows and threads allow, so that values are unpacked once. Rows are computed apart, so that
// no cut changes a result.
int64_t Backend::latent_heads(const AttentionArgs& args, int64_t most_rows, int64_t tile,
                              int64_t packs) {
  const int64_t items = packs * args.kv.heads;
  if (items == 0) return args.group;
  const int64_t threads = pool_.size(), of_rows = (args.group + most_rows - 1) / most_rows;
  const int64_t of_threads =
      std::min((threads + items - 1) / items, tile * args.group / kLatentRows);
  const int64_t parts = std::min(args.group, std::max({int64_t{1}, of_rows, of_threads}));
  return (args.group + parts - 1) / parts;
}

// Kv heads that go together where `head_item` is the item of each of them: as many as rows allow,
// where an item of them, or a part of it that threads may have apart, is not more than a fair share
// of the work. K of all heads of a block of tokens lie behind each other, and so do their V: read
// together they are longer runs of memory.
int64_t Backend::heads_together(const AttentionArgs& args, const AttentionItem& head_item,
                                int64_t most_rows, int64_t share) {
  int64_t rows = 0;
  for (int64_t i = 0; i < head_item.count; ++i) {
    rows += (head_item.runs[i].end - head_item.runs[i].begin) * args.group;
  }
  const bool in_parts = head_item.count == 1 && rows <= kCutRows;
  const int64_t cost = in_parts ? std::min(head_item.cost, rows * kPart) : head_item.cost;
  const int64_t most = std::max<int64_t>(
      1, std::min({args.kv.heads, most_rows / std::max<int64_t>(1, rows),
                   share / std::max<int64_t>(1, cost)}));
  const int64_t items = (args.kv.heads + most - 1) / most;
  return (args.kv.heads + items - 1) / items;
}

// Tokens that go together, at most `tile` of them: those of one request, or of several that share K
// and V, as long as all threads have some.
void Backend::pack_runs(const AttentionArgs& args, int64_t tile) {
  const BatchView& batch = args.batch;
  runs_.clear();
  packs_.clear();
  const auto tokens_of = [&](int64_t r) -> int64_t {
    return batch.query_start[r + 1] - batch.query_start[r];
  };
  int64_t few = 0;
  for (int64_t r = 0; r < batch.requests; ++r) {
    if (batch.num_neighbours > 0 && tokens_of(r) <= tile) {
      few += tokens_of(r);
      continue;
    }
    for (int64_t at = batch.query_start[r]; at < batch.query_start[r + 1]; at += tile) {
      packs_.push_back({static_cast<int64_t>(runs_.size()), 1, 0});
      runs_.push_back({r, at, std::min<int64_t>(batch.query_start[r + 1], at + tile), 0});
    }
  }
  const int64_t threads = pool_.size();
  const int64_t most =
      std::min(tile, std::max<int64_t>(1, (few * args.kv.heads + threads - 1) / threads));
  // Tokens of the last pack, and what the next run shares with it.
  int64_t tokens = 0, shared = 0;
  for (int64_t i = 0; i < batch.num_neighbours; ++i) {
    const Neighbour& next = batch.neighbours[i];
    const int64_t count = tokens_of(next.request), begin = batch.query_start[next.request];
    shared = std::min(shared, next.shared);
    if (count > tile) continue;
    const bool joins = shared > 0 && tokens + count <= most;
    if (!joins) {
      packs_.push_back({static_cast<int64_t>(runs_.size()), 0, 0});
      tokens = 0;
    }
    tokens += count;
    packs_.back().from = joins ? next.from : 0;
    ++packs_.back().count;
    runs_.push_back({next.request, begin, begin + count, joins ? shared : 0});
    shared = kAll;
  }
}

// Items that are more than a fair share of the work are cut into the parts of what they see: those
// of few rows of one run, whose sums are little beside K and V.
void Backend::cut_items(const AttentionArgs& args, int64_t share) {
  whole_items_.clear();
  const auto opening = [&](const AttentionItem& item) {
    return first_seen(args.sees, args.batch.positions[item.runs->begin]) / kPart * kPart;
  };
  const auto last = [&](const AttentionItem& item) {
    return int64_t{args.batch.positions[item.runs->end - 1]};
  };
  const auto rows = [](const AttentionItem& item) {
    return (item.runs->end - item.runs->begin) * (item.q_end - item.q_begin) * item.heads;
  };
  const auto stays_whole = [&](const AttentionItem& item) {
    return item.count > 1 || rows(item) > kCutRows * item.heads || item.cost <= share ||
           last(item) < opening(item) + kPart;
  };
  const auto cut = std::stable_partition(items_.begin(), items_.end(), stays_whole);
  whole_items_.assign(cut, items_.end());
  items_.erase(cut, items_.end());
  const int64_t each = kernels_.attention_sums_width(args.kv);
  int64_t floats = 0;
  for (AttentionItem& item : whole_items_) {
    item.begin = opening(item);
    floats += (last(item) / kPart + 1 - item.begin / kPart) * rows(item) * each;
  }
  float* sums = reinterpret_cast<float*>(part_sums_.at_least(floats * 4));
  for (AttentionItem& item : whole_items_) {
    item.sums = sums;
    for (int64_t begin = item.begin; begin <= last(item); begin += kPart) {
      AttentionItem part = item;
      part.begin = begin;
      part.end = begin + kPart;
      part.sums = sums;
      part.cost = attention_cost(args, part);
      items_.push_back(part);
      sums += rows(item) * each;
    }
  }
}

// Items are a pack of tokens and some kv heads, with `q_heads` of each group or fewer, or a part of
// one. The longest go first, so that no thread is left alone with one at the end.
void Backend::make_items(const AttentionArgs& args, int64_t q_heads, int64_t together_rows) {
  const int64_t kv_heads = args.kv.heads;
  head_items_.clear();
  int64_t work = 0;
  for (const Pack& pack : packs_) {
    AttentionItem item{runs_.data() + pack.first, pack.count, pack.from, 0, 1, 0, args.group};
    item.cost = attention_cost(args, item);
    work += item.cost * kv_heads;
    head_items_.push_back(item);
  }
  const int64_t share = pool_.size() == 1 ? work : work / (pool_.size() * kItemsPerThread);
  items_.clear();
  for (const AttentionItem& head_item : head_items_) {
    const int64_t together =
        args.kv.latent ? 1 : heads_together(args, head_item, together_rows, share);
    for (int64_t h = 0; h < kv_heads; h += together) {
      for (int64_t q = 0; q < args.group; q += q_heads) {
        AttentionItem item = head_item;
        item.head = h;
        item.heads = std::min(together, kv_heads - h);
        item.q_begin = q;
        item.q_end = std::min(args.group, q + q_heads);
        item.cost = head_item.cost / args.group * (item.q_end - q) * item.heads;
        items_.push_back(item);
      }
    }
  }
  cut_items(args, share);
  std::stable_sort(items_.begin(), items_.end(),
                   [](const auto& a, const auto& b) { return a.cost > b.cost; });
}

// Every item is computed before sums of parts are joined.
void Backend::run_items(const AttentionArgs& args) {
  const AttentionItem* const items = items_.data();
  const int64_t count = static_cast<int64_t>(items_.size());
  pool_.for_dealt(count, [&](int64_t item, int64_t after, int thread) {
    kernels_.attention(args, items[item], after < count ? items + after : nullptr,
                       scratch(thread));
  });
  pool_.for_each(static_cast<int64_t>(whole_items_.size()), [&](int64_t item, int) {
    const AttentionItem& whole = whole_items_[static_cast<size_t>(item)];
    kernels_.join_parts(args, whole, whole.sums);
  });
}

void Backend::attention(const AttentionArgs& args) {
  const Session session(pool_);
  const int64_t most_rows = rows_of_item(args, pool_.size());
  const int64_t tile = std::max<int64_t>(1, most_rows / args.group);
  pack_runs(args, tile);
  const int64_t packs = static_cast<int64_t>(packs_.size());
  const int64_t q_heads =
      args.kv.latent ? latent_heads(args, most_rows, tile, packs) : args.group;
  const int64_t together_rows = std::min(kTogetherRows, most_rows);
  make_items(args, q_heads, together_rows);
  reserve_scratch(
      kernels_.attention_scratch_bytes(std::max(tile * q_heads, together_rows), args.kv));
  run_items(args);
}

}  // namespace headrace
