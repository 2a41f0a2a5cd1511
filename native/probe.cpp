// The limits of this machine, measured with the backend's own threads and instructions.

#include <chrono>
#include <mutex>

#include "backend.h"
#include "float_mode.h"

namespace headrace {
namespace {

template <class Fn>
double seconds(const Fn& fn) {
  const auto start = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double Backend::read_bandwidth(int64_t bytes) {
  const std::lock_guard lock(pool_.mutex());
  constexpr int64_t kPiece = 1 << 20;
  const int64_t pieces = bytes / kPiece;
  const Buffer memory(pieces * kPiece);
  volatile float kept = 0;
  // Written first: pages that were never touched are all one and the same page of zeros.
  pool_.for_each(pieces, [&](int64_t piece, int) {
    for (int64_t at = 0; at < kPiece; at += 64) memory.data()[piece * kPiece + at] = 1;
  });
  const double time = seconds([&] {
    pool_.for_each(pieces, [&](int64_t piece, int) {
      kept = kernels_.probe_read(memory.data() + piece * kPiece, kPiece);
    });
  });
  return static_cast<double>(pieces * kPiece) / time;
}

double Backend::peak_multiplies(bool int8) {
  const std::lock_guard lock(pool_.mutex());
  // About 20 ms at one round a nanosecond or two; pieces, so that a slow thread takes fewer.
  constexpr int64_t kRounds = 10000, kPieces = 400;
  volatile float kept = 0;
  const double time = seconds([&] {
    pool_.for_each(kPieces * pool_.size(), [&](int64_t, int) {
      kept = kernels_.probe_multiply(int8, kRounds);
    });
  });
  const int64_t ops = int8 ? kernels_.probe_ops_int8 : kernels_.probe_ops_f32;
  return static_cast<double>(ops * kRounds * kPieces * pool_.size()) / time;
}

}  // namespace headrace
