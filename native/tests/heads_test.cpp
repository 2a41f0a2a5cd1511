// Products of heads: equal to the product twin of each head's matrix and columns, bit for bit, with
// the columns that are kept and those beside the heads as they were.

#include <algorithm>
#include <string>

#include "backend.h"
#include "suites.h"
#include "twin.h"

namespace headrace::tests {
namespace {

constexpr int64_t kHeads = 3, kOut = 37, kKept = 5, kBeside = 7, kAll = 40;

void check_width(const Kernels& kernels, Checks& checks, Codec codec, int64_t in) {
  Random random(static_cast<uint64_t>(in));
  std::vector<StoredMatrix> heads;
  for (int64_t h = 0; h < kHeads; ++h) {
    heads.push_back(random_matrix(codec, kOut, in, random.bits()));
  }
  const int64_t from = kKept + in, to = kKept + kOut;
  const std::vector<float> x = random.values(kAll * kHeads * from, 2.0f);
  const std::vector<float> beside = random.values(kAll * kBeside);
  const int64_t width = kHeads * to + kBeside;
  std::vector<float> want(static_cast<size_t>(kAll * width));
  for (int64_t h = 0; h < kHeads; ++h) {
    std::vector<float> columns;
    for (int64_t row = 0; row < kAll; ++row) {
      const float* at = x.data() + (row * kHeads + h) * from;
      std::copy_n(at, kKept, want.data() + row * width + h * to);
      columns.insert(columns.end(), at + kKept, at + from);
    }
    const std::vector<float> y =
        product_twin(kernels, heads[static_cast<size_t>(h)], columns, kAll, nullptr, 1.0f, nullptr);
    for (int64_t row = 0; row < kAll; ++row) {
      std::copy_n(y.data() + row * kOut, kOut, want.data() + row * width + h * to + kKept);
    }
  }
  for (int64_t row = 0; row < kAll; ++row) {
    std::copy_n(beside.data() + row * kBeside, kBeside, want.data() + row * width + kHeads * to);
  }
  for (const int threads : {1, 3}) {
    Backend backend(kernels, threads);
    std::vector<std::vector<StoredRows>> stored;
    for (const StoredMatrix& w : heads) stored.push_back({{w.row(0), nullptr, kOut, w.row_bytes}});
    const ExpertMatrices weight(backend.pool(), codec, in, stored, {}, nullptr);
    for (const int64_t rows : {int64_t{1}, int64_t{16}, int64_t{17}, kAll}) {
      std::vector<float> y(static_cast<size_t>(rows * width));
      backend.head_linear({weight, x.data(), rows, kKept, beside.data(), kBeside, y.data()});
      checks.equal(y, {want.begin(), want.begin() + rows * width},
                   std::string("heads ") + facts(codec).name + " of " + std::to_string(in) +
                       ", rows " + std::to_string(rows) + ", threads " + std::to_string(threads));
    }
  }
}

}  // namespace

void heads_suite(const Kernels& kernels, Checks& checks) {
  for (int i = 0; i < kCodecs; ++i) {
    const Codec codec = static_cast<Codec>(i);
    if (!stands_for_others(codec)) continue;
    const int64_t block = facts(codec).stored_elements;
    // With whole tiles rows of floats are read where they lie.
    check_width(kernels, checks, codec, block > 32 ? 256 : 64);
    if (block == 1) check_width(kernels, checks, codec, 41);
  }
}

}  // namespace headrace::tests
