#include "vec_avx512.h"
//
#include "linear_amx.h"

namespace headrace {
namespace {

using Level = AmxLevel<HardwareTiles>;

float probe_multiply(Operands kind, int64_t rounds) {
  return kind == Operands::bf16_pairs
             ? avx512_bf16_kernels().probe_multiply(Operands::bf16, rounds)
             : Level::probe_multiply(kind, rounds);
}

Kernels extended() {
  Kernels kernels = Level::kernels("amx");
  kernels.probe_multiply = probe_multiply;
  kernels.probe_ops[static_cast<int>(Operands::bf16_pairs)] =
      avx512_bf16_kernels().probe_ops[static_cast<int>(Operands::bf16)];
  return kernels;
}

}  // namespace

const Kernels& amx_kernels() {
  static const Kernels kernels = extended();
  return kernels;
}

}  // namespace headrace
