#include "levels.h"

#include "trial.h"

#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace headrace {

const Kernels& portable_kernels();
#if defined(__x86_64__)
const Kernels& avx2_kernels();
const Kernels& avx_vnni_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512_vbmi_kernels();
const Kernels& avx512_bf16_kernels();
const Kernels& amx_kernels();
#elif defined(__aarch64__)
const Kernels& neon_kernels();
const Kernels& neon_dotprod_kernels();
#endif

#if defined(__x86_64__)
// Zen 5 (family 0x1A of AMD) has four vector ports, two of which multiply, so that shifts and masks
// run beside dot products. Zen 4 was not measured; processors of Intel have two ports, which do
// all.
static bool is_zen5() {
  unsigned a, b, c, d;
  if (!__builtin_cpu_is("amd") || __get_cpuid(1, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kZen5 = 0x1a;
  return (a >> 8 & 0xf) + (a >> 20 & 0xff) == kZen5;
}

// What the level avx512 is on this machine: one name and the same bits, with or without VBMI, and
// whatever ports there are.
const Kernels& best_avx512_kernels() {
  static const Kernels kernels = [] {
    Kernels best =
        __builtin_cpu_supports("avx512vbmi") ? avx512_vbmi_kernels() : avx512_kernels();
    best.unpacks_beside_dots = is_zen5();
    return best;
  }();
  return kernels;
}
#endif

namespace {

#if defined(__x86_64__)
// Not every compiler's __builtin_cpu_supports knows this name.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
// __builtin_cpu_supports also asks whether the system saves the registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}
// As F16C, a name that not every compiler knows; a bit of leaf 7, subleaf 1, where there is one.
bool has_avx_vnni() {
  constexpr unsigned kAvxVnni = 1u << 4;
  unsigned a, b, c, d;
  if (!has_avx2() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || a < 1) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kAvxVnni) != 0;
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
// Tiles for BF16 and bytes; the system saves their registers and lets this process use them, which
// it has to be asked for once (Linux, Documentation/arch/x86/xstate.rst). Tried before it is taken:
// its products have run on one kind of processor only (docs/kernels.md).
bool has_amx() {
  constexpr unsigned kFeatures = 1u << 22 | 1u << 24 | 1u << 25;  // AMX-BF16, AMX-TILE, AMX-INT8
  constexpr unsigned kSaved = 3u << 17;                           // tile configuration and data
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  static const bool usable = [] {
    unsigned a, b, c, d, low, high;
    if (!has_avx512_bf16() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
    if ((d & kFeatures) != kFeatures) return false;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & kSaved) == kSaved &&
           syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 &&
           passes_trial(amx_kernels());
  }();
  return usable;
}
#elif defined(__aarch64__)
bool has_dot_product() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
#endif

}  // namespace

std::vector<Level> levels() {
  return {
#if defined(__x86_64__)
      {"amx", amx_kernels, has_amx()},
      {"avx512_bf16", avx512_bf16_kernels, has_avx512_bf16()},
      {"avx512", best_avx512_kernels, has_avx512()},
      {"avx_vnni", avx_vnni_kernels, has_avx_vnni()},
      {"avx2", avx2_kernels, has_avx2()},
#elif defined(__aarch64__)
      {"neon_dotprod", neon_dotprod_kernels, has_dot_product()},
      {"neon", neon_kernels, true},
#endif
      {"portable", portable_kernels, true},
  };
}

std::vector<std::string> usable_levels() {
  std::vector<std::string> names;
  for (const Level& level : levels()) {
    if (level.usable) names.emplace_back(level.name);
  }
  return names;
}

const Kernels& select_level(const std::string& name) {
  for (const Level& level : levels()) {
    if (level.usable && (name == "auto" || name == level.name)) return level.kernels();
  }
  std::string usable;
  for (const std::string& other : usable_levels()) usable += ", " + other;
  throw std::invalid_argument("level '" + name +
                              "' is not available on this machine; --cpu-level is one of auto" +
                              usable);
}

}  // namespace headrace
