// The table of one level. Included last in a level's translation unit, after its vec_*.h.

#pragma once

#include "activation.h"
#include "attention.h"
#include "elementwise.h"
#include "embed.h"
#include "kernels.h"
#include "linear.h"
#include "norm.h"
#include "operands.h"
#include "probe.h"
#include "row_kernels.h"

namespace {

constexpr headrace::Product kProduct = {
    .half_operand = false, .scratch_bytes = sizeof(LinearScratch),
    .linear = linear_of<true, headrace::kFirstQuantised, headrace::kBlockKinds>};

static const headrace::Product& product(Codec, bool) { return kProduct; }
static int64_t many_from(Codec) { return headrace::kManyRows; }

constexpr headrace::Kernels kKernels = {
    .level = kLevel,
    .prepare = prepare,
    .product = product,
    .many_from = many_from,
    .unpacks_beside_dots = false,
    .norm = norm,
    .embed = embed,
    .rope = rope,
    .activate = activate,
    .combine = combine,
    .kv_write = kv_write,
    .attention = attention<ByChains>,
    .attention_scratch_bytes = attention_scratch_bytes,
    .attention_sums_width = sums_width,
    .join_parts = join_parts,
    .highest = highest,
    .weigh = weigh,
    .count_above = count_above,
    .take = take,
    .mask = mask_scores,
    .exp_shifted = exp_shifted,
    .probe_read = probe_read,
    .probe_multiply = probe_multiply,
    .probe_ops = {kProbeChains * kLanes * 2, 0, kByteOps},
};

}  // namespace
