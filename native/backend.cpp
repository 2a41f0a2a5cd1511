#include "backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "levels.h"
#include "product_cut.h"
#include "session.h"

namespace headrace {
namespace {

// A core moves this much through its caches in about the microsecond it takes to hand work over.
constexpr int64_t kPieceBytes = 32 << 10;
// Pieces per thread: enough that a thread that loses its CPU for a while delays the others little.
constexpr int64_t kPiecesPerThread = 8;

}  // namespace

Backend::Backend(const std::string& level, int threads)
    : Backend(select_level(level), threads) {}

Backend::Backend(const Kernels& kernels, int threads)
    : kernels_(kernels),
      pool_(threads),
      scratch_(static_cast<size_t>(threads)),
      sample_scratch_(static_cast<size_t>(threads)),
      route_scratch_(static_cast<size_t>(threads)) {}

void Backend::reserve_scratch(int64_t bytes) {
  for (Buffer& buffer : scratch_) buffer.at_least(bytes);
}

int64_t Backend::pieces(int64_t bytes) const {
  if (bytes < 2 * kPieceBytes) return 1;
  return std::min(bytes / kPieceBytes, pool_.size() * kPiecesPerThread);
}

// x as the kernels of the weight's codec read it; x itself where nothing has to be done.
Operand Backend::operand(const PackedMatrix& weight, const float* x, int64_t rows,
                         const NormWeights& norm, bool half) {
  if (norm.weight == nullptr && reads_rows_as_they_are(weight)) return operand_of(weight, x);
  const Operand to = lay_out(operand_, weight, rows, half);
  const PrepareArgs args{x, weight.in, weight.in, norm, weight.codec, weight.tiles, to};
  pool_.for_ranges(rows, pieces(rows * weight.in * 4), [&](int64_t begin, int64_t end, int) {
    kernels_.prepare(args, begin, end);
  });
  return to;
}

void Backend::linear(const PackedMatrix& weight, const float* x, int64_t rows,
                     const NormWeights& norm, const float* residual, float scale, float* y) {
  const Session session(pool_);
  if (rows == 0 || weight.out == 0) return;
  const bool many_rows = rows >= kernels_.many_from(weight.codec);
  const Product& product = kernels_.product(weight.codec, many_rows);
  reserve_scratch(product.scratch_bytes);
  const LinearArgs args{weight, operand(weight, x, rows, norm, product.half_operand), y,
                        weight.out, residual, scale, kernels_.unpacks_beside_dots};
  const ProductCut cut(weight.out, rows, pieces(work_of(weight, rows)));
  pool_.for_runs(cut.count(), [&](int64_t piece, int64_t end, int thread) {
    product.linear(args, cut.panels(piece, end), cut.row_begin(piece), cut.row_end(piece),
                   scratch(thread));
  });
}

void Backend::norm(const NormArgs& args, int64_t rows) {
  const Session session(pool_);
  const int64_t bytes = rows * args.width * args.groups * 8;
  pool_.for_ranges(rows, pieces(bytes), [&](int64_t begin, int64_t end, int) {
    kernels_.norm(args, begin, end);
  });
}

void Backend::embed(const EmbedArgs& args, int64_t rows) {
  const Session session(pool_);
  pool_.for_ranges(rows, pieces(rows * args.width * 8), [&](int64_t begin, int64_t end, int) {
    kernels_.embed(args, begin, end);
  });
}

void Backend::rope(const RopeArgs& args, int64_t rows) {
  const Session session(pool_);
  pool_.for_ranges(rows, pieces(rows * args.row_width * 8), [&](int64_t begin, int64_t end, int) {
    kernels_.rope(args, begin, end);
  });
}

void Backend::activate(const ActivationArgs& args, int64_t rows) {
  const Session session(pool_);
  const int64_t per_row = (args.width + kActivationColumns - 1) / kActivationColumns;
  const int64_t bytes = rows * args.width * 16;
  pool_.for_ranges(rows * per_row, pieces(bytes), [&](int64_t begin, int64_t end, int) {
    kernels_.activate(args, begin, end);
  });
}

void Backend::take_rows(const float* x, int64_t width, const int32_t* rows, int64_t count,
                        float* y) {
  const Session session(pool_);
  pool_.for_ranges(count, pieces(count * width * 8), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(y + i * width, x + rows[i] * width, static_cast<size_t>(width) * sizeof(float));
    }
  });
}

void Backend::place(const float* x, int64_t x_stride, int64_t width, int64_t rows, float* y,
                    int64_t y_stride) {
  const Session session(pool_);
  pool_.for_ranges(rows, pieces(rows * width * 8), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(y + i * y_stride, x + i * x_stride, static_cast<size_t>(width) * sizeof(float));
    }
  });
}

void Backend::add(const float* x, const float* y, int64_t count, float* sum) {
  const Session session(pool_);
  pool_.for_ranges(count, pieces(count * 12), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) sum[i] = x[i] + y[i];
  });
}

void Backend::spread(const float* x, int64_t width, int64_t rows, const int64_t* columns, float* y,
                     int64_t stride) {
  const Session session(pool_);
  const int64_t bytes = rows * (width * 16 + stride * 4);
  pool_.for_ranges(rows, pieces(bytes), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = y + i * stride;
      std::fill(row, row + stride, -std::numeric_limits<float>::infinity());
      for (int64_t c = 0; c < width; ++c) row[columns[c]] = x[i * width + c];
    }
  });
}

