// usage: headrace_native_tests [LEVEL...]   (default: every level this machine can run)
// Prints one line per level; exits 1 where a check failed or a named level cannot run.

#include <chrono>
#include <cstring>

#include "float_mode.h"
#include "levels.h"
#include "suites.h"

namespace headrace {
#if defined(__x86_64__)
const Kernels& amx_twin_kernels();
const Kernels& avx512_kernels();
#endif
}  // namespace headrace

namespace {

// Those of the machine, and the twin of amx where its other kernels can run.
std::vector<headrace::Level> levels_and_twins() {
  std::vector<headrace::Level> all = headrace::levels();
#if defined(__x86_64__)
  bool others = false;
  for (const auto& level : all) {
    others |= level.usable && std::strcmp(level.name, "avx512_bf16") == 0;
  }
  all.push_back({"amx_twin", headrace::amx_twin_kernels, others});
#endif
  return all;
}

bool named(int count, char** names, const char* level) {
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(names[i], level) == 0) return true;
  }
  return count == 1;
}

}  // namespace

int main(int count, char** arguments) {
  using namespace headrace;
  // A line shows as soon as its level is done, wherever the output goes.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  const FlushDenormals flush;
  int64_t failed = 0;
  int levels_run = 0;
  if (count == 1) {
    tests::Checks checks("threads");
    tests::thread_pool_suite(checks);
    std::printf("threads: %lld checks, %lld failed\n", static_cast<long long>(checks.made()),
                static_cast<long long>(checks.failed()));
    failed += checks.failed();
  }
  for (const Level& level : levels_and_twins()) {
    if (!named(count, arguments, level.name)) continue;
    if (!level.usable) {
      std::printf("%s: this machine cannot run it\n", level.name);
      continue;
    }
    const Kernels& kernels = level.kernels();
    const auto start = std::chrono::steady_clock::now();
    tests::Checks checks(level.name);
    checks.that(std::strcmp(level.name, kernels.level) == 0, "the table's name");
    tests::linear_suite(kernels, checks);
    tests::elementwise_suite(kernels, checks);
    tests::attention_suite(kernels, checks);
    tests::row_suite(kernels, checks);
    tests::sample_suite(kernels, checks);
    tests::experts_suite(kernels, checks);
    tests::heads_suite(kernels, checks);
    tests::trial_suite(kernels, checks);
    tests::buffer_suite(kernels, checks);
#if defined(__x86_64__)
    // The level as it is on a processor without VBMI.
    if (std::strcmp(level.name, "avx512") == 0) tests::books_suite(avx512_kernels(), checks);
#endif
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("%s: %lld checks, %lld failed, %.1f s\n", kernels.level,
                static_cast<long long>(checks.made()), static_cast<long long>(checks.failed()),
                took.count());
    failed += checks.failed();
    ++levels_run;
  }
  if (levels_run < (count == 1 ? 1 : count - 1)) {
    std::printf("a level that was named did not run\n");
    return 1;
  }
  return failed == 0 ? 0 : 1;
}
