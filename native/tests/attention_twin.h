// Attention in the order of docs/kernels.md, one number at a time, over what a cache would hold.

#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels.h"
#include "twin.h"

namespace headrace::tests {

// Tokens that follow each other.
struct Stretch {
  int64_t begin, end;
};

// A model's attention in one layer, and how many tokens of one request there are.
struct AttentionCase {
  int64_t kv_heads, group, head_dim, block_size, tokens;
  KvKind k_kind, v_kind;
  int64_t window = 1 << 30;
  float softcap = 0;
  int64_t chunk = 0;
  bool sinks = false, slopes = false, masks = false;
  int64_t value_dim = 0;  // 0: that of keys
  bool latent = false;    // values are the last dimensions of the keys
  bool near = false;      // the span that a token is in is read in bf16
  float k_scale = 1, v_scale = 1;
  float sink = -1;  // of the first head

  int64_t values() const { return value_dim == 0 ? head_dim : value_dim; }
  KvKind value_kind() const { return latent ? k_kind : v_kind; }
  // The tokens that attend, in order: all, and of a context of several parts those at its start,
  // its end and wherever a part or a chunk begins. The others are as these, and each costs a
  // thousand.
  std::vector<Stretch> stretches() const {
    constexpr int64_t kBefore = kSpan / 2, kAfter = kSpan + kTile;
    if (tokens <= kPart) return {{0, tokens}};
    std::vector<Stretch> all = {{0, kAfter}};
    for (int64_t at = 1; at <= tokens; ++at) {
      if (at != tokens && at % kPart != 0 && (chunk == 0 || at % chunk != 0)) continue;
      all.push_back({std::max(all.back().end, at - kBefore), std::min(tokens, at + kAfter)});
    }
    return all;
  }
  bool rotates(KvKind kind) const { return kind.rotated && !latent; }
  int64_t width() const {
    return kv_heads * ((group + 1) * head_dim + (latent ? 0 : values()));
  }
  // Where the values of a kv head begin in a row.
  int64_t value_column(int64_t kv_head) const {
    const int64_t keys = kv_heads * group * head_dim;
    return latent ? keys + (kv_head + 1) * head_dim - values()
                  : keys + kv_heads * head_dim + kv_head * values();
  }
  std::string name() const {
    return "attention of " + std::to_string(tokens) + " tokens, " + std::to_string(kv_heads) +
           " x " + std::to_string(group) + " heads of " + std::to_string(head_dim) + ", K " +
           k_kind.name + ", V " + value_kind().name + " of " +
           std::to_string(values()) + (latent ? " within K" : "") +
           ", window " + std::to_string(window) + ", softcap " + std::to_string(softcap) +
           ", chunk " + std::to_string(chunk) +
           (sinks ? ", sinks from " + std::to_string(sink) : "") +
           (slopes ? ", slopes" : "") + (masks ? ", masks" : "") + (near ? ", near" : "");
  }
  float sink_of(int64_t head) const { return 0.75f * static_cast<float>(head) + sink; }
  float slope_of(int64_t head) const { return 1.0f / static_cast<float>(2 << head % 8); }
  // Two positions of three, and its own.
  bool shows(int64_t token, int64_t position) const {
    return !masks || token == position || (token + position) % 3 != 0;
  }
};

// What tokens that attend give, [tokens][heads][values]; others have zeros. A row of `qkv` has
// heads of q, of K, of V.
std::vector<float> attention_twin(const Kernels& kernels, const AttentionCase& c,
                                  const std::vector<float>& qkv, float scale);

}  // namespace headrace::tests
