// The kinds that K and V are stored in, and the facts about each.
//
// A kind is a line of kKvKinds: a codec, and whether what it stores is turned by a Hadamard matrix
// first (rotate.h). A codec is a line of kKvCodecFacts (and its name in the enum) and its reader in
// kv_readers.h or kv_scaled.h; storage, kernels and what Python may name follow from these. Plain
// constants with internal linkage, as in codecs.h.

#pragma once

#include <cstdint>

#include "codecs.h"

namespace headrace {

enum class KvCodec : int32_t { f32, bf16, fp8, int8, int4 };

struct KvCodecFacts {
  int64_t value_bits;
  int64_t scale_bytes;  // of a token of one head, beside its values
};

constexpr KvCodecFacts kKvCodecFacts[] = {
    {32, 0},  // f32
    {16, 0},  // bf16
    {8, 0},   // fp8
    {8, 4},   // int8
    {4, 4},   // int4
};
constexpr int kKvCodecs = sizeof kKvCodecFacts / sizeof kKvCodecFacts[0];

static constexpr const KvCodecFacts& facts(KvCodec codec) {
  return kKvCodecFacts[static_cast<int>(codec)];
}

struct KvKind {
  const char* name;  // as in Python
  KvCodec codec;
  bool rotated;  // but for latents, whose values are a part of the keys
};

constexpr KvKind kKvKinds[] = {
    {"f32", KvCodec::f32, false},  {"bf16", KvCodec::bf16, false}, {"fp8", KvCodec::fp8, false},
    {"int8", KvCodec::int8, false}, {"q8_0", KvCodec::int8, true},  {"q4_0", KvCodec::int4, true},
};

// Whether the span that a token is in may be kept in bf16 beside what is stored for good.
static constexpr bool may_be_near(KvKind kind) { return facts(kind.codec).value_bits <= 8; }

// Scales of K and V of a layer: with these no product with a code is denormal or infinite.
constexpr float kLeastKvScale = 0x1p-60f, kMostKvScale = 0x1p60f;

// Heads that are rotated are at most so wide: the turned one lies on the stack of a thread.
constexpr int64_t kMostRotated = 4096;

// A group of 16 tokens of one head: its scales, and then `width` values of each token.
static constexpr int64_t kv_scales_bytes(KvCodec codec) {
  return kLanes * facts(codec).scale_bytes;
}
static constexpr int64_t kv_group_bytes(KvCodec codec, int64_t width) {
  return kv_scales_bytes(codec) + kLanes * width * facts(codec).value_bits / 8;
}

}  // namespace headrace
