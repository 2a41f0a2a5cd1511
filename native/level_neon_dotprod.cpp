#define HEADRACE_DOTPROD
#include "vec_neon.h"
//
#include "level.h"

namespace headrace {
const Kernels& neon_dotprod_kernels() { return kKernels; }
}  // namespace headrace
