// Activations, value by value.
//
// Normal distribution and sigmoids are computed by their small side, so that nothing cancels in the
// negative tails. Coefficients are relative minimax fits over the ranges named, in float64,
// rounded.

#pragma once

#include "elementwise.h"
#include "kernels.h"
#include "norm.h"

namespace {

using headrace::Activation;
using headrace::ActivationArgs;
using headrace::CombineArgs;
using headrace::kActivationColumns;

HEADRACE_INLINE F magnitude(F x) { return at_least(sub(zero(), x), x); }

// tanh(x) = x P(x^2) / Q(x^2) for |x| <= 9 (relative error of the fit 2.7e-8), where the quotient
// reaches 1 at every level; beyond it is +-1. The constants of P and Q are both 1, so tanh(x) of a
// tiny x is x.
HEADRACE_INLINE F tanh(F x) {
  const F one = splat(1.0f);
  const F v = at_most(splat(9.0f), at_least(splat(-9.0f), x)), u = mul(v, v);
  F p = splat(0x1.c102a2p-27f);
  p = fma(p, u, splat(0x1.56603ep-16f));
  p = fma(p, u, splat(0x1.c898f0p-9f));
  p = fma(p, u, splat(0x1.11d67ep-3f));
  p = fma(p, u, one);
  F q = splat(0x1.9b473cp-21f);
  q = fma(q, u, splat(0x1.56716ep-12f));
  q = fma(q, u, splat(0x1.a7392ap-6f));
  q = fma(q, u, splat(0x1.de408ap-2f));
  q = fma(q, u, one);
  return at_most(one, at_least(splat(-1.0f), div(mul(v, p), q)));
}

// cap * tanh(x / cap).
HEADRACE_INLINE F soft_capped(F x, F cap) { return mul(cap, tanh(div(x, cap))); }

// The upper tail of the normal distribution, Phi(-a), for a in [0, 14.5]: exp(-a^2 / 2) P(a) /
// Q(a), with a fit good to 6e-9. From 14.5 on it is zero, as denormals are.
HEADRACE_INLINE F normal_tail(F a) {
  F p = splat(0x1.0dc43ep-8f);
  p = fma(p, a, splat(0x1.4cde12p-5f));
  p = fma(p, a, splat(0x1.7743fep-3f));
  p = fma(p, a, splat(0x1.c0d066p-2f));
  p = fma(p, a, splat(0.5f));
  F q = splat(0x1.52192cp-7f);
  q = fma(q, a, splat(0x1.a136c2p-4f));
  q = fma(q, a, splat(0x1.e0bcecp-2f));
  q = fma(q, a, splat(0x1.33d740p+0f));
  q = fma(q, a, splat(0x1.acaa64p+0f));
  q = fma(q, a, splat(1.0f));
  return mul(exp(mul(mul(a, a), splat(-0.5f))), div(p, q));
}

// x / (1 + exp(-y)): silu for y = x.
HEADRACE_INLINE F times_sigmoid(F x, F y) {
  return div(x, add(splat(1.0f), exp(sub(zero(), y))));
}

struct Silu {
  HEADRACE_INLINE F of(F x, float) { return times_sigmoid(x, x); }
};
// x Phi(x) = max(x, 0) - |x| Phi(-|x|), for either sign of x.
struct Gelu {
  HEADRACE_INLINE F of(F x, float) {
    const F a = at_most(splat(14.5f), magnitude(x));
    return sub(at_least(zero(), x), mul(a, normal_tail(a)));
  }
};
// (1 + tanh z) / 2 = 1 / (1 + exp(-2 z)), with 2 z = x (2 sqrt(2 / pi) + 2 sqrt(2 / pi) 0.044715
// x^2).
struct GeluTanh {
  HEADRACE_INLINE F of(F x, float) {
    const F slope = fma(splat(0x1.2444f2p-4f), mul(x, x), splat(0x1.988454p+0f));
    return times_sigmoid(x, mul(x, slope));
  }
};
struct Softcap {
  HEADRACE_INLINE F of(F x, float cap) { return soft_capped(x, splat(cap)); }
};

struct Relu {
  HEADRACE_INLINE F of(F x, float) { return at_least(zero(), x); }
};
struct Relu2 {
  HEADRACE_INLINE F of(F x, float) {
    const F v = at_least(zero(), x);
    return mul(v, v);
  }
};
// gpt_oss's gate: x times sigmoid(1.702 x) of x at most 7; what it meets of up is in [-6, 8].
struct SwigluClamped {
  HEADRACE_INLINE F of(F x, float) {
    const F v = at_most(splat(7.0f), x);
    return times_sigmoid(v, mul(splat(1.702f), v));
  }
  HEADRACE_INLINE F up(F x) {
    return add(at_most(splat(7.0f), at_least(splat(-7.0f), x)), splat(1.0f));
  }
};

// What a gate's activation is multiplied by.
template <class Function>
struct Up {
  HEADRACE_INLINE F of(F x) { return x; }
};
template <>
struct Up<SwigluClamped> {
  HEADRACE_INLINE F of(F x) { return SwigluClamped::up(x); }
};

// How many values ahead memory is prefetched: what has to be under way for one stream of three.
constexpr int64_t kActivationAhead = 512;

template <class Function>
static void activate_pieces(const ActivationArgs& a, int64_t begin, int64_t end) {
  const int64_t pieces = (a.width + kActivationColumns - 1) / kActivationColumns;
  for (int64_t piece = begin; piece < end; ++piece) {
    const int64_t row = piece / pieces, from = piece % pieces * kActivationColumns;
    const int64_t left = a.width - from;
    const int64_t to = from + (left < kActivationColumns ? left : kActivationColumns);
    const float* x = a.x + row * (a.gated ? 2 : 1) * a.width;
    const bool limited = a.gated && a.cap > 0;
    const F most = splat(a.cap), least = sub(zero(), most);
    for (int64_t i = from; i < to; i += kLanes) {
      if (a.gated) {
        prefetch(x + i + kActivationAhead);
        prefetch(x + a.width + i + kActivationAhead);
        prefetch_to_write(a.y + row * a.width + i + kActivationAhead);
      }
      F v = Function::of(load_left(x + i, to - i), a.cap);
      if (a.gated) {
        F up = load_left(x + a.width + i, to - i);
        if (limited) {
          v = at_most(most, v);
          up = at_most(most, at_least(least, up));
        }
        v = mul(v, Up<Function>::of(up));
      }
      store_n(a.y + row * a.width + i, v, to - i);
    }
  }
}

static void activate(const ActivationArgs& a, int64_t begin, int64_t end) {
  if (a.kind == Activation::silu) activate_pieces<Silu>(a, begin, end);
  if (a.kind == Activation::gelu) activate_pieces<Gelu>(a, begin, end);
  if (a.kind == Activation::gelu_tanh) activate_pieces<GeluTanh>(a, begin, end);
  if (a.kind == Activation::softcap) activate_pieces<Softcap>(a, begin, end);
  if (a.kind == Activation::relu) activate_pieces<Relu>(a, begin, end);
  if (a.kind == Activation::relu2) activate_pieces<Relu2>(a, begin, end);
  if (a.kind == Activation::swiglu_clamped) activate_pieces<SwigluClamped>(a, begin, end);
}

// Products and sums are rounded apart at every level, so that all have the same bits.
static void combine(const CombineArgs& a, int64_t begin, int64_t end) {
  const int64_t pieces = (a.width + kActivationColumns - 1) / kActivationColumns;
  for (int64_t piece = begin; piece < end; ++piece) {
    const int64_t token = piece / pieces, from = piece % pieces * kActivationColumns;
    const int64_t left = a.width - from;
    const int64_t to = from + (left < kActivationColumns ? left : kActivationColumns);
    const int32_t* part_of = a.part_of + token * a.chosen;
    const float* weights = a.weights == nullptr ? nullptr : a.weights + token * a.chosen;
    for (int64_t i = from; i < to; i += kLanes) {
      F total = zero();
      for (int64_t j = 0; j < a.chosen; ++j) {
        F part = load_left(a.parts + part_of[j] * a.width + i, to - i);
        if (weights != nullptr) part = mul(splat(weights[j]), part);
        total = j == 0 ? part : add(total, part);
      }
      total = mul(total, splat(a.scale));  // by 1 it stays what it is
      const int64_t at = token * a.width + i;
      if (a.residual != nullptr) total = add(total, load_left(a.residual + at, to - i));
      store_n(a.y + at, total, to - i);
    }
  }
}

}  // namespace
