#include "vec_avx512.h"
//
#include "linear_amx.h"

namespace headrace {
const Kernels& amx_kernels() {
  static const Kernels kernels = AmxLevel<HardwareTiles>::kernels("amx");
  return kernels;
}
}  // namespace headrace
