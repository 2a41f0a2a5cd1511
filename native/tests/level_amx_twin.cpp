// The level amx over tiles in plain C++: its kernels, tested where no AMX is.

#include "vec_avx512.h"
//
#include "linear_amx.h"
#include "soft_tiles.h"

namespace headrace {

const Kernels& avx512_kernels();

namespace {

using Products = AmxProducts<SoftTiles>;

const Product& product(Codec codec, bool many_rows) {
  if (many_rows && codec == Codec::bf16) return Products::kBf16;
  if (many_rows && is_quantised(codec)) return Products::kInt8;
  return avx512_kernels().product(codec, many_rows);
}

Kernels extended() {
  Kernels kernels = avx512_kernels();
  kernels.level = "amx_twin";
  kernels.product = product;
  return kernels;
}

}  // namespace

const Kernels& amx_twin_kernels() {
  static const Kernels kernels = extended();
  return kernels;
}

}  // namespace headrace
