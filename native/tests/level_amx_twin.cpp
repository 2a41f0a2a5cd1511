// The level amx over tiles in plain C++: its kernels, tested where no AMX is.

#include "vec_avx512.h"
//
#include "linear_amx.h"
#include "soft_tiles.h"

namespace headrace {
const Kernels& amx_twin_kernels() {
  static const Kernels kernels = AmxLevel<SoftTiles>::kernels("amx_twin");
  return kernels;
}
}  // namespace headrace
