// Persistent threads that share the items of one job at a time with the calling thread.
//
// Items are claimed one by one from a counter, so a thread that is late (or was never woken) takes
// none, and the job does not wait for it. Items that go on where the one before them ends are cut
// into runs with a counter each: a thread takes what is left of its own run before it helps with
// others, so that what it reads lies in a row. Between jobs a thread spins for a moment, then
// sleeps and uses no CPU. Every thread computes with denormals flushed. A pool is used from one
// thread at a time (`acquire`), and not across fork(): threads do not survive it.

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace headrace {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // counts the caller
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(team_->workers.size()) + 1; }
  // Held while the pool is used. Throws std::runtime_error in a process that the pool's threads
  // are not in.
  std::unique_lock<std::mutex> acquire();

  // Calls fn(item, thread) once for each item in [0, items), thread in [0, size()); returns when
  // all are done. fn must not throw. Items beyond 2^32 - 2 are not possible.
  template <class Fn>
  void for_each(int64_t items, const Fn& fn) {
    run(items, 1, [](const void* f, int64_t item, int64_t, int thread) {
      (*static_cast<const Fn*>(f))(item, thread);
    }, &fn);
  }

  // Calls fn(item, end, thread), items in runs: those from item + 1 to before `end` are most likely
  // this thread's next ones, so it may prefetch their memory.
  template <class Fn>
  void for_runs(int64_t items, const Fn& fn) {
    run(items, runs_, [](const void* f, int64_t item, int64_t end, int thread) {
      (*static_cast<const Fn*>(f))(item, end, thread);
    }, &fn);
  }

  // Calls fn(item, after, thread), items dealt to the runs in turns: each run has them in their
  // order. `after` is most likely this thread's next one, or `items` where there is none.
  template <class Fn>
  void for_dealt(int64_t items, const Fn& fn) {
    for_runs(items, [&](int64_t place, int64_t end, int thread) {
      const int64_t of_run = items / runs_, longer = items % runs_ * (of_run + 1);
      const int64_t run = place < longer ? place / (of_run + 1) : (place - items % runs_) / of_run;
      const int64_t item = (place - run_begin(items, runs_, run)) * runs_ + run;
      fn(item, place + 1 < end ? item + runs_ : items, thread);
    });
  }

  // The same for [begin, end) ranges that cut [0, count) into about `pieces` parts.
  template <class Fn>
  void for_ranges(int64_t count, int64_t pieces, const Fn& fn) {
    if (pieces > count) pieces = count;
    if (pieces < 1) pieces = 1;
    for_each(pieces, [&](int64_t piece, int thread) {
      fn(count * piece / pieces, count * (piece + 1) / pieces, thread);
    });
  }

 private:
  // Ends and joins what runs.
  void stop();
  // Whether this process is a fork of the one that has the workers.
  bool forked() const;
  using Task = void (*)(const void* fn, int64_t item, int64_t end, int thread);

  // The first runs have one item more than the others where they are not all alike.
  static int64_t run_begin(int64_t items, int64_t runs, int64_t run) {
    return items / runs * run + (run < items % runs ? run : items % runs);
  }
  void run(int64_t items, int64_t runs, Task task, const void* fn);
  void work(uint32_t job, int thread);
  void loop(int thread);
  bool wait_for_job(uint32_t seen, uint32_t& job);

  // High half: number of the job; low half: the run's next item, or kClosed while a job is being
  // set up.
  static constexpr uint64_t kClosed = 0xffffffff;
  struct alignas(64) Ticket {
    std::atomic<uint64_t> next{kClosed};
  };
  // Of each run. Who sees a job on the first one sees it on all.
  std::unique_ptr<Ticket[]> tickets_;
  int64_t runs_;  // at most
  alignas(64) std::atomic<uint64_t> done_{0};
  alignas(64) std::atomic<Task> task_{nullptr};
  std::atomic<const void*> fn_{nullptr};
  std::atomic<int64_t> items_{0};
  std::atomic<int64_t> runs_of_job_{1};
  std::atomic<int> sleeping_{0};
  std::atomic<bool> stop_{false};

  std::mutex mutex_;
  // Apart, because a forked child has to leave it as it is: what waits there is not in the child.
  struct Team {
    std::mutex mutex;
    std::condition_variable wake;
    std::vector<std::thread> workers;
  };
  std::unique_ptr<Team> team_ = std::make_unique<Team>();
  unsigned forks_;  // what forks() was when the workers came
};

}  // namespace headrace
