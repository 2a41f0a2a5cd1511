#include "levels.h"

#include <stdexcept>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace headrace {

const Kernels& portable_kernels();
#if defined(__x86_64__)
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512_bf16_kernels();
#elif defined(__aarch64__)
const Kernels& neon_kernels();
const Kernels& neon_dotprod_kernels();
#endif

namespace {

#if defined(__x86_64__)
// __builtin_cpu_supports also asks whether the system saves the registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#elif defined(__aarch64__)
bool has_dot_product() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
#endif

}  // namespace

std::vector<Level> levels() {
  return {
#if defined(__x86_64__)
      {avx512_bf16_kernels, has_avx512_bf16()},
      {avx512_kernels, has_avx512()},
      {avx2_kernels, has_avx2()},
#elif defined(__aarch64__)
      {neon_dotprod_kernels, has_dot_product()},
      {neon_kernels, true},
#endif
      {portable_kernels, true},
  };
}

std::vector<std::string> usable_levels() {
  std::vector<std::string> names;
  for (const Level& level : levels()) {
    if (level.usable) names.emplace_back(level.kernels().level);
  }
  return names;
}

const Kernels& select_level(const std::string& name) {
  for (const Level& level : levels()) {
    if (level.usable && (name == "auto" || name == level.kernels().level)) return level.kernels();
  }
  std::string usable;
  for (const std::string& other : usable_levels()) usable += ", " + other;
  throw std::invalid_argument("level '" + name +
                              "' is not available on this machine; choose one of auto" + usable);
}

}  // namespace headrace
