// The operations of a step, noted as they run and run again on what then lies in the same memory.
//
// What a note points to (weights, arrays, the batch) is kept alive by whoever keeps the tape.
// Numbers of rows and widths are those of the first run; ids and positions are checked in every
// run.

#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace headrace {

class Tape {
 public:
  // Notes of the thread that makes it.
  Tape() : writer_(std::this_thread::get_id()) {}

  bool is_of_this_thread() const { return writer_ == std::this_thread::get_id(); }
  void add(std::function<void()> call) { calls_.push_back(std::move(call)); }
  int64_t size() const { return static_cast<int64_t>(calls_.size()); }
  // Throws what a call throws; those before it have run.
  void run() const {
    for (const auto& call : calls_) call();
  }

 private:
  std::thread::id writer_;
  std::vector<std::function<void()>> calls_;
};

}  // namespace headrace
