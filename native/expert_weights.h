// One matrix of every expert of a layer: all packed at load, or packed on demand into a cache of
// bounded size while the stored rows stay where they are (a mapped file). Both give the same panels.

#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "buffer.h"
#include "kernels.h"
#include "thread_pool.h"

namespace headrace {

// How a row is put together that is stored in pieces.
struct Pieces {
  int64_t bytes = 0;   // of a piece; 0 where rows lie in one piece each
  int64_t stride = 0;  // from one piece to the next
  int64_t row_stride = 0;
  // MXFP4 apart: pieces are 32 values, two neighbours in a byte, and these are the exponents.
  const uint8_t* exponents = nullptr;
  int64_t exponents_stride = 0;  // from one row to the next
};

// Rows of a matrix as they are stored; whoever makes it keeps the memory alive.
struct StoredRows {
  const uint8_t* data;
  const int32_t* order;  // stored row of each row, or null; none where rows are in pieces
  int64_t count;
  int64_t row_bytes;  // as the codec has them
  Pieces pieces = {};

  bool in_pieces() const { return pieces.bytes != 0; }
  // Of rows in one piece.
  const uint8_t* row(int64_t i) const { return data + (order == nullptr ? i : order[i]) * row_bytes; }
  // Of rows in pieces: `rows` of them from `first` on, one after another as the codec has them.
  void gather(int64_t first, int64_t rows, uint8_t* to) const;
  // Asks the system for the pages, so that several reads are under way at a time.
  void read_ahead() const;
};

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
  // experts: parts to stack, of one codec and width and as many rows in each; bias: as many values as
  // there are rows in all, or none. With a cache nothing is packed yet.
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
  // gathered: memory for the rows of a panel, used where they are in pieces.
  void pack(int64_t expert, int64_t panel, uint8_t* gathered, uint8_t* to) const;
  int64_t gathered_bytes() const { return in_pieces_ ? kLanes * row_bytes_ : 0; }

  PackedMatrix shape_;
  int64_t panels_;  // of an expert
  int64_t expert_bytes_;
  int64_t row_bytes_;
  bool in_pieces_ = false;
  std::vector<std::vector<StoredRows>> experts_;
  std::vector<float> bias_;  // in whole panels, or empty
  Buffer all_;
  std::shared_ptr<ExpertCache> cache_;
  mutable std::vector<ExpertCache::Place> slots_;  // of each expert; end() where it is not packed
};

}  // namespace headrace
