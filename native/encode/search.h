// The search behind the kinds whose scales no formula gives: codes of 256 values and of their
// scales that keep the weighted squared error sum w * (y - x)^2 small.
//
// src/headrace/weights/codecs/search_definition.py defines it, and this gives the same bits.

#pragma once

#include "encode/around_zero.h"
#include "encode/from_minimum.h"

namespace {

void search(const headrace::Task& t) {
  using headrace::Kind;
  switch (t.kind) {
    case Kind::q2_k: return search_from_minimum<16, 3, 15>(t, headrace::kSteps[0]);
    case Kind::q3_k: return search_around_zero<16, Line<4>, 32>(t, headrace::kSteps[1]);
    case Kind::q4_k: return search_from_minimum<32, 15, 63>(t, headrace::kSteps[2]);
    case Kind::q5_k: return search_from_minimum<32, 31, 63>(t, headrace::kSteps[3]);
    case Kind::q6_k: return search_around_zero<16, Line<32>, 128>(t, headrace::kSteps[4]);
    case Kind::iq4_nl: return search_single<32, Book>(t, headrace::kSteps[5]);
    case Kind::iq4_xs: return search_around_zero<32, Book, 32>(t, headrace::kSteps[6]);
    case Kind::q4_0: return search_single<32, Line<8>>(t, headrace::kSteps[7]);
    case Kind::q5_0: return search_single<32, Line<16>>(t, headrace::kSteps[8]);
    case Kind::q4_1: return search_single_from_minimum<32, 15>(t, headrace::kSteps[9]);
    case Kind::q5_1: return search_single_from_minimum<32, 31>(t, headrace::kSteps[10]);
  }
}

}  // namespace
