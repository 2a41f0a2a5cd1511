#include "vec_avx2.h"
//
#include "dots_avx_vnni.h"
//
#include "level.h"

namespace headrace {
const Kernels& avx_vnni_kernels() { return kKernels; }
}  // namespace headrace
