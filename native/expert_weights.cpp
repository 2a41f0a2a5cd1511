#include "expert_weights.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "pack.h"

namespace headrace {
namespace {

constexpr int64_t kPage = 4096;

int64_t rows_of(const std::vector<StoredRows>& parts) {
  int64_t rows = 0;
  for (const StoredRows& part : parts) rows += part.count;
  return rows;
}

// A block of MXFP4 from 16 bytes of two neighbouring values each: value i goes to the low half of
// byte i, value i + 16 to the high half.
void join_block(uint8_t exponent, const uint8_t* pairs, uint8_t* to) {
  *to++ = exponent;
  for (int i = 0; i < 8; ++i) {
    const uint8_t low = pairs[i], high = pairs[i + 8];
    *to++ = static_cast<uint8_t>((low & 15) | high << 4);
    *to++ = static_cast<uint8_t>(low >> 4 | (high & 0xf0));
  }
}

// Values of kBytes each, turned: neighbouring rows lie near each other.
template <int kBytes>
void gather_values(const StoredRows& stored, int64_t first, int64_t rows, uint8_t* to) {
  const Pieces& p = stored.pieces;
  const uint8_t* from = stored.data + first * p.row_stride;
  const int64_t columns = stored.row_bytes / kBytes;
  for (int64_t k = 0; k < columns; ++k, from += p.stride, to += kBytes) {
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(to + row * stored.row_bytes, from + row * p.row_stride, kBytes);
    }
  }
}

void ask_for(const uint8_t* data, int64_t bytes) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data) / kPage * kPage;
  const uintptr_t end = reinterpret_cast<uintptr_t>(data + bytes);
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);  // a wish
}

}  // namespace

void StoredRows::gather(int64_t first, int64_t rows, uint8_t* to) const {
  if (pieces.exponents == nullptr) {
    if (pieces.bytes == 2) return gather_values<2>(*this, first, rows, to);
    return gather_values<4>(*this, first, rows, to);
  }
  const int64_t block = facts(Codec::mxfp4).stored_bytes, blocks = row_bytes / block;
  for (int64_t row = first; row < first + rows; ++row) {
    const uint8_t* from = data + row * pieces.row_stride;
    const uint8_t* exponents = pieces.exponents + row * pieces.exponents_stride;
    for (int64_t b = 0; b < blocks; ++b, from += pieces.stride, to += block) {
      join_block(exponents[b], from, to);
    }
  }
}

void StoredRows::read_ahead() const {
  if (order != nullptr || count == 0 || row_bytes == 0) return;
  if (!in_pieces()) return ask_for(data, count * row_bytes);
  const bool apart = pieces.exponents != nullptr;
  const int64_t each = row_bytes / (apart ? facts(Codec::mxfp4).stored_bytes : pieces.bytes);
  ask_for(data, (count - 1) * pieces.row_stride + (each - 1) * pieces.stride + pieces.bytes);
  if (apart) ask_for(pieces.exponents, (count - 1) * pieces.exponents_stride + each);
}

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
  for (const std::vector<StoredRows>& parts : experts_) {
    for (const StoredRows& part : parts) in_pieces_ |= part.in_pieces();
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
      pack(panel / panels_, panel % panels_, gathered.data() + thread * gathered_bytes(),
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

void ExpertMatrices::pack(int64_t expert, int64_t panel, uint8_t* gathered, uint8_t* to) const {
  const uint8_t* rows[kLanes] = {};
  int64_t before = 0;
  for (const StoredRows& part : experts_[static_cast<size_t>(expert)]) {
    const int64_t first = panel * kLanes - before;
    const int64_t begin = std::max<int64_t>(0, -first);  // of the lanes that are rows of the part
    const int64_t end = std::min(kLanes, part.count - first);
    if (part.in_pieces() && begin < end) {
      part.gather(first + begin, end - begin, gathered + begin * row_bytes_);
    }
    for (int64_t lane = begin; lane < end; ++lane) {
      rows[lane] = part.in_pieces() ? gathered + lane * row_bytes_ : part.row(first + lane);
    }
    before += part.count;
  }
  pack_panel(shape_.codec, shape_.in, rows, to);
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
      pack(expert, i % panels_, gathered + thread * gathered_bytes(), to);
    }
  });
  return taken;
}

}  // namespace headrace
