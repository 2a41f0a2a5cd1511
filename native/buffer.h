// Memory for weights, caches and scratch: zeroed, 64-byte aligned, in huge pages where it is large,
// and then spread over the nodes of the machine (NUMA).

#pragma once

#include <array>
#include <cstdint>
#include <memory>

namespace headrace {

// Nodes by bit, as the system has them: of 1,024, the most that Linux is built for.
using NodeMask = std::array<unsigned long, 1024 / (8 * sizeof(unsigned long))>;

// Nodes over which large memory is spread, page after page: those that this process may use. None
// where it has one, or where whoever started it chose a policy (numactl), which then holds.
NodeMask nodes_to_spread_over();

// The same of what the system says: the policy of the process and the nodes it may use.
NodeMask spread_over(int policy, const NodeMask& allowed);

// Has the pages of [at, at + bytes), which nobody has touched, come from `nodes` in turns. Threads
// take pieces of a product as they come free, so that no page belongs to one of them, and what all
// of them read then comes from all memories at once. False where the system has no nodes; nothing
// is lost then.
bool interleave(void* at, int64_t bytes, const NodeMask& nodes);

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t bytes);  // throws std::bad_alloc
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
  friend class Slabs;

  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
  std::shared_ptr<void> mapping_;
};

// Memory for many buffers that stay, one after another in mappings they share. A buffer alone ends
// in small pages, up to 2 MiB of them: of a model of 633 MB 74 MB were, and to touch these took as
// long as all the rest. Whole pages of a buffer go with it, a mapping with the last buffer in it.
class Slabs {
 public:
  // slab_bytes: of a mapping at least; 0 gives each buffer its own.
  explicit Slabs(int64_t slab_bytes = 0) : slab_bytes_(slab_bytes) {}
  // As Buffer(bytes).
  Buffer take(int64_t bytes);

 private:
  int64_t slab_bytes_;
  Buffer slab_;
  int64_t taken_ = 0;  // of slab_
};

}  // namespace headrace
