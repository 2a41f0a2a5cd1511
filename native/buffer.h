// Memory for weights, caches and scratch: zeroed, 64-byte aligned, in huge pages where it is large.

#pragma once

#include <cstdint>

namespace headrace {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t bytes);  // throws std::bad_alloc
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // Has the pages of bytes [start, start + count) in memory, so that the first write to them finds
  // them there. What they hold stays, whoever writes it meanwhile.
  void populate(int64_t start, int64_t count) const;
  // At least `bytes`; what was in it is lost when it grows.
  uint8_t* at_least(int64_t bytes);

 private:
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
  void* mapping_ = nullptr;
  int64_t mapped_bytes_ = 0;
};

}  // namespace headrace
