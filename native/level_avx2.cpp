#include "vec_avx2.h"
//
#include "dots_avx2.h"
//
#include "level.h"

namespace headrace {
const Kernels& avx2_kernels() { return kKernels; }
}  // namespace headrace
