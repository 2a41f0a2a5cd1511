// Products of heads with a matrix of their own, where they lie in the rows: every head reads and
// writes its columns of each row, and nothing is put in order before or after.
//
// Work is cut over all heads at once, and each head's panels and rows where the heads are too few
// for the threads.

#include <algorithm>
#include <cstring>

#include "backend.h"
#include "product_cut.h"
#include "session.h"

namespace headrace {
namespace {

// Memory for the operands of one pass over the rows, about: more rows at a time read the weights
// less often.
constexpr int64_t kPassBytes = 64 << 20;

// The operand from row `first` on.
Operand from_row(const Operand& all, const PackedMatrix& weight, int64_t first) {
  Operand to = all;
  if (to.values != nullptr) to.values += first * to.stride;
  if (to.half != nullptr) to.half += first * to.stride;
  if (to.q != nullptr) {
    const int64_t groups = facts(weight.codec).groups;
    to.q += first * weight.tiles * kTile;
    to.d += first * weight.tiles;
    to.start += first * weight.tiles * groups;
    if (to.whole_sums != nullptr) {
      to.whole_sums += first * weight.tiles * groups;
    } else {
      to.sums += first * weight.tiles * groups;
    }
  }
  return to;
}

void copy(float* to, const float* from, int64_t count) {
  std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}

}  // namespace

// Rows [begin, end).
void Backend::multiply_heads(const HeadsArgs& a, int64_t begin, int64_t end) {
  const PackedMatrix matrix = a.weight.shape();
  const int64_t heads = a.weight.count(), rows = end - begin;
  const int64_t from = a.kept + matrix.in, to = a.kept + matrix.out;
  const int64_t x_stride = heads * from, y_stride = heads * to + a.beside_width;
  const float* x = a.x + begin * x_stride + a.kept;
  float* y = a.y + begin * y_stride + a.kept;
  const bool many_rows = rows >= kernels_.many_from(matrix.codec);
  const Product& product = kernels_.product(matrix.codec, many_rows);
  reserve_scratch(product.scratch_bytes);

  const bool as_they_are = reads_rows_as_they_are(matrix);
  Operand all{};
  if (!as_they_are) {
    all = lay_out(operand_, matrix, heads * rows, product.half_operand);
    // A head's rows, then those of the next.
    const int64_t every = heads * rows;
    pool_.for_ranges(every, pieces(every * matrix.in * 4), [&](int64_t first, int64_t last, int) {
      while (first < last) {
        const int64_t head = first / rows, stop = std::min(last, (head + 1) * rows);
        kernels_.prepare({x + head * from, matrix.in, x_stride, {}, matrix.codec, matrix.tiles,
                          from_row(all, matrix, head * rows)},
                         first - head * rows, stop - head * rows);
        first = stop;
      }
    });
  }

  const int64_t wanted = (pieces(heads * work_of(matrix, rows)) + heads - 1) / heads;
  const ProductCut cut(matrix.out, rows, wanted);
  const int64_t of_head = cut.count();
  pool_.for_runs(heads * of_head, [&](int64_t item, int64_t end, int thread) {
    const int64_t head = item / of_head, piece = item % of_head;
    Operand operand = as_they_are ? operand_of(matrix, x + head * from)
                                  : from_row(all, matrix, head * rows);
    if (as_they_are) operand.stride = x_stride;
    const LinearArgs args{a.weight.view(head), operand, y + head * to, y_stride, nullptr, 1.0f,
                          kernels_.unpacks_beside_dots};
    product.linear(args, cut.panels(piece, end - head * of_head), cut.row_begin(piece),
                   cut.row_end(piece), scratch(thread));
  });
}

void Backend::head_linear(const HeadsArgs& a) {
  const Session session(pool_);
  const PackedMatrix matrix = a.weight.shape();
  const int64_t heads = a.weight.count();
  const int64_t from = a.kept + matrix.in, to = a.kept + matrix.out;
  const int64_t y_stride = heads * to + a.beside_width;
  const int64_t copied = heads * a.kept + a.beside_width;
  if (copied > 0) {
    pool_.for_ranges(a.rows, pieces(a.rows * copied * 8), [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        const float* x = a.x + row * heads * from;
        float* y = a.y + row * y_stride;
        for (int64_t head = 0; a.kept > 0 && head < heads; ++head) {
          copy(y + head * to, x + head * from, a.kept);
        }
        if (a.beside_width > 0) {
          copy(y + heads * to, a.beside + row * a.beside_width, a.beside_width);
        }
      }
    });
  }
  if (a.rows == 0 || matrix.out == 0) return;
  const int64_t of_row = heads * matrix.tiles * kTile * 4;
  const int64_t step = std::max<int64_t>(1, kPassBytes / std::max<int64_t>(1, of_row));
  const int64_t passes = (a.rows + step - 1) / step;
  for (int64_t pass = 0; pass < passes; ++pass) {
    multiply_heads(a, a.rows * pass / passes, a.rows * (pass + 1) / passes);
  }
}

}  // namespace headrace
