#include "vec_avx512.h"
//
#include "level.h"

namespace headrace {

// Zen 5 has four vector ports, two of which multiply; earlier processors of AMD with AVX-512 were not measured.
// Those of Intel have two, which do all.
const Kernels& avx512_kernels() {
  static const Kernels kernels = [] {
    Kernels level = kKernels;
    level.streams = __builtin_cpu_is("amd");
    return level;
  }();
  return kernels;
}

}  // namespace headrace
