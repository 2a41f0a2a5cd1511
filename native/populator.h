// A thread of low priority that has pages of a buffer ready before they are written.
//
// The first write to a page takes a fault, in which the system finds and zeroes memory: in the
// midst of a step all threads that compute wait for the one it meets. Here that is done beside the
// steps, from the beginning of the buffer on and as far as was requested, so that what is never
// requested takes no memory. What is written meanwhile is not changed.

#pragma once

#include <cstdint>
#include <memory>

namespace headrace {

class Buffer;

class Populator {
 public:
  // The buffer outlives it.
  explicit Populator(const Buffer& buffer);
  // Ends the thread, after the piece it is at.
  ~Populator();
  Populator(const Populator&) = delete;
  Populator& operator=(const Populator&) = delete;

  // Has bytes [0, end) populated by and by. From any one thread; costs nothing where they are or
  // were requested before. A thread is started by the first call that requests more.
  void reach(int64_t end);
  // Populates them before it returns.
  void reach_now(int64_t end);
  // So many bytes are done.
  int64_t done() const;

 private:
  struct Shared;
  const Buffer& buffer_;
  int64_t requested_ = 0;
  std::unique_ptr<Shared> shared_;

  void loop();
};

}  // namespace headrace
