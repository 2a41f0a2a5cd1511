// Readers of K and V: all that the kernels of a level know about a codec of kv_codecs.h.
//
// A reader has
//   kCodec               its line in the table
//   Keys, Values         how pairs are read, as in chains.h: of K two dimensions of 16 tokens, of V
//                        two tokens of 16 dimensions
//   T                    what values lie in: one of them, or two of four bits
//   key_at, value_at     where a value lies: of K in its group, of V in a panel of 16 dimensions
//   write_key, _value    how one head of a token is stored, in lane `lane` of a group
//   rounded              what q and p become before they meet what is stored
//   scored, weighed      what the scales of a group's tokens do to its sums q.K, and to p before V;
//                        the scale of the layer is for kinds without those
// in which `group` is where a group of 16 tokens begins. A token is stored from its own row alone
// and shares no byte with another, so that threads may write neighbours.

#pragma once

#include "kernels.h"
#include "kv_floats.h"
#include "kv_scaled.h"

namespace {

// The values of a group, behind its scales.
template <class Reader>
HEADRACE_INLINE const typename Reader::T* values_of(const uint8_t* group) {
  return reinterpret_cast<const typename Reader::T*>(group + kv_scales_bytes(Reader::kCodec));
}

// Bytes of a pair.
template <class Pairs>
constexpr int64_t kPair = Pairs::kPair * static_cast<int64_t>(sizeof(typename Pairs::T));

// Calls fn<the reader of `codec`>().
template <int kFirst = 0, class Fn>
HEADRACE_INLINE void with_reader(KvCodec codec, const Fn& fn) {
  using Reader = KvReader<static_cast<KvCodec>(kFirst)>;
  constexpr int64_t kPanelBits = kLanes * kLanes * facts(Reader::kCodec).value_bits;
  static_assert(kPair<typename Reader::Keys> * kLanes * 4 == kPanelBits);
  static_assert(kPair<typename Reader::Values> * kLanes * 4 == kPanelBits);
  if constexpr (kFirst + 1 < headrace::kKvCodecs) {
    if (static_cast<int>(codec) != kFirst) {
      with_reader<kFirst + 1>(codec, fn);
      return;
    }
  }
  fn.template operator()<Reader>();
}

}  // namespace
