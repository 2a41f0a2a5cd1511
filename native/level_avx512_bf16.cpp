// The level avx512 with other products for BF16: of weights, and of K and V.

#include "vec_avx512.h"
//
#include "attention.h"
#include "attention_pairs.h"
#include "linear_bf16.h"

namespace headrace {

const Kernels& best_avx512_kernels();

namespace {

constexpr Product kPairProduct = {
    .half_operand = true, .scratch_bytes = sizeof(PairScratch), .linear = linear_pairs};

const Product& product(Codec codec, bool many_rows) {
  return codec == Codec::bf16 ? kPairProduct : best_avx512_kernels().product(codec, many_rows);
}

float probe_multiply(Operands kind, int64_t rounds) {
  return kind == Operands::bf16 ? probe_pairs(rounds)
                                : best_avx512_kernels().probe_multiply(kind, rounds);
}

Kernels extended() {
  Kernels kernels = best_avx512_kernels();
  kernels.level = "avx512_bf16";
  kernels.product = product;
  kernels.attention = attention<ByPairs>;
  kernels.attention_scratch_bytes = attention_scratch_bytes;
  kernels.probe_multiply = probe_multiply;
  kernels.probe_ops[static_cast<int>(Operands::bf16)] = kPairChains * kLanes * 2 * 2;
  return kernels;
}

}  // namespace

const Kernels& avx512_bf16_kernels() {
  static const Kernels kernels = extended();
  return kernels;
}

}  // namespace headrace
