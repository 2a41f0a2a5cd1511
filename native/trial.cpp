#include "trial.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "buffer.h"
#include "float_mode.h"
#include "pack.h"

namespace headrace {
namespace {

// Neither is whole tiles or panels: a block of 32 rows and one of 8, two panels and one with a
// tail.
constexpr int64_t kRows = 40, kOut = 40;
constexpr int64_t kIn = 512;
// A trial that takes this long is stuck.
constexpr unsigned kSeconds = 5;
constexpr Codec kTried[] = {Codec::bf16, Codec::f8_e4m3, Codec::q8_0, Codec::q4_k, Codec::q6_k};

class Trial {
 public:
  Trial(ThreadPool& pool, Codec codec)
      : stored_(static_cast<size_t>(kOut * row_bytes(codec, kIn))),
        x_(static_cast<size_t>(kRows * kIn)),
        weight_(pool, memory_, codec, kIn, {filled(codec)}, {}),
        operand_(kRows * kIn * 16),
        y_(2 * static_cast<size_t>(kRows * kOut)) {}

  // Enough for the scratch of both products.
  bool agrees(const Kernels& kernels) {
    const Product& few = kernels.product(weight_.view().codec, false);
    const Product& many = kernels.product(weight_.view().codec, true);
    Buffer scratch(std::max(few.scratch_bytes, many.scratch_bytes));
    multiply(kernels, few, kManyRows - 1, scratch.data(), y_.data());
    multiply(kernels, many, kRows, scratch.data(), y_.data() + kRows * kOut);
    return std::memcmp(y_.data(), y_.data() + kRows * kOut, kRows * kOut * sizeof(float)) == 0;
  }

 private:
  // Bytes whose highest bits are clear: every 16-bit float among them is finite and positive.
  StoredRows filled(Codec codec) {
    uint32_t state = 1;
    const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 16; };
    for (uint8_t& byte : stored_) byte = next() & 0x3b;
    for (float& value : x_) {
      value = static_cast<float>(static_cast<int>(next() % 4096) - 2048) / 512;
    }
    return {stored_.data(), nullptr, kOut, row_bytes(codec, kIn)};
  }

  void multiply(const Kernels& kernels, const Product& product, int64_t step, void* scratch,
                float* y) {
    const PackedMatrix weight = weight_.view();
    uint8_t* at = operand_.data();
    Operand to{};
    to.stride = kIn;
    if (is_quantised(weight.codec)) {
      to.q = reinterpret_cast<int8_t*>(at);
      to.d = reinterpret_cast<float*>(at + kRows * kIn * 4);
      to.start = reinterpret_cast<int32_t*>(at + kRows * kIn * 8);
      to.sums = reinterpret_cast<float*>(at + kRows * kIn * 12);
      to.whole_sums = reinterpret_cast<int16_t*>(at + kRows * kIn * 12);
    } else if (product.half_operand) {
      to.half = reinterpret_cast<uint16_t*>(at);
    } else {
      to.values = reinterpret_cast<float*>(at);
    }
    kernels.prepare(
        {x_.data(), kIn, kIn, {nullptr, nullptr, 0, false}, weight.codec, weight.tiles, to}, 0,
        kRows);
    const int64_t panels = (kOut + kLanes - 1) / kLanes;
    for (int64_t row = 0; row < kRows; row += step) {
      product.linear({weight, to, y, kOut, nullptr, 1.0f}, {0, panels, panels}, row,
                     std::min(kRows, row + step), scratch);
    }
  }

  std::vector<uint8_t> stored_;
  std::vector<float> x_;
  Slabs memory_;
  PackedLinear weight_;
  Buffer operand_;
  std::vector<float> y_;
};

}  // namespace

bool passes_trial(const Kernels& kernels) {
  ThreadPool alone(1);
  std::vector<std::unique_ptr<Trial>> trials;
  for (Codec codec : kTried) trials.push_back(std::make_unique<Trial>(alone, codec));
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    // Whoever handles faults in this process must not take one of the child for its own.
    for (int fault : {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGALRM}) signal(fault, SIG_DFL);
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    alarm(kSeconds);
    const FlushDenormals flush;
    for (const auto& trial : trials) {
      if (!trial->agrees(kernels)) _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return false;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace headrace
