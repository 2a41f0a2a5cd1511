// Threads that share items: each item once, whatever thread comes late, and runs that go on where
// they say.

#include "thread_pool.h"

#include <atomic>
#include <vector>

#include "suites.h"

namespace headrace::tests {
namespace {

// Jobs that follow each other at once, so that threads come late from one to the next.
constexpr int kJobs = 4000;
constexpr int64_t kMostItems = 40;

struct Taken {
  std::vector<std::atomic<int>> times = std::vector<std::atomic<int>>(kMostItems);
  std::atomic<int64_t> bad{0};

  void take(int64_t item, int64_t end, int64_t items, int thread, int threads) {
    if (item < 0 || item >= items || end <= item || end > items) ++bad;
    if (thread < 0 || thread >= threads) ++bad;
    if (item >= 0 && item < kMostItems) ++times[static_cast<size_t>(item)];
  }
  bool each_once(int64_t items) {
    bool good = bad == 0;
    for (int64_t i = 0; i < kMostItems; ++i) {
      good &= times[static_cast<size_t>(i)].exchange(0) == (i < items ? 1 : 0);
    }
    return good;
  }
};

}  // namespace

void thread_pool_suite(Checks& checks) {
  for (const int threads : {1, 2, 3, 20}) {
    ThreadPool pool(threads);
    Random random(static_cast<uint64_t>(threads));
    Taken taken;
    int64_t wrong = 0;
    for (int job = 0; job < kJobs / threads; ++job) {
      const int64_t items = random.below(kMostItems + 1);
      const int64_t kind = random.below(3);
      if (kind == 0) {
        pool.for_each(items, [&](int64_t item, int thread) {
          taken.take(item, item + 1, items, thread, threads);
        });
      } else if (kind == 1) {
        pool.for_dealt(items, [&](int64_t item, int64_t after, int thread) {
          taken.take(item, after, items, thread, threads);
        });
      } else {
        pool.for_runs(items, [&](int64_t item, int64_t end, int thread) {
          taken.take(item, end, items, thread, threads);
        });
      }
      if (!taken.each_once(items)) ++wrong;
    }
    checks.that(wrong == 0, std::to_string(threads) + " threads: items taken once, " +
                                std::to_string(wrong) + " jobs wrong");

    // Alone, a thread takes all of it in order, each run to its end.
    ThreadPool alone(1);
    int64_t next = 0;
    alone.for_runs(kMostItems, [&](int64_t item, int64_t end, int) {
      checks.that(item == next++ && end == kMostItems, "one thread, item " + std::to_string(item));
    });
    alone.for_dealt(next = kMostItems, [&](int64_t item, int64_t after, int) {
      checks.that(item == kMostItems - next && after == item + 1, "one thread, dealt in order");
      --next;
    });
  }
}

}  // namespace headrace::tests
