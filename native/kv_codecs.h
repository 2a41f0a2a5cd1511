// The kinds that K and V are stored in, and the facts about each.
//
// A kind is a line here (and its name in the enum) and its reader in kv_readers.h; storage, kernels
// and what Python may ask for follow from these. Plain constants with internal linkage, as in
// codecs.h.

#pragma once

#include <cstdint>

#include "codecs.h"

namespace headrace {

enum class KvCodec : int32_t { f32, bf16 };

struct KvCodecFacts {
  const char* name;  // as in Python
  int64_t value_bytes;
  int64_t scale_bytes;  // of a token of one head, beside its values
};

constexpr KvCodecFacts kKvCodecFacts[] = {
    {"f32", 4, 0},
    {"bf16", 2, 0},
};
constexpr int kKvCodecs = sizeof kKvCodecFacts / sizeof kKvCodecFacts[0];

static constexpr const KvCodecFacts& facts(KvCodec codec) {
  return kKvCodecFacts[static_cast<int>(codec)];
}

// A group of 16 tokens of one head: its scales, and then `width` values of each token.
static constexpr int64_t kv_scales_bytes(KvCodec codec) {
  return kLanes * facts(codec).scale_bytes;
}
static constexpr int64_t kv_group_bytes(KvCodec codec, int64_t width) {
  return kv_scales_bytes(codec) + kLanes * width * facts(codec).value_bytes;
}

}  // namespace headrace
