#include "thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "float_mode.h"

namespace headrace {
namespace {

// How long an idle thread spins before it sleeps. Between two operations of a step Python takes 5
// to 20 us, and waking a sleeping thread takes 5 to 50; a spin this long bridges the first and
// costs nothing that matters once the step is over.
constexpr std::chrono::microseconds kSpin{60};
// Looks at the ticket between two looks at the clock.
constexpr int kLooks = 64;
// A job writes to the line of each run, which has to come from the core that wrote it last: as many
// as that costs a microsecond for. Of more threads some share a run.
constexpr int kMostRuns = 16;

// How often the line of processes that ends in this one was forked.
std::atomic<unsigned> fork_count{0};

unsigned forks() {
  [[maybe_unused]] static const int counting =
      pthread_atfork(nullptr, nullptr, [] { fork_count.fetch_add(1); });
  return fork_count.load(std::memory_order_relaxed);
}

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads)
    : tickets_(std::make_unique<Ticket[]>(static_cast<size_t>(std::clamp(threads, 1, kMostRuns)))),
      runs_(std::clamp(threads, 1, kMostRuns)),
      forks_(forks()) {
  try {
    for (int i = 1; i < threads; ++i) team_->workers.emplace_back([this, i] { loop(i); });
  } catch (...) {
    // A thread could not be had; those that run must end before the pool does.
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

bool ThreadPool::forked() const { return forks_ != forks() && !team_->workers.empty(); }

std::unique_lock<std::mutex> ThreadPool::acquire() {
  if (forked()) {
    throw std::runtime_error(
        "these threads belong to the process this one was forked from; fork() copies none: make "
        "the backend anew after it, or start processes by spawn");
  }
  return std::unique_lock(mutex_);
}

void ThreadPool::stop() {
  if (forked()) {
    // Joining, or destroying what others wait for, would never end.
    static_cast<void>(team_.release());
    return;
  }
  {
    const std::lock_guard lock(team_->mutex);
    stop_.store(true);
  }
  team_->wake.notify_all();
  for (std::thread& worker : team_->workers) worker.join();
}

void ThreadPool::run(int64_t items, int64_t runs, Task task, const void* fn) {
  if (items <= 1 || team_->workers.empty()) {
    for (int64_t item = 0; item < items; ++item) task(fn, item, items, 0);
    return;
  }
  const uint64_t job =
      static_cast<uint32_t>((tickets_[0].next.load(std::memory_order_relaxed) >> 32) + 1);
  // Closed first: a thread that still holds the last job's ticket must not match it with the new
  // job's number of items. Whoever sees one of the stores after it sees it closed, so these are
  // releases, and work() acquires.
  for (int64_t i = 0; i < runs_; ++i) {
    tickets_[static_cast<size_t>(i)].next.store(job << 32 | kClosed);
  }
  task_.store(task, std::memory_order_release);
  fn_.store(fn, std::memory_order_release);
  items_.store(items, std::memory_order_release);
  runs_of_job_.store(runs, std::memory_order_release);
  done_.store(0, std::memory_order_release);
  // The first one last: it is the one that threads wait for.
  for (int64_t i = runs; i > 0; --i) tickets_[static_cast<size_t>(i - 1)].next.store(job << 32);
  if (sleeping_.load() > 0) {
    const std::lock_guard lock(team_->mutex);
    team_->wake.notify_all();
  }
  work(static_cast<uint32_t>(job), 0);
  for (int look = 0; done_.load(std::memory_order_acquire) < static_cast<uint64_t>(items); ++look) {
    // A thread that holds the last item may have lost its CPU: give it ours.
    if (look < 4096) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::work(uint32_t job, int thread) {
  // Of a job that is over, or of the next one, these may be wrong: then no ticket is of this job.
  const int64_t runs = runs_of_job_.load(std::memory_order_acquire);
  const bool shared = size() > runs;
  for (int64_t i = 0; i < runs; ++i) {
    const int64_t run = (thread + i) % runs;
    std::atomic<uint64_t>& next = tickets_[static_cast<size_t>(run)].next;
    uint64_t ticket = next.load(std::memory_order_acquire);
    for (;;) {
      const Task task = task_.load(std::memory_order_acquire);
      const void* fn = fn_.load(std::memory_order_acquire);
      const int64_t items = items_.load(std::memory_order_acquire);
      const int64_t item = run_begin(items, runs, run) + static_cast<int64_t>(ticket & kClosed);
      const int64_t end = run_begin(items, runs, run + 1);
      if (ticket >> 32 != job || item >= end) break;
      // Success means that the job was still open, so what was read above belongs to it.
      if (!next.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
      task(fn, item, shared || i > 0 ? item + 1 : end, thread);
      done_.fetch_add(1, std::memory_order_release);
      ticket = next.load(std::memory_order_acquire);
    }
  }
}

bool ThreadPool::wait_for_job(uint32_t seen, uint32_t& job) {
  const auto open = [&] {
    const uint64_t ticket = tickets_[0].next.load();
    job = static_cast<uint32_t>(ticket >> 32);
    return job != seen && (ticket & kClosed) != kClosed;
  };
  const auto until = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int look = 0; look < kLooks; ++look) {
      if (open()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < until);
  std::unique_lock lock(team_->mutex);
  sleeping_.fetch_add(1);
  team_->wake.wait(lock, [&] { return stop_.load() || open(); });
  sleeping_.fetch_sub(1);
  return !stop_.load();
}

void ThreadPool::loop(int thread) {
  const FlushDenormals flush;
  uint32_t seen = 0, job = 0;
  while (wait_for_job(seen, job)) {
    work(job, thread);
    seen = job;
  }
}

}  // namespace headrace
