// The KV cache, a step's batch, and what reads and writes both: rotation and attention.

#include "bindings.h"

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "arguments.h"
#include "batch.h"

namespace headrace {
namespace {

// The fields of a KvPlace.
using PlaceTuple = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, bool, std::string,
                              std::string, int64_t, int64_t, float, float>;

// The kind of K or V called `name`.
KvKind kv_kind_of(const char* field, const std::string& name) {
  std::string names;
  for (const KvKind& kind : kKvKinds) {
    if (name == kind.name) return kind;
    names += (names.empty() ? "" : ", ") + std::string(kind.name);
  }
  refuse(std::string(field) + " '" + name + "' is unknown; choose one of " + names);
}

// Of each kind: its name, the bits of a value, the bytes of a scale, whether it is rotated.
std::vector<std::tuple<std::string, int64_t, int64_t, bool>> kv_codecs() {
  std::vector<std::tuple<std::string, int64_t, int64_t, bool>> kinds;
  for (const KvKind& kind : kKvKinds) {
    const KvCodecFacts& f = facts(kind.codec);
    kinds.emplace_back(kind.name, f.value_bits, f.scale_bytes, kind.rotated);
  }
  return kinds;
}

KvPlace place_of(const PlaceTuple& fields) {
  const auto& [table, index, heads, head_dim, value_dim, latent, k, v, near_table, near_index,
               k_scale, v_scale] = fields;
  return {table, index, heads, head_dim, value_dim, latent, kv_kind_of("k_codec", k),
          kv_kind_of("v_codec", v), near_table, near_index, k_scale, v_scale};
}

void rope(Backend& backend, nb::handle qkv, nb::handle shape, nb::handle cos, nb::handle sin,
          nb::handle positions, nb::handle q_weight, float q_eps, nb::handle k_weight,
          float k_eps) {
  const View<float> rows(qkv, "qkv", 2, true), c(cos, "cos", 2), s(sin, "sin", 2);
  const View<int32_t> at(positions, "position", 1);
  const OptionalView<float> q(q_weight, "q norm weight", 1), k(k_weight, "k norm weight", 1);
  const HeadCounts heads = head_counts(shape);
  const int64_t head_dim = heads.head_dim;
  rows.require(1, heads.row_width());
  at.require(0, rows.size(0));
  s.require(0, c.size(0));
  s.require(1, c.size(1));
  q.require(0, head_dim);
  k.require(0, head_dim);
  if (2 * c.size(1) > head_dim) {
    refuse("rotary_dim " + std::to_string(2 * c.size(1)) + " exceeds head_dim " +
           std::to_string(head_dim));
  }
  const RopeArgs args{rows.data(), rows.size(1), heads.heads, heads.kv_heads, head_dim, c.size(1),
                      c.data(),    s.data(),     at.data(),   q.data(),       k.data(), q_eps,
                      k_eps};
  run(backend, [&backend, args, count = rows.size(0), limit = c.size(0)] {
    require_below("position", args.positions, count, limit);
    backend.rope(args, count);
  });
}

void kv_write(Backend& backend, BoundBatch& batch, int64_t layer, nb::handle qkv,
              nb::handle shape) {
  const HeadCounts heads = head_counts(shape);
  const KvLayer& kv = batch.cache().layer(layer);
  check_heads(kv, heads);
  const View<float> rows(qkv, "qkv", 2);
  rows.require(0, batch.tokens());
  rows.require(1, heads.row_width());
  const Visibility sees = visibility_of(shape);
  run(backend, [&backend, &batch, &kv, layer, sees, heads, x = rows.data(),
                width = rows.size(1)] {
    backend.kv_write({kv, batch.view(layer, sees), batch.request_of(), x, width,
                      heads.heads * heads.head_dim,
                      (heads.heads + heads.kv_heads) * heads.head_dim});
  });
}

void attention(Backend& backend, BoundBatch& batch, int64_t layer, nb::handle qkv, nb::handle y,
               nb::handle shape, nb::handle sinks, nb::handle slopes, nb::handle masks) {
  const HeadCounts heads = head_counts(shape);
  const KvLayer& kv = batch.cache().layer(layer);
  check_heads(kv, heads);
  const float scale = nb::cast<float>(shape.attr("scale"));
  const float softcap = nb::cast<float>(shape.attr("softcap"));
  check_range("softcap", softcap, softcap >= 0 && softcap <= 3.4e38f, "[0, inf)");
  const View<float> rows(qkv, "qkv", 2), to(y, "y", 2, true);
  rows.require(0, batch.tokens());
  rows.require(1, heads.row_width());
  to.require(0, rows.size(0));
  to.require(1, heads.heads * heads.value_dim);
  const OptionalView<float> sink(sinks, "sinks", 1), slope(slopes, "slopes", 1);
  sink.require(0, heads.heads);
  slope.require(0, heads.heads);
  const Visibility sees = visibility_of(shape);
  const Masks masked(masks, sees, batch.view(layer, sees));
  run(backend, [&backend, &batch, &kv, layer, sees, shown = masked.of(sees), x = rows.data(),
                width = rows.size(1), group = heads.heads / heads.kv_heads, scale, softcap,
                of_sinks = sink.data(), of_slopes = slope.data(), y = to.data()] {
    backend.attention({kv, batch.view(layer, sees), x, width, group, scale, shown, softcap,
                       of_sinks, of_slopes, y});
  });
}

}  // namespace

void bind_attention(nb::module_& m, nb::class_<Backend>& backend) {
  m.def("kv_codecs", &kv_codecs);
  nb::class_<KvCache>(m, "KvCache")
      .def("__init__",
           [](KvCache* self, const std::vector<std::optional<PlaceTuple>>& places,
              int64_t block_size, int64_t blocks) {
             std::vector<std::optional<KvPlace>> of;
             for (const auto& place : places) {
               of.push_back(place ? std::optional(place_of(*place))
                                  : std::nullopt);
             }
             new (self) KvCache(of, block_size, blocks);
           },
           nb::arg("places"), nb::arg("block_size"), nb::arg("num_blocks"))
      .def("copy_blocks",
           [](KvCache& cache, nb::handle pairs) {
             const View<int32_t> copies(pairs, "pairs", 2);
             copies.require(1, 2);
             const nb::gil_scoped_release release;
             for (int64_t copy = 0; copy < copies.size(0); ++copy) {
               cache.copy_block(copies.data()[2 * copy], copies.data()[2 * copy + 1]);
             }
           })
      .def("populate", &KvCache::populate, nb::arg("num_blocks"), nb::arg("wait"),
           nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("populated", &KvCache::populated)
      .def_prop_ro("nbytes", &KvCache::bytes);
  nb::class_<BoundBatch>(m, "BoundBatch")
      .def(nb::init<const KvCache&, nb::handle, nb::handle, const std::vector<nb::object>&>(),
           nb::arg("cache"), nb::arg("positions"), nb::arg("query_start"),
           nb::arg("block_tables"), nb::keep_alive<1, 2>())
      .def("refill", &BoundBatch::refill, nb::arg("positions"), nb::arg("query_start"),
           nb::arg("block_tables"));

  backend
      .def("rope", &rope, nb::arg("qkv"), nb::arg("shape"), nb::arg("cos"), nb::arg("sin"),
           nb::arg("positions"), nb::arg("q_weight").none(), nb::arg("q_eps"),
           nb::arg("k_weight").none(), nb::arg("k_eps"))
      .def("kv_write", &kv_write)
      .def("attention", &attention, nb::arg("batch"), nb::arg("layer"), nb::arg("qkv"),
           nb::arg("y"), nb::arg("shape"), nb::arg("sinks").none(),
           nb::arg("slopes").none(), nb::arg("masks").none());
}

}  // namespace headrace
