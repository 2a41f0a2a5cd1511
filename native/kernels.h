// What the kernels of one dispatch level are handed, and the table they are reached through.
//
// Everything here is plain data: levels are compiled with different instruction sets, so nothing
// inline may be shared between them through external linkage. Kernels run on one thread, allocate
// nothing, throw nothing and trust their arguments; backend.cpp splits the work, bindings/ checks
// them. docs/kernels.md defines the arithmetic.

#pragma once

#include <cstdint>

#include "codecs.h"
#include "kv_codecs.h"

// Before a loop of at most 16 turns: its turns are written out, so that what it indexes by them can
// lie in registers.
#define HEADRACE_UNROLL _Pragma("GCC unroll 16")

namespace headrace {

// Positions whose scores share one maximum in attention; spans start at multiples of it.
constexpr int64_t kSpan = 64;
// Heads, and values of a head, at most: products of them are far from where integers overflow.
constexpr int64_t kMostHeads = 1 << 16;
// Experts of a token, at most.
constexpr int64_t kMostChosen = 1 << 16;
// Columns of a row that the smallest piece of an activation's work takes.
constexpr int64_t kActivationColumns = 1024;

// Weights in panels of 16 outputs; the last panel and the last tile of k are padded with zeros.
struct PackedMatrix {
  Codec codec;
  int64_t out;
  int64_t in;
  int64_t tiles;        // of k, rounded up
  int64_t panel_bytes;  // from one panel to the next
  const uint8_t* panels;
  const float* bias;  // out, or null
};

// Rows of activations, rounded as the codec of the weights they meet demands.
struct Operand {
  float* values;   // f32[rows][stride], codecs that are not quantised (null where `half` is not)
  uint16_t* half;  // bf16[rows][stride], where the product reads that; else null
  int64_t stride;  // at least tiles * 32; zeros past the row's width
  // Quantised codecs; groups as the codec has them.
  int8_t* q;       // [rows][tiles][32]
  float* d;        // scale, [rows][tiles]
  int32_t* start;  // -zero * sum of q of the group, [rows][tiles][groups]: where integer sums begin
  // What mins are multiplied by, [rows][tiles][groups]: d * sum of q of the group, or, of kinds
  // that sum blocks, that sum alone; the other one is null.
  float* sums;
  int16_t* whole_sums;
};

// (x - mean) / sqrt(variance + eps) * weight + bias; without `centred`, mean is 0.
struct NormWeights {
  const float* weight;  // null: no norm
  const float* bias;    // or null
  float eps;
  bool centred;
};

struct PrepareArgs {
  const float* x;
  int64_t width;
  int64_t stride;  // of x, from one row to the next
  NormWeights norm;
  Codec codec;
  int64_t tiles;
  Operand to;
};

struct LinearArgs {
  PackedMatrix weight;
  Operand x;
  float* y;               // f32[rows][out]
  int64_t y_stride;       // from one row to the next, at least out
  const float* residual;  // f32[rows][out], or null
  float scale;
  bool unpacks_beside_dots = false;  // of Kernels
};

// y = residual + the norms of `groups` parts of each row, side by side; y may be x.
struct NormArgs {
  const float* x;
  float* y;
  const float* residual;  // or null
  int64_t stride;         // from one row to the next, of all three
  int64_t width;          // of a group
  int64_t groups;
  NormWeights norm;
};

struct EmbedArgs {
  const uint8_t* table;
  int64_t row_bytes;
  int64_t width;
  Codec codec;
  const int32_t* order;  // stored row of each row, or null
  const int32_t* ids;
  float* y;
  float scale;
  const float* residual;  // like y, or null
};

struct RopeArgs {
  float* qkv;
  int64_t row_width;
  int64_t num_q_heads;
  int64_t num_k_heads;
  int64_t head_dim;
  int64_t half;  // rotary_dim / 2
  const float* cos;
  const float* sin;
  const int32_t* positions;
  const float* q_weight;  // null: no norm
  const float* k_weight;
  float q_eps;
  float k_eps;
};

enum class Activation : int32_t {
  silu = 0, gelu = 1, gelu_tanh = 2, softcap = 3, relu = 4, swiglu_clamped = 5,
  relu2 = 6
};

// Work is counted in pieces: each row is cut into parts of kActivationColumns.
struct ActivationArgs {
  const float* x;  // f32[rows][width], or with `gated` [rows][2 * width], gate first
  float* y;
  int64_t width;
  Activation kind;
  bool gated;
  // Of softcap; with `gated` the most of a gate's activation and, either way, of what it meets, or
  // 0: none. swiglu_clamped has its own.
  float cap;
};

// y = (the sum over `chosen` parts of a token, each times its weight, in their order) * scale +
// residual. Work is counted in pieces of rows as in ActivationArgs.
struct CombineArgs {
  const float* parts;      // f32[..][width]
  const int32_t* part_of;  // [tokens][chosen], rows of parts
  const float* weights;    // [tokens][chosen], or null: 1
  int64_t chosen;          // at least 1
  int64_t width;
  const float* residual;  // like y, or null
  float scale;
  float* y;  // f32[tokens][width]
};

// Storage of one layer. Tokens lie in groups of 16; a group of one head is, by codec,
//   K f32 [head_dim][16 tokens]              bf16 [head_dim / 2][16 tokens][2]
//   V f32 [panels][16 tokens][16 of d]       bf16 [panels][8][16 of d][2 tokens]
// in which V's panels are of value_dim. fp8 as bf16 and int8 as f32, in bytes; int4 in half of
// that, as kv_scaled.h has it. Scales, f32 of each token, lie before the values. A block is
// page_bytes long, and the groups of a layer lie in it as [head][group of the block], those of K
// and then those of V. Latent values are a part of K, from dimension head_dim - value_dim on, and
// there is no V.
struct KvLayer {
  uint8_t* k;  // in the first block
  uint8_t* v;  // null where values are latent
  KvCodec k_codec;
  KvCodec v_codec;  // of latent values that of K
  bool k_rotated;   // stored turned (rotate.h)
  bool v_rotated;
  bool latent;
  int64_t page_bytes;
  int64_t heads;
  int64_t head_dim;
  int64_t value_dim;
  int64_t v_panels;  // value_dim / 16, rounded up
  int64_t block_size;
  int64_t k_group_bytes;
  int64_t v_group_bytes;
  // The same in bf16, turned where K and V are, of the span that a token is in; null where the
  // layer has none. It lies in blocks of a table of its own.
  uint8_t* near_k;
  uint8_t* near_v;
  int64_t near_k_group_bytes;
  int64_t near_v_group_bytes;
  float k_scale;  // of what fp8 stores; 1 for other kinds
  float v_scale;  // of latent values that of K
};

// A request, and between which positions (multiples of kSpan) it has K and V in the same blocks as
// the one before it; `shared` is 0 where it has none.
struct Neighbour {
  int64_t request;
  int64_t from;
  int64_t shared;
};

struct BatchView {
  const int32_t* positions;
  const int32_t* query_start;
  const int32_t* block_tables;
  int64_t table_width;
  int64_t requests;
  int64_t tokens;
  const int32_t* near_tables = nullptr;  // of layers that have such; like block_tables
  int64_t near_width = 0;
  const Neighbour* neighbours = nullptr;  // of neighbours.h; none where no two share a span
  int64_t num_neighbours = 0;
};

// The near part of K and V as a layer in bf16, and the batch with its tables.
static inline KvLayer near_layer(const KvLayer& kv) {
  KvLayer near = kv;
  near.k = kv.near_k;
  near.v = kv.near_v;
  near.k_codec = near.v_codec = KvCodec::bf16;
  near.k_group_bytes = kv.near_k_group_bytes;
  near.v_group_bytes = kv.near_v_group_bytes;
  return near;
}
static inline BatchView near_batch(const BatchView& batch) {
  BatchView near = batch;
  near.block_tables = batch.near_tables;
  near.table_width = batch.near_width;
  return near;
}

struct KvWriteArgs {
  KvLayer kv;
  BatchView batch;
  const int32_t* request_of;  // of each token
  const float* qkv;
  int64_t row_width;
  int64_t k_column;
  int64_t v_column;
};

// The positions a token sees: an interval that ends with its own and, of it, those in its mask.
struct Visibility {
  int64_t window;                   // the last so many, its own included; at least 1
  int64_t chunk = 0;                // those from the last multiple of this on; 0: all of them
  const uint64_t* masks = nullptr;  // [tokens][mask_spans]: bit b of span s is position 64 s + b;
                                    // null: the whole interval
  int64_t mask_spans = 0;
};

// The beginning of the interval that a token at `position` sees. It never falls as positions rise.
static inline int64_t first_seen(const Visibility& sees, int64_t position) {
  const int64_t in_window = position + 1 - sees.window;
  const int64_t in_chunk = sees.chunk == 0 ? 0 : position - position % sees.chunk;
  return in_window > in_chunk ? in_window : in_chunk;  // which is at least 0
}

struct AttentionArgs {
  KvLayer kv;
  BatchView batch;
  const float* qkv;
  int64_t row_width;
  int64_t group;  // q heads of one kv head
  float scale;
  Visibility sees;
  float softcap;        // 0: scores stay as they are
  const float* sinks;   // score of each q head that no value belongs to, or null
  const float* slopes;  // of each q head: what a score loses for each position back, or null
  float* y;  // f32[tokens][heads * group * value_dim]
};

// Tokens [begin, end) of one request. With the run before them they share K and V up to position
// `shared`, a multiple of kSpan that lies before their own spans.
struct AttentionRun {
  int64_t request;
  int64_t begin;
  int64_t end;
  int64_t shared;
};

// Positions of a part of a long context; parts begin at multiples of it, which is one of kSpan. K
// and V of one head of 128 are half a megabyte, some 50 us of a core: far more than handing a part
// to a thread and joining its sums takes. Joining changes bits, so that all levels and shapes have
// the same.
constexpr int64_t kPart = 1024;

// Runs of different requests, seen by q heads [q_begin, q_end) of the group of each of some kv
// heads. Where threads have a part each of what a run sees, an item is positions [begin, end) of
// one part, and what its rows sum up goes to `sums`, [rows][attention_sums_width]; elsewhere it is
// all positions. Rows are those of one kv head after the other, of each token by token, and of a
// token its q heads.
struct AttentionItem {
  const AttentionRun* runs;
  int64_t count;  // at least 1
  int64_t from;   // where what they share begins
  int64_t head;   // the first kv head
  int64_t heads;  // kv heads, at least 1
  int64_t q_begin;
  int64_t q_end;
  int64_t begin = 0;
  int64_t end = int64_t{1} << 62;
  float* sums = nullptr;
  int64_t cost = 0;  // products that it takes, by which items are dealt out and cut
};

// Panels of one call: [begin, end), and up to `reach` those that the same thread most likely takes
// next, whose memory may be prefetched.
struct PanelRange {
  int64_t begin, end, reach;
};

// One way to multiply: what it reads and the kernel.
struct Product {
  bool half_operand;  // activations as bf16 (BF16 weights only)
  int64_t scratch_bytes;
  void (*linear)(const LinearArgs&, const PanelRange& panels, int64_t row_begin, int64_t row_end,
                 void* scratch);
};

// Rows from which on weights may be unpacked once for all of them, in registers for fewer; a pass
// over rows that threads share has as many.
constexpr int64_t kManyRows = 17;

// Scores of a row whose largest is kept, and whose weights are summed together.
constexpr int64_t kRowBlock = 128;
// Weights are summed as whole numbers of 2^-42, to which each is rounded: exact in any order, and
// of so many weights up to 1 still within 63 bits.
constexpr double kFixedOne = 0x1p42;
constexpr int64_t kMostScores = (int64_t{1} << 21) - 1;

// The weight of a score x above `bound` is exp((x - most) / temperature), or 0 where that is below
// `least`; of any other it is 0.
struct Weighing {
  float most;
  float temperature;
  float least;
  float bound;
};

// What multiplies are counted by. bf16_pairs: those of attention, where products of bf16 have other
// instructions (tiles).
enum class Operands : int32_t { f32 = 0, bf16 = 1, int8 = 2, bf16_pairs = 3 };
constexpr int kOperands = 4;
constexpr int64_t kProbeBytes = 512;

struct Kernels {
  const char* level;
  void (*prepare)(const PrepareArgs&, int64_t row_begin, int64_t row_end);
  const Product& (*product)(Codec codec, bool many_rows);
  // Rows of x from which on the product for many is the faster one; its bits are those of few.
  int64_t (*many_from)(Codec codec);
  // Whether bits are shifted and masked beside dot products, not in their place: operands of kinds
  // of one plane of at most four bits, and one scale a tile, are then made in registers for any
  // number of rows.
  bool unpacks_beside_dots;
  void (*norm)(const NormArgs&, int64_t row_begin, int64_t row_end);
  void (*embed)(const EmbedArgs&, int64_t row_begin, int64_t row_end);
  void (*rope)(const RopeArgs&, int64_t row_begin, int64_t row_end);
  void (*activate)(const ActivationArgs&, int64_t piece_begin, int64_t piece_end);
  void (*combine)(const CombineArgs&, int64_t piece_begin, int64_t piece_end);
  void (*kv_write)(const KvWriteArgs&, int64_t token_begin, int64_t token_end);
  // `scratch` holds attention_scratch_bytes(rows, kv), rows = tokens of the item's runs * its q
  // heads. after: the item that the same thread most likely takes next, whose memory may be
  // prefetched; or null.
  void (*attention)(const AttentionArgs&, const AttentionItem&, const AttentionItem* after,
                    void* scratch);
  int64_t (*attention_scratch_bytes)(int64_t rows, const KvLayer& kv);
  // Floats of a row's sums over a part; and what the sums of all parts of an item come to, whose
  // `begin` is that of the first part, [parts][rows][attention_sums_width].
  int64_t (*attention_sums_width)(const KvLayer& kv);
  void (*join_parts)(const AttentionArgs&, const AttentionItem&, float* sums);
  // Of a row of scores, a block being kRowBlock of them. `highest_of`: of each block, or null;
  // where given, blocks without a score above the bound are passed over. Largest of x[0, n) and, in
  // highest_of, of each block; NaN when any is NaN, and the rest unknown.
  float (*highest)(const float* x, int64_t n, float* highest_of);
  // Sum of the weights of each block, in fixed point.
  void (*weigh)(const Weighing&, const float* x, int64_t n, const float* highest_of, int64_t* sums);
  // How many are above `bound`.
  int64_t (*count_above)(const float* x, int64_t n, const float* highest_of, float bound);
  // Those above `bound` and at most `most`, in their order; returns how many. `to` may be x and has
  // room for 16 more.
  int64_t (*take)(const float* x, int64_t n, const float* highest_of, float bound, float most,
                  float* to);
  // y = x where the mask has the bit of the id, else -inf.
  void (*mask)(const float* x, int64_t n, const uint32_t* mask, float* y);
  // y = exp((x - shift) / divisor), all f32.
  void (*exp_shifted)(const float* x, int64_t n, float shift, float divisor, float* y);
  // What the machine can do: both return a value only so that the work is not left out.
  float (*probe_read)(const uint8_t* p, int64_t bytes);  // a multiple of kProbeBytes
  float (*probe_multiply)(Operands kind, int64_t rounds);
  // Operations of a round; 0 where the level does not multiply that kind.
  int64_t probe_ops[kOperands];
};

}  // namespace headrace
