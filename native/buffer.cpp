#include "buffer.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <new>
#include <tuple>
#include <utility>

namespace headrace {
namespace {

constexpr int64_t kPage = 4096;
// A huge page of x86-64 and of aarch64 with 4 KiB pages: weights streamed from 4 KiB pages lose
// bandwidth to address translation.
constexpr int64_t kHugePage = 2 << 20;
// Of what begins in a slab.
constexpr int64_t kAlignment = 64;

// Bits of a mask, and one, which the system takes off.
constexpr unsigned long kMaskBits = std::tuple_size_v<NodeMask> * 8 * sizeof(unsigned long) + 1;

int count_of(const NodeMask& nodes) {
  int count = 0;
  for (const unsigned long word : nodes) count += std::popcount(word);
  return count;
}

}  // namespace

NodeMask spread_over(int policy, const NodeMask& allowed) {
  return policy == MPOL_DEFAULT && count_of(allowed) > 1 ? allowed : NodeMask{};
}

NodeMask nodes_to_spread_over() {
  int policy = MPOL_DEFAULT, ignored = 0;
  NodeMask allowed{}, of_policy{};
  if (syscall(SYS_get_mempolicy, &policy, of_policy.data(), kMaskBits, nullptr, 0) != 0 ||
      syscall(SYS_get_mempolicy, &ignored, allowed.data(), kMaskBits, nullptr,
              MPOL_F_MEMS_ALLOWED) != 0) {
    return {};  // a system without nodes
  }
  return spread_over(policy, allowed);
}

bool interleave(void* at, int64_t bytes, const NodeMask& nodes) {
  return syscall(SYS_mbind, at, bytes, MPOL_INTERLEAVE, nodes.data(), kMaskBits, 0) == 0;
}

// The mapping is only as long as requested (rounded to small pages), so that many medium tensors do
// not each waste most of a huge page; only its start is aligned to one.
Buffer::Buffer(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  if (bytes < 0 || bytes > INT64_MAX - kHugePage - kPage) throw std::bad_alloc();
  const int64_t rounded = (bytes + kPage - 1) / kPage * kPage;
  const bool huge = rounded >= kHugePage;
  const auto mapped_bytes = static_cast<size_t>(huge ? rounded + kHugePage : rounded);
  void* const mapping =
      mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mapping_ = {mapping, [mapped_bytes](void* at) { munmap(at, mapped_bytes); }};
  data_ = static_cast<uint8_t*>(mapping);
  if (huge) {
    const uintptr_t start = reinterpret_cast<uintptr_t>(data_);
    data_ += (kHugePage - start % kHugePage) % kHugePage;
    // Wishes; refusal changes nothing.
    madvise(data_, static_cast<size_t>(rounded), MADV_HUGEPAGE);
    const NodeMask nodes = nodes_to_spread_over();
    if (count_of(nodes) > 0) interleave(mapping, static_cast<int64_t>(mapped_bytes), nodes);
  }
}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapping_, other.mapping_);
  return *this;
}

void Buffer::populate(int64_t start, int64_t count) const {
  if (start < 0 || count <= 0 || start > bytes_ - count) return;
  const uintptr_t from = reinterpret_cast<uintptr_t>(data_ + start) / kPage * kPage;
  const uintptr_t to = reinterpret_cast<uintptr_t>(data_ + start + count);
  // By faults, for which the system locks this mapping alone (since Linux 6.4): MADV_POPULATE_WRITE
  // locks the whole address space, and whoever maps or unmaps memory then waits for a thread of low
  // priority. An OR of nothing writes, and changes nothing that another thread writes.
  for (uintptr_t page = from; page < to; page += kPage) {
    __atomic_fetch_or(reinterpret_cast<uint8_t*>(page), uint8_t{0}, __ATOMIC_RELAXED);
  }
}

uint8_t* Buffer::at_least(int64_t bytes) {
  if (bytes > bytes_) {
    *this = Buffer();  // the old one goes before the new one comes
    *this = Buffer(bytes);
  }
  return data_;
}

Buffer Slabs::take(int64_t bytes) {
  if (slab_bytes_ == 0 || bytes <= 0 || bytes > INT64_MAX - 2 * kHugePage) return Buffer(bytes);
  if (bytes > slab_.bytes() - taken_) {
    slab_ = Buffer(std::max(slab_bytes_, (bytes + kHugePage - 1) / kHugePage * kHugePage));
    taken_ = 0;
  }
  Buffer buffer;
  buffer.data_ = slab_.data_ + taken_;
  buffer.bytes_ = bytes;
  // Nobody takes this part of the slab again: the pages that are all of this buffer's go with it.
  buffer.mapping_ = {buffer.data_, [slab = slab_.mapping_, bytes](void* at) {
    const uintptr_t start = reinterpret_cast<uintptr_t>(at);
    const uintptr_t from = (start + kPage - 1) / kPage * kPage;
    const uintptr_t to = (start + static_cast<uintptr_t>(bytes)) / kPage * kPage;
    if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
  }};
  taken_ = std::min(slab_.bytes(), taken_ + (bytes + kAlignment - 1) / kAlignment * kAlignment);
  return buffer;
}

}  // namespace headrace
