// The limits of this machine, measured with the backend's own threads and instructions.

#include <algorithm>
#include <chrono>
#include <limits>

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
  const auto lock = pool_.acquire();
  // Enough in all that handing out the work (microseconds) does not show; what is larger is read
  // once, in pieces, so that a thread that loses its CPU takes fewer.
  constexpr int64_t kAll = 256 << 20, kPiece = 1 << 20;
  const int64_t part = std::min(kPiece, bytes / pool_.size());
  const int64_t piece = std::max(kProbeBytes, part / kProbeBytes * kProbeBytes);
  const int64_t pieces = std::max<int64_t>(pool_.size(), bytes / piece);
  const int64_t rounds = std::max<int64_t>(1, kAll / (pieces * piece));
  const Buffer memory(pieces * piece);
  volatile float kept = 0;
  // Written first: pages that were never touched are all one and the same page of zeros.
  pool_.for_each(pieces, [&](int64_t i, int) {
    for (int64_t at = 0; at < piece; at += 64) memory.data()[i * piece + at] = 1;
  });
  // Each thread's own part again and again, as far as there is one piece a thread; where there are
  // more, all of them in turn, so that none comes back sooner than after the whole footprint.
  const bool own = pieces <= pool_.size();
  const double time = seconds([&] {
    pool_.for_each(own ? pieces : pieces * rounds, [&](int64_t i, int) {
      for (int64_t round = 0; round < (own ? rounds : 1); ++round) {
        kept = kernels_.probe_read(memory.data() + i % pieces * piece, piece);
      }
    });
  });
  return static_cast<double>(pieces * piece * rounds) / time;
}

double Backend::peak_multiplies(Operands kind) {
  const int64_t ops = kernels_.probe_ops[static_cast<int>(kind)];
  if (ops == 0) return 0;
  const auto lock = pool_.acquire();
  // Some 10 ms each time, in pieces, so that a slow thread takes fewer. The shortest time counts: a
  // thread that just woke may share the core of the one that woke it for some milliseconds, which
  // halves the rate.
  constexpr int64_t kRounds = 10000, kPieces = 400;
  constexpr int kTimes = 5;
  volatile float kept = 0;
  double time = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimes; ++i) {
    time = std::min(time, seconds([&] {
      pool_.for_each(kPieces * pool_.size(), [&](int64_t, int) {
        kept = kernels_.probe_multiply(kind, kRounds);
      });
    }));
  }
  return static_cast<double>(ops * kRounds * kPieces * pool_.size()) / time;
}

}  // namespace headrace
