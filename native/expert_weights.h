// One matrix of every expert of a layer: all packed at load, or packed on demand into a cache of
// bounded size while the stored rows stay where they are (a mapped file). Both give the same
// panels.

#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "buffer.h"
#include "kernels.h"
#include "stored_rows.h"
#include "thread_pool.h"

namespace headrace {

class ExpertMatrices;

struct ExpertCacheStats {
  int64_t limit_bytes;
  int64_t held_bytes;
  int64_t hits;        // matrices that were there when they were needed
  int64_t misses;      // matrices that had to be packed
  int64_t read_bytes;  // stored bytes of the misses
};

// Packed matrices of experts, the least recently used of which make room for others. It never holds
// more than `limit` bytes. Used with its mutex held; the figures may be read at any time.
class ExpertCache {
 public:
  struct Slot {
    const ExpertMatrices* owner;
    int64_t expert;
    int64_t group;  // the last one that used it
    Buffer memory;
  };

  explicit ExpertCache(int64_t limit) : limit_(limit) {}

  int64_t limit() const { return limit_; }
  std::mutex& mutex() { return mutex_; }
  ExpertCacheStats stats() const;

 private:
  friend class ExpertMatrices;
  using Place = std::list<Slot>::iterator;

  void touch(Place slot);
  // Room for `bytes`, at the front; end() where only matrices of the current group are left to go.
  Place make_room(const ExpertMatrices& owner, int64_t expert, int64_t bytes);
  void drop(Place slot);

  const int64_t limit_;
  std::mutex mutex_;
  std::list<Slot> slots_;  // the most recently used first
  int64_t group_ = 0;
  Buffer gathered_;  // rows of a panel for each thread
  std::atomic<int64_t> held_{0}, hits_{0}, misses_{0}, read_bytes_{0};
};

class ExpertMatrices {
 public:
  // experts: parts to stack, of one codec and width and as many rows in each; bias: as many values
  // as there are rows in all, or none. With a cache nothing is packed yet.
  ExpertMatrices(ThreadPool& pool, Codec codec, int64_t in,
                 std::vector<std::vector<StoredRows>> experts, const std::vector<float>& bias,
                 std::shared_ptr<ExpertCache> cache);
  ~ExpertMatrices();
  ExpertMatrices(const ExpertMatrices&) = delete;
  ExpertMatrices& operator=(const ExpertMatrices&) = delete;

  int64_t count() const { return static_cast<int64_t>(experts_.size()); }
  int64_t out() const { return shape_.out; }
  int64_t in() const { return shape_.in; }
  int64_t bytes() const { return count() * expert_bytes_; }  // packed, whether or not they are
  ExpertCache* cache() const { return cache_.get(); }
  const PackedMatrix& shape() const { return shape_; }  // of one expert, without memory
  PackedMatrix view(int64_t expert) const;              // of one that is packed

  bool is_packed(int64_t expert) const;
  // Packs as many of the experts, from the first on, as the cache can hold at a time (at least one)
  // and returns their number. They stay until the next group.
  int64_t pack_group(ThreadPool& pool, const std::vector<int32_t>& experts) const;

 private:
  friend class ExpertCache;
  int64_t gathered_bytes() const { return any_gathered_ ? kLanes * row_bytes_ : 0; }

  PackedMatrix shape_;
  int64_t panels_;  // of an expert
  int64_t expert_bytes_;
  int64_t row_bytes_;
  bool any_gathered_ = false;
  std::vector<std::vector<StoredRows>> experts_;
  std::vector<float> bias_;  // in whole panels, or empty
  Buffer all_;
  std::shared_ptr<ExpertCache> cache_;
  mutable std::vector<ExpertCache::Place> slots_;  // of each expert; end() where it is not packed
};

}  // namespace headrace
