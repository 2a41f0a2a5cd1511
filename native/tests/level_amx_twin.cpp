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

float probe_multiply(Operands kind, int64_t rounds) {
  return kind == Operands::f32 ? avx512_kernels().probe_multiply(kind, rounds)
                               : probe_tiles<SoftTiles>(kind == Operands::int8, rounds);
}

Kernels extended() {
  Kernels kernels = avx512_kernels();
  kernels.level = "amx_twin";
  kernels.product = product;
  kernels.probe_multiply = probe_multiply;
  kernels.probe_ops[static_cast<int>(Operands::bf16)] = kTileOpsBf16;
  kernels.probe_ops[static_cast<int>(Operands::int8)] = kTileOpsInt8;
  return kernels;
}

}  // namespace

const Kernels& amx_twin_kernels() {
  static const Kernels kernels = extended();
  return kernels;
}

}  // namespace headrace
