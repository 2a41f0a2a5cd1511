// Products: with every codec, over ragged outputs, inputs and rows, equal to the twin bit for bit,
// however many rows go together and whatever the threads.

#include <string>

#include "backend.h"
#include "suites.h"
#include "twin.h"

namespace headrace::tests {
namespace {

struct Shape {
  int64_t out, in;
};
// Tails of 16 outputs and of 32 inputs, one and many panels, one and many tiles.
constexpr Shape kShapes[] = {{1, 32}, {16, 64}, {33, 96}, {20, 1056}, {100, 160}};
constexpr Shape kBlocksOf256[] = {{1, 256}, {33, 512}, {18, 1280}};
// 192 rows of so many inputs go over weights together, and panels are enough that rows are not cut
// for a thread.
constexpr Shape kWide = {250, 2816};
constexpr int64_t kRowsOfPasses = 197;
constexpr Shape kTails[] = {{3, 1}, {17, 2}, {48, 33}, {31, 172}, {64, 47}};

PackedLinear packed(Backend& backend, const StoredMatrix& w, std::vector<float> bias) {
  const StoredRows rows{w.bytes.data(), nullptr, w.out, w.row_bytes};
  return PackedLinear(backend.pool(), backend.weights(), w.codec, w.in, {rows}, std::move(bias));
}

std::vector<float> rows_of(const std::vector<float>& x, int64_t width, int64_t begin, int64_t end) {
  return {x.begin() + begin * width, x.begin() + end * width};
}

void check_shape(const Kernels& kernels, Checks& checks, Codec codec, const Shape& shape) {
  const int64_t all = 49 + (shape.out + shape.in) % 6;
  Random random(static_cast<uint64_t>(shape.out * 10000 + shape.in));
  const StoredMatrix w = random_matrix(codec, shape.out, shape.in, random.bits());
  const std::vector<float> x = random.values(all * shape.in, 2.0f);
  const std::vector<float> bias = random.values(shape.out);
  const std::vector<float> residual = random.values(all * shape.out);
  const std::string name = std::string("linear ") + facts(codec).name + " " +
                           std::to_string(shape.out) + " x " + std::to_string(shape.in);
  const std::vector<float> want =
      product_twin(kernels, w, x, all, bias.data(), 0.7f, residual.data());
  for (const int threads : {1, 3}) {
    if (threads > 1 && !stands_for_others(codec)) continue;
    Backend backend(kernels, threads);
    const PackedLinear weight = packed(backend, w, bias);
    for (const int64_t rows : {int64_t{1}, int64_t{2}, int64_t{5}, int64_t{8}, int64_t{9},
                               int64_t{16}, int64_t{17}, int64_t{33}, all}) {
      if ((threads > 1 || !stands_for_others(codec)) && rows != 1 && rows != all) continue;
      const int64_t begin = all - rows;
      std::vector<float> y(static_cast<size_t>(rows * shape.out));
      backend.linear(weight.view(), x.data() + begin * shape.in, rows, {},
                     residual.data() + begin * shape.out, 0.7f, y.data());
      checks.equal(y, rows_of(want, shape.out, begin, all),
                   name + ", rows " + std::to_string(rows) + ", threads " +
                       std::to_string(threads));
    }
  }
}

// A fused norm is the norm and then the product.
void check_norm(const Kernels& kernels, Checks& checks, Codec codec) {
  constexpr int64_t kOut = 20, kRows = 50;
  const int64_t width = facts(codec).stored_elements > 32 ? 512 : 352;
  Random random(3);
  Backend backend(kernels, 2);
  const StoredMatrix w = random_matrix(codec, kOut, width, 4);
  const PackedLinear weight = packed(backend, w, {});
  const std::vector<float> x = random.values(kRows * width), by = random.values(width);
  const std::vector<float> bias = random.values(width);
  for (const bool centred : {false, true}) {
    const NormWeights norm{by.data(), centred ? bias.data() : nullptr, 1e-5f, centred};
    const std::vector<float> want = product_twin(
        kernels, w, norm_twin(rounding_of(kernels), x, width, norm), kRows, nullptr, 1.0f, nullptr);
    for (const int64_t rows : {int64_t{1}, kRows}) {
      std::vector<float> y(static_cast<size_t>(rows * kOut));
      backend.linear(weight.view(), x.data(), rows, norm, nullptr, 1.0f, y.data());
      checks.equal(y, rows_of(want, kOut, 0, rows),
                   std::string("norm and product, ") + facts(codec).name + ", rows " +
                       std::to_string(rows));
    }
  }
}

// The largest integers there are: nothing saturates or wraps.
void check_extremes(const Kernels& kernels, Checks& checks) {
  constexpr int64_t kOut = 32, kRows = 50;
  StoredMatrix w = random_matrix(Codec::q8_0, kOut, kTile, 1);
  const uint16_t one = 0x3c00;
  for (int64_t i = 0; i < kOut; ++i) {
    uint8_t* row = w.bytes.data() + i * w.row_bytes;
    __builtin_memcpy(row, &one, 2);
    for (int64_t k = 0; k < kTile; ++k) row[2 + k] = i < 16 ? 0x80 : 0x7f;
  }
  Backend backend(kernels, 1);
  const PackedLinear weight = packed(backend, w, {});
  for (const float x : {127.0f, -127.0f}) {
    for (const int64_t rows : {int64_t{1}, kRows}) {
      const std::vector<float> from(static_cast<size_t>(rows * kTile), x);
      std::vector<float> y(static_cast<size_t>(rows * kOut)), want(y.size());
      for (size_t i = 0; i < want.size(); ++i) {
        want[i] = x * (i % kOut < 16 ? -128.0f : 127.0f) * static_cast<float>(kTile);
      }
      backend.linear(weight.view(), from.data(), rows, {}, nullptr, 1.0f, y.data());
      checks.equal(y, want, "Q8_0 extremes of " + std::to_string(x));
    }
  }
}

// NaN and infinity show in their own row and in no other.
void check_not_finite(const Kernels& kernels, Checks& checks, Codec codec) {
  constexpr int64_t kWidth = 256, kOut = 20;
  Backend backend(kernels, 1);
  const PackedLinear weight = packed(backend, random_matrix(codec, kOut, kWidth, 1), {});
  for (const int64_t rows : {4, 5, 20, 50}) {
    for (const float bad : {__builtin_nanf(""), __builtin_inff()}) {
      std::vector<float> x = Random(2).values(rows * kWidth);
      std::vector<float> clean(static_cast<size_t>(rows * kOut)), spoilt(clean.size());
      backend.linear(weight.view(), x.data(), rows, {}, nullptr, 1.0f, clean.data());
      x[3 * kWidth + 33] = bad;
      backend.linear(weight.view(), x.data(), rows, {}, nullptr, 1.0f, spoilt.data());
      for (int64_t i = 0; i < rows * kOut; ++i) {
        const size_t at = static_cast<size_t>(i);
        if (i / kOut == 3) {
          checks.that(!std::isfinite(spoilt[at]), std::string("not finite, ") + facts(codec).name);
        } else {
          checks.that(spoilt[at] == clean[at], std::string("other rows, ") + facts(codec).name);
        }
      }
    }
  }
}

// More rows than go over weights together are as those that go alone, the last ones of each pass
// too.
void check_passes(const Kernels& kernels, Checks& checks, Codec codec) {
  Random random(5);
  Backend backend(kernels, 1);
  const PackedLinear weight = packed(backend, random_matrix(codec, kWide.out, kWide.in, 6), {});
  const std::vector<float> x = random.values(kRowsOfPasses * kWide.in, 2.0f);
  std::vector<float> y(static_cast<size_t>(kRowsOfPasses * kWide.out));
  backend.linear(weight.view(), x.data(), kRowsOfPasses, {}, nullptr, 1.0f, y.data());
  for (const int64_t row : {int64_t{0}, int64_t{97}, int64_t{98}, int64_t{99}, kRowsOfPasses - 1}) {
    std::vector<float> alone(static_cast<size_t>(kWide.out));
    backend.linear(weight.view(), x.data() + row * kWide.in, 1, {}, nullptr, 1.0f, alone.data());
    checks.equal(rows_of(y, kWide.out, row, row + 1), alone,
                 std::string("passes, ") + facts(codec).name + ", row " + std::to_string(row));
  }
}

// Products of many rows in both ways to make operands, whichever this processor takes.
void check_both_ways(Kernels kernels, Checks& checks) {
  for (int way = 0; way < 2; ++way) {
    kernels.unpacks_beside_dots = !kernels.unpacks_beside_dots;
    for (const Codec codec : {Codec::q4_0, Codec::q4_k}) check_passes(kernels, checks, codec);
  }
  kernels.unpacks_beside_dots = !kernels.unpacks_beside_dots;
  for (const Codec codec :
       {Codec::q8_0, Codec::q4_0, Codec::q4_1, Codec::q5_k, Codec::q4_k, Codec::iq4_xs,
        Codec::mxfp4, Codec::i4_128, Codec::u4_128, Codec::tq2_0, Codec::q1_0}) {
    check_shape(kernels, checks, codec, kBlocksOf256[1]);
  }
}

}  // namespace

void linear_suite(const Kernels& kernels, Checks& checks) {
  for (int i = 0; i < kCodecs; ++i) {
    const Codec codec = static_cast<Codec>(i);
    const int64_t block = facts(codec).stored_elements;
    if (!stands_for_others(codec)) {
      check_shape(kernels, checks, codec, kBlocksOf256[1]);
      continue;
    }
    for (const Shape& shape : kBlocksOf256) check_shape(kernels, checks, codec, shape);
    for (const Shape& shape : kShapes) {
      if (block <= kTile) check_shape(kernels, checks, codec, shape);
    }
    for (const Shape& shape : kTails) {
      if (block == 1) check_shape(kernels, checks, codec, shape);
    }
    check_norm(kernels, checks, codec);
    check_not_finite(kernels, checks, codec);
  }
  check_extremes(kernels, checks);
  check_both_ways(kernels, checks);
}

void books_suite(const Kernels& kernels, Checks& checks) {
  for (int i = 0; i < kCodecs; ++i) {
    const Codec codec = static_cast<Codec>(i);
    if (has_byte_book(codec)) check_shape(kernels, checks, codec, kBlocksOf256[1]);
  }
}

}  // namespace headrace::tests
