#include "vec_neon.h"
//
#include "level.h"

namespace headrace {
const Kernels& neon_kernels() { return kKernels; }
}  // namespace headrace