void Backend::scale_rows(float* x, int64_t stride, int64_t columns, const float* factors,
                         int64_t rows) {
  const Session session(pool_);
  pool_.for_ranges(rows, pieces(rows * columns * 8), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      float* values = x + row * stride;
      const float factor = factors[row];
      for (int64_t i = 0; i < columns; ++i) values[i] *= factor;
    }
  });
}

void Backend::gate_heads(float* x, int64_t heads, int64_t width, const float* gates, int64_t rows) {
  const Session session(pool_);
  pool_.for_ranges(rows, pieces(rows * heads * width * 8), [&](int64_t begin, int64_t end, int) {
    std::vector<float> powers(static_cast<size_t>(heads));
    for (int64_t row = begin; row < end; ++row) {
      kernels_.exp_shifted(gates + row * heads, heads, 0.0f, -1.0f, powers.data());
      for (int64_t h = 0; h < heads; ++h) {
        const float share = 1.0f / (1.0f + powers[static_cast<size_t>(h)]);
        float* head = x + (row * heads + h) * width;
        for (int64_t i = 0; i < width; ++i) head[i] *= share;
      }
    }
  });
}

void Backend::kv_write(const KvWriteArgs& args) {
  const Session session(pool_);
  // Scattered stores: about four times the cost of as many bytes in a row.
  const int64_t values = args.kv.head_dim + (args.kv.latent ? 0 : args.kv.value_dim);
  const int64_t bytes = args.batch.tokens * args.kv.heads * values * 8;
  pool_.for_ranges(args.batch.tokens, pieces(bytes), [&](int64_t begin, int64_t end, int) {
    kernels_.kv_write(args, begin, end);
  });
}

void Backend::route(const Routing& routing, const float* logits, const float* bias, int64_t rows,
                    int32_t* experts, float* weights) {
  const Session session(pool_);
  for (RouteScratch& scratch : route_scratch_) scratch.reserve(routing);
  // A logit takes about as long as 128 bytes that go through the caches.
  const int64_t count = pieces(rows * routing.experts * 128);
  pool_.for_ranges(rows, count, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t row = begin; row < end; ++row) {
      route_row(routing, logits + row * routing.experts, bias,
                route_scratch_[static_cast<size_t>(thread)], experts + row * routing.chosen,
                weights + row * routing.chosen);
    }
  });
}

int32_t Backend::first_bad(const std::vector<int32_t>& status, int64_t* row) const {
  const auto bad = std::find_if(status.begin(), status.end(), [](int32_t s) { return s < 0; });
  if (bad == status.end()) return 0;
  *row = bad - status.begin();
  return *bad;
}

int32_t Backend::sample(const float* logits, int64_t stride, int64_t n,
                        const std::vector<SampleRow>& rows, int32_t* ids, int64_t* row) {
  const Session session(pool_);
  const bool scored = std::any_of(rows.begin(), rows.end(), [](const SampleRow& row) {
    return row.chain.count > 0 || row.mask != nullptr;
  });
  for (SampleScratch& scratch : sample_scratch_) scratch.reserve(n, 0, scored);
  pool_.for_each(static_cast<int64_t>(rows.size()), [&](int64_t i, int thread) {
    ids[i] = sample_row(kernels_, logits + i * stride, n, rows[static_cast<size_t>(i)],
                        sample_scratch_[static_cast<size_t>(thread)]);
  });
  return first_bad({ids, ids + rows.size()}, row);
}

int32_t Backend::top_logprobs(const float* logits, int64_t stride, int64_t n, int64_t rows,
                              const int32_t* chosen, int64_t k, float* logprobs, int32_t* ranks,
                              int32_t* ids, float* values, int64_t* row) {
  const Session session(pool_);
  for (SampleScratch& scratch : sample_scratch_) scratch.reserve(n, k, false);
  std::vector<int32_t> status(static_cast<size_t>(rows));
  pool_.for_each(rows, [&](int64_t i, int thread) {
    status[static_cast<size_t>(i)] =
        top_logprobs_row(kernels_, logits + i * stride, n, chosen[i], k, logprobs + i, ranks + i,
                         ids + i * k, values + i * k, sample_scratch_[static_cast<size_t>(thread)]);
  });
  return first_bad(status, row);
}

int Backend::flushing_threads() {
  const Session session(pool_);
  // Each thread takes one item and waits for the others, so that no thread takes two.
  std::atomic<int> arrived{0}, flushing{0};
  const int threads = pool_.size();
  pool_.for_each(threads, [&](int64_t, int) {
    arrived.fetch_add(1);
    while (arrived.load() < threads) std::this_thread::yield();
    volatile float denormal = 1e-40f, huge = 1e30f;
    volatile float product = denormal * huge;
    volatile float tiny = 1e-30f;
    volatile float flushed = tiny * 1e-10f;
    if (product == 0.0f && flushed == 0.0f) flushing.fetch_add(1);
  });
  return flushing.load();
}

}  // namespace headrace
