// What the operations of a backend have in common: the pool for one call, and operands in memory.

#pragma once

#include <cstdint>
#include <mutex>

#include "buffer.h"
#include "float_mode.h"
#include "kernels.h"
#include "thread_pool.h"

namespace headrace {

// One call's use of the pool, denormals flushed.
struct Session {
  explicit Session(ThreadPool& pool) : lock(pool.acquire()) {}
  std::unique_lock<std::mutex> lock;
  FlushDenormals flush;
};

// Whether products read rows of x where they lie.
inline bool reads_rows_as_they_are(const PackedMatrix& weight) {
  return !is_quantised(weight.codec) && !rounds_activations(weight.codec) &&
         weight.in == weight.tiles * kTile;
}

inline Operand operand_of(const PackedMatrix& weight, const float* x) {
  return {const_cast<float*>(x), nullptr, weight.in, nullptr, nullptr, nullptr, nullptr, nullptr};
}

// Memory of `buffer` for `rows` rows of what meets such weights, as bf16 where `half` says so.
inline Operand lay_out(Buffer& buffer, const PackedMatrix& weight, int64_t rows, bool half) {
  const auto aligned = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
  const int64_t width = weight.tiles * kTile;
  Operand to{};
  if (is_quantised(weight.codec)) {
    const int64_t groups = facts(weight.codec).groups;
    const int64_t q = aligned(rows * width), d = aligned(rows * weight.tiles * 4);
    const int64_t of_groups = aligned(rows * weight.tiles * groups * 4);
    uint8_t* at = buffer.at_least(q + d + 2 * of_groups);
    to.q = reinterpret_cast<int8_t*>(at);
    to.d = reinterpret_cast<float*>(at + q);
    to.start = reinterpret_cast<int32_t*>(at + q + d);
    uint8_t* const sums = at + q + d + of_groups;
    if (sums_blocks(facts(weight.codec))) {
      to.whole_sums = reinterpret_cast<int16_t*>(sums);
    } else {
      to.sums = reinterpret_cast<float*>(sums);
    }
  } else if (half) {
    to.half = reinterpret_cast<uint16_t*>(buffer.at_least(rows * width * 2));
    to.stride = width;
  } else {
    to.values = reinterpret_cast<float*>(buffer.at_least(rows * width * 4));
    to.stride = width;
  }
  return to;
}

}  // namespace headrace
