// The level avx512 on processors with VBMI: another way to look points up for the kinds with small
// books. Its bits are the same, and so is its name.

#define HEADRACE_BYTE_BOOKS
#include "vec_avx512.h"
//
#include "linear.h"

namespace headrace {

const Kernels& avx512_kernels();

namespace {

constexpr Product kByteBooks = {
    .half_operand = false, .scratch_bytes = sizeof(LinearScratch),
    .linear =
        linear_of<false, static_cast<int>(Codec::iq3_s), static_cast<int>(Codec::iq2_xxs) + 1>};

const Product& product(Codec codec, bool many_rows) {
  return has_byte_book(codec) ? kByteBooks : avx512_kernels().product(codec, many_rows);
}

Kernels extended() {
  Kernels kernels = avx512_kernels();
  kernels.product = product;
  return kernels;
}

}  // namespace

const Kernels& avx512_vbmi_kernels() {
  static const Kernels kernels = extended();
  return kernels;
}

}  // namespace headrace
