#include "expert_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "pack.h"

namespace headrace {
ExpertCacheStats ExpertCache::stats() const {
  return {limit_, held_.load(), hits_.load(), misses_.load(), read_bytes_.load()};
}

void ExpertCache::touch(Place slot) {
  slot->group = group_;
  slots_.splice(slots_.begin(), slots_, slot);
}

ExpertCache::Place ExpertCache::make_room(const ExpertMatrices& owner, int64_t expert,
                                          int64_t bytes) {
  Buffer spare;
  while (held_ + bytes > limit_) {
    if (slots_.empty() || slots_.back().group == group_) return slots_.end();
    Slot& last = slots_.back();
    held_ -= last.memory.bytes();
    if (last.memory.bytes() == bytes) spare = std::move(last.memory);
    last.owner->slots_[static_cast<size_t>(last.expert)] = slots_.end();
    slots_.pop_back();
  }
  if (spare.bytes() != bytes) spare = Buffer(bytes);
  slots_.push_front({&owner, expert, group_, std::move(spare)});
  held_ += bytes;
  return slots_.begin();
}

void ExpertCache::drop(Place slot) {
  held_ -= slot->memory.bytes();
  slots_.erase(slot);
}

ExpertMatrices::ExpertMatrices(ThreadPool& pool, Codec codec, int64_t in,
                               std::vector<std::vector<StoredRows>> experts,
                               const std::vector<float>& bias, std::shared_ptr<ExpertCache> cache)
    : experts_(std::move(experts)), cache_(std::move(cache)) {
  const int64_t out = rows_of(experts_[0]), tiles = (in + kTile - 1) / kTile;
  shape_ = {codec, out, in, tiles, panel_bytes(codec, tiles), nullptr, nullptr};
  panels_ = (out + kLanes - 1) / kLanes;
  row_bytes_ = row_bytes(codec, in);
  for (std::vector<StoredRows>& parts : experts_) {
    // From where they are mapped: hundreds of matrices, each read ahead with what follows it, would
    // be read many times over.
    for (StoredRows& part : parts) part.file = -1;
    any_gathered_ |= any_gathered(parts);
  }
  expert_bytes_ = panels_ * shape_.panel_bytes;
  if (!bias.empty()) {
    bias_.resize(static_cast<size_t>(count() * panels_ * kLanes));
    for (int64_t e = 0; e < count(); ++e) {
      std::copy_n(bias.begin() + e * out, out, bias_.begin() + e * panels_ * kLanes);
    }
  }
  if (cache_ != nullptr) {
    slots_.assign(experts_.size(), cache_->slots_.end());
    return;
  }
  all_ = Buffer(bytes());
  Buffer gathered(pool.size() * gathered_bytes());
  const int64_t every = count() * panels_;
  // Pieces of about 1 MiB: enough of them to even out the threads, each long enough to stream.
  pool.for_ranges(every, all_.bytes() >> 20, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t panel = begin; panel < end; ++panel) {
      pack_rows(codec, in, experts_[static_cast<size_t>(panel / panels_)], panel % panels_,
                gathered.data() + thread * gathered_bytes(),
                all_.data() + panel * shape_.panel_bytes);
    }
  });
  for (std::vector<StoredRows>& parts : experts_) parts.clear();  // not needed any more
}

ExpertMatrices::~ExpertMatrices() {
  if (cache_ == nullptr) return;
  const std::lock_guard lock(cache_->mutex());
  for (const ExpertCache::Place slot : slots_) {
    if (slot != cache_->slots_.end()) cache_->drop(slot);
  }
}

PackedMatrix ExpertMatrices::view(int64_t expert) const {
  PackedMatrix matrix = shape_;
  matrix.panels = cache_ == nullptr ? all_.data() + expert * expert_bytes_
                                    : slots_[static_cast<size_t>(expert)]->memory.data();
  if (!bias_.empty()) matrix.bias = bias_.data() + expert * panels_ * kLanes;
  return matrix;
}

bool ExpertMatrices::is_packed(int64_t expert) const {
  return cache_ == nullptr || slots_[static_cast<size_t>(expert)] != cache_->slots_.end();
}

int64_t ExpertMatrices::pack_group(ThreadPool& pool, const std::vector<int32_t>& experts) const {
  ++cache_->group_;
  uint8_t* const gathered = cache_->gathered_.at_least(pool.size() * gathered_bytes());
  std::vector<int32_t> missing;
  missing.reserve(experts.size());
  int64_t taken = 0;
  try {
    for (const int32_t expert : experts) {
      ExpertCache::Place& slot = slots_[static_cast<size_t>(expert)];
      if (slot != cache_->slots_.end()) {
        cache_->touch(slot);
        ++cache_->hits_;
      } else {
        slot = cache_->make_room(*this, expert, expert_bytes_);
        if (slot == cache_->slots_.end()) break;
        missing.push_back(expert);
        ++cache_->misses_;
      }
      ++taken;
    }
  } catch (...) {
    // No memory: what has a place by now was not packed.
    for (const int32_t expert : missing) {
      ExpertCache::Place& slot = slots_[static_cast<size_t>(expert)];
      cache_->drop(slot);
      slot = cache_->slots_.end();
    }
    throw;
  }
  for (const int32_t expert : missing) {
    for (const StoredRows& part : experts_[static_cast<size_t>(expert)]) {
      part.read_ahead();
      cache_->read_bytes_ += part.count * part.row_bytes;
    }
  }
  const int64_t every = static_cast<int64_t>(missing.size()) * panels_;
  pool.for_ranges(every, every * shape_.panel_bytes >> 17, [&](int64_t begin, int64_t end,
                                                              int thread) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t expert = missing[static_cast<size_t>(i / panels_)];
      uint8_t* const panels = slots_[static_cast<size_t>(expert)]->memory.data();
      uint8_t* const to = panels + i % panels_ * shape_.panel_bytes;
      std::memset(to, 0, static_cast<size_t>(shape_.panel_bytes));  // may hold another expert's
      pack_rows(shape_.codec, shape_.in, experts_[static_cast<size_t>(expert)], i % panels_,
                gathered + thread * gathered_bytes(), to);
    }
  });
  return taken;
}

}  // namespace headrace
