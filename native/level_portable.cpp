#include "vec_portable.h"
//
#include "level.h"

namespace headrace {
const Kernels& portable_kernels() { return kKernels; }
}  // namespace headrace
