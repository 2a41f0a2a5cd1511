#include "vec_avx512.h"
//
#include "level.h"

namespace headrace {
const Kernels& avx512_kernels() { return kKernels; }
}  // namespace headrace
