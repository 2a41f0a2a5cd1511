#include "vec_avx512.h"
//
#include "level.h"

namespace headrace {

// Processors of AMD have four vector ports, two of which multiply (Zen 5); those of Intel two, which do all.
const Kernels& avx512_kernels() {
  static const Kernels kernels = [] {
    Kernels level = kKernels;
    level.streams = __builtin_cpu_is("amd");
    return level;
  }();
  return kernels;
}

}  // namespace headrace
