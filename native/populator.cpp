#include "populator.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "buffer.h"

namespace headrace {
namespace {

// Between two looks at whether to end: 0.1 ms where memory is at hand.
constexpr int64_t kPiece = 2 << 20;
// Of 19: a tenth of a processor that computing threads keep busy, and all of an idle one. At 19 it
// got 1.5 %, which is less than 32 streams take of new blocks.
constexpr int kNice = 10;

}  // namespace

struct Populator::Shared {
  std::mutex mutex;
  std::condition_variable wake;
  int64_t target = 0;  // under the mutex
  std::atomic<int64_t> done{0};
  std::atomic<bool> stop{false};
  std::thread thread;
  pid_t process = getpid();
};

Populator::Populator(const Buffer& buffer)
    : buffer_(buffer), shared_(std::make_unique<Shared>()) {}

Populator::~Populator() {
  if (!shared_->thread.joinable()) return;
  if (shared_->process != getpid()) {
    // fork() copied no thread: joining, or destroying what it waits for, would never end.
    static_cast<void>(shared_.release());
    return;
  }
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stop.store(true);
  }
  shared_->wake.notify_all();
  shared_->thread.join();
}

void Populator::reach(int64_t end) {
  end = std::min(end, buffer_.bytes());
  if (end <= requested_ || shared_->process != getpid()) return;
  requested_ = end;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->target = end;
  }
  if (!shared_->thread.joinable()) {
    try {
      shared_->thread = std::thread([this] { loop(); });
    } catch (const std::system_error&) {
      return;  // pages are found when they are written, as without it; tried again next time
    }
  }
  shared_->wake.notify_one();
}

void Populator::reach_now(int64_t end) {
  end = std::min(end, buffer_.bytes());
  const int64_t begun = shared_->done.load();
  for (int64_t at = begun; at < end; at += kPiece) buffer_.populate(at, std::min(kPiece, end - at));
  requested_ = std::max(requested_, end);
  const std::lock_guard lock(shared_->mutex);
  shared_->target = std::max(shared_->target, end);
  shared_->done.store(std::max(shared_->done.load(), end));
}

int64_t Populator::done() const { return shared_->done.load(); }

void Populator::loop() {
  setpriority(PRIO_PROCESS, 0, kNice);  // of this thread; refused or not, the pages come
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  while (!shared.stop.load()) {
    const int64_t done = shared.done.load(), target = shared.target;
    if (done >= target) {
      shared.wake.wait(lock);
      continue;
    }
    lock.unlock();
    const int64_t count = std::min(kPiece, target - done);
    buffer_.populate(done, count);
    lock.lock();
    shared.done.store(std::max(shared.done.load(), done + count));
  }
}

}  // namespace headrace
