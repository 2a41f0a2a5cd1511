// Large memory and the nodes it is spread over. No kernel has to do with it.

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "buffer.h"
#include "suites.h"

namespace headrace::tests {
namespace {

constexpr int64_t kBytes = 8 << 20;

void check_choice(Checks& checks) {
  const NodeMask none{};
  NodeMask one{}, two{}, far{};
  one[0] = 0b10;
  two[0] = 0b101;
  far[0] = 1;
  far[15] = 1;
  checks.that(spread_over(MPOL_DEFAULT, one) == none, "one node: nothing to spread over");
  checks.that(spread_over(MPOL_DEFAULT, two) == two, "two nodes");
  checks.that(spread_over(MPOL_DEFAULT, far) == far, "nodes 0 and 960");
  for (const int policy : {MPOL_BIND, MPOL_PREFERRED, MPOL_INTERLEAVE}) {
    checks.that(spread_over(policy, two) == none,
                "policy " + std::to_string(policy) + " of the process holds");
  }
}

// Over the one node that a machine surely has: the system takes the mask, and pages keep what they
// hold.
void check_interleave(Checks& checks) {
  void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NodeMask allowed{};
  int policy = -1;
  const unsigned long bits = 1025;
  const long known = syscall(SYS_get_mempolicy, &policy, allowed.data(), bits, nullptr,
                             MPOL_F_MEMS_ALLOWED);
  if (at == MAP_FAILED || known != 0) return;  // a system without nodes
  checks.that(interleave(at, kBytes, allowed), "memory is spread over the nodes of the process");
  NodeMask of_memory{};
  syscall(SYS_get_mempolicy, &policy, of_memory.data(), bits, at, MPOL_F_ADDR);
  checks.that(policy == MPOL_INTERLEAVE && of_memory == allowed, "it has that policy");
  auto* bytes = static_cast<uint8_t*>(at);
  for (int64_t i = 0; i < kBytes; i += 4096) bytes[i] = static_cast<uint8_t>(i >> 12);
  int64_t wrong = 0;
  for (int64_t i = 0; i < kBytes; i += 4096) wrong += bytes[i] != static_cast<uint8_t>(i >> 12);
  checks.that(wrong == 0, "it holds what was written");
  munmap(at, kBytes);
}

// What fits goes into the mapping that is there, zeroed and apart; each outlives whoever gave it.
void check_slabs(Checks& checks) {
  std::vector<Buffer> taken;
  {
    Slabs slabs(kBytes);
    for (const int64_t bytes : {int64_t{100}, kBytes / 2, int64_t{1}, kBytes, 3 * kBytes + 5}) {
      taken.push_back(slabs.take(bytes));
    }
  }
  checks.that(taken[1].data() == taken[0].data() + 128, "the next begins 64-byte aligned behind");
  checks.that(taken[2].data() == taken[1].data() + kBytes / 2, "a third one behind it");
  checks.that(Slabs(0).take(100).data() != nullptr, "without slabs each is a mapping");
  uint8_t number = 0;
  int64_t wrong = 0;
  for (const Buffer& buffer : taken) {
    for (int64_t i = 0; i < buffer.bytes(); ++i) wrong += buffer.data()[i] != 0;
    std::memset(buffer.data(), ++number, static_cast<size_t>(buffer.bytes()));
  }
  checks.that(wrong == 0, "all of it is zero at first");
  number = 0;
  for (const Buffer& buffer : taken) {
    ++number;
    for (int64_t i = 0; i < buffer.bytes(); ++i) wrong += buffer.data()[i] != number;
  }
  checks.that(wrong == 0, "none lies over another");
}

// Pages of [at, at + bytes), `at` the start of one, that are in memory.
int64_t resident(const uint8_t* at, int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> there(static_cast<size_t>((bytes + page - 1) / page));
  if (mincore(const_cast<uint8_t*>(at), static_cast<size_t>(bytes), there.data()) != 0) return -1;
  int64_t count = 0;
  for (const unsigned char each : there) count += each & 1;
  return count;
}

// Of a buffer that goes, its neighbours' pages stay and its own do not.
void check_memory_returns(Checks& checks) {
  Slabs slabs(kBytes);
  const Buffer before = slabs.take(100);
  const uint8_t* page = nullptr;
  {
    const Buffer between = slabs.take(kBytes / 2);
    page = between.data() - 128 + sysconf(_SC_PAGESIZE);
    std::memset(between.data(), 1, static_cast<size_t>(between.bytes()));
    checks.that(resident(page, kBytes / 4) > 0, "written pages are in memory");
  }
  const Buffer after = slabs.take(100);
  std::memset(before.data(), 2, 100);
  std::memset(after.data(), 3, 100);
  checks.that(resident(page, kBytes / 4) == 0, "those of a buffer that went are not");
  checks.that(before.data()[99] == 2 && after.data()[99] == 3, "its neighbours stay");
}

}  // namespace

void buffer_suite(const Kernels&, Checks& checks) {
  check_choice(checks);
  check_interleave(checks);
  check_slabs(checks);
  check_memory_returns(checks);
}

}  // namespace headrace::tests
