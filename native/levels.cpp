#include "levels.h"

#include <stdexcept>

namespace headrace {

const Kernels& portable_kernels();
#ifdef HEADRACE_AVX512
const Kernels& avx512_kernels();
#endif

namespace {

struct Level {
  const Kernels& (*kernels)();
  bool usable;
};

// Best first. __builtin_cpu_supports also asks whether the system saves the registers.
std::vector<Level> levels() {
  return {
#ifdef HEADRACE_AVX512
      {avx512_kernels,
       __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni")},
#endif
      {portable_kernels, true},
  };
}

}  // namespace

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
