// The Python face of the native backend. Arguments are checked here, so that a wrong call raises
// and never crashes; the interpreter is let go while kernels run.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <tuple>
#include <vector>

#include "arguments.h"
#include "backend.h"
#include "batch.h"
#include "chains_view.h"
#include "levels.h"

namespace nb = nanobind;

namespace headrace {
namespace {

PackedLinear* pack(Backend& backend, const std::vector<const Rows*>& parts, nb::object bias) {
  if (parts.empty()) refuse("a linear weight needs at least one part");
  std::vector<const uint8_t*> rows;
  for (const Rows* part : parts) {
    if (part == nullptr) refuse("a part of a linear weight is None");
    if (part->codec() != parts[0]->codec() || part->width() != parts[0]->width()) {
      refuse("parts of a linear weight must have one codec and one width");
    }
    for (int64_t i = 0; i < part->count(); ++i) rows.push_back(part->row(i));
  }
  std::vector<float> values;
  if (!bias.is_none()) {
    const View<float> view(bias, "bias", 1);
    view.require(0, static_cast<int64_t>(rows.size()));
    values.assign(view.data(), view.data() + rows.size());
  }
  const nb::gil_scoped_release release;
  const auto lock = backend.pool().acquire();
  return new PackedLinear(backend.pool(), parts[0]->codec(), parts[0]->width(), rows,
                          std::move(values));
}

// With a cache the result reads the stored rows later: whoever binds it keeps them alive.
ExpertMatrices* expert_matrices(Backend& backend,
                                const std::vector<std::vector<const MatrixRows*>>& experts,
                                nb::object bias, const std::shared_ptr<ExpertCache>& cache) {
  if (experts.empty()) refuse("an expert weight needs at least one expert");
  std::vector<std::vector<StoredRows>> stored;
  const MatrixRows* first = nullptr;
  int64_t out = 0, all = 0;
  for (const std::vector<const MatrixRows*>& parts : experts) {
    int64_t rows = 0;
    std::vector<StoredRows>& of_expert = stored.emplace_back();
    for (const MatrixRows* part : parts) {
      if (part == nullptr) refuse("a part of an expert is None");
      if (first == nullptr) first = part;
      if (part->codec() != first->codec() || part->width() != first->width()) {
        refuse("parts of experts must have one codec and one width");
      }
      rows += part->count();
      of_expert.push_back(part->stored());
    }
    if (stored.size() == 1) out = rows;
    if (rows != out) refuse("experts must have equally many rows");
    all += rows;
  }
  if (first == nullptr) refuse("an expert needs at least one part");
  std::vector<float> values;
  if (!bias.is_none()) {
    const View<float> view(bias, "bias", 1);
    view.require(0, all);
    values.assign(view.data(), view.data() + all);
  }
  const int64_t tiles = (first->width() + kTile - 1) / kTile;
  const int64_t bytes = (out + kLanes - 1) / kLanes * panel_bytes(first->codec(), tiles);
  if (cache != nullptr && bytes > cache->limit()) {
    refuse("expert_cache_bytes " + std::to_string(cache->limit()) + " is less than the " +
           std::to_string(bytes) + " bytes of one packed expert");
  }
  const nb::gil_scoped_release release;
  const auto lock = backend.pool().acquire();
  return new ExpertMatrices(backend.pool(), first->codec(), first->width(), std::move(stored),
                            values, cache);
}

ExpertMatrices* pack_experts(Backend& backend, const std::vector<std::vector<const MatrixRows*>>& experts,
                             nb::object bias) {
  return expert_matrices(backend, experts, std::move(bias), nullptr);
}

ExpertMatrices* map_experts(Backend& backend, const std::vector<std::vector<const MatrixRows*>>& experts,
                            nb::object bias) {
  if (backend.expert_cache() == nullptr) refuse("this backend has no cache of experts");
  return expert_matrices(backend, experts, std::move(bias), backend.expert_cache());
}

void linear(Backend& backend, const PackedLinear& weight, nb::handle x, nb::handle y,
            nb::handle norm_weight, nb::handle norm_bias, float eps, bool centred,
            nb::handle residual, float scale) {
  const PackedMatrix matrix = weight.view();
  const View<float> from(x, "x", 2), to(y, "y", 2, true);
  const NormView norm(norm_weight, norm_bias, eps, centred);
  const OptionalView<float> add(residual, "residual", 2);
  from.require(1, matrix.in);
  to.require(0, from.size(0));
  to.require(1, matrix.out);
  norm.require(matrix.in);
  add.require(0, from.size(0));
  add.require(1, matrix.out);
  const nb::gil_scoped_release release;
  backend.linear(matrix, from.data(), from.size(0), norm.view(), add.data(), scale, to.data());
}

void head_linear(Backend& backend, const ExpertMatrices& weight, nb::handle x, int64_t kept,
                 nb::handle beside, nb::handle y) {
  if (weight.cache() != nullptr) refuse("matrices of heads must be packed, not mapped");
  check_range("kept", kept, kept >= 0 && kept <= int64_t{1} << 31, "[0, 2^31]");
  const View<float> from(x, "x", 2), to(y, "y", 2, true);
  const OptionalView<float> more(beside, "beside", 2);
  const int64_t heads = weight.count(), rows = from.size(0);
  const int64_t width = more ? more.view().size(1) : 0;
  from.require(1, heads * (kept + weight.in()));
  more.require(0, rows);
  to.require(0, rows);
  to.require(1, heads * (kept + weight.out()) + width);
  const nb::gil_scoped_release release;
  backend.head_linear({weight, from.data(), rows, kept, more.data(), width, to.data()});
}

void norm(Backend& backend, nb::handle x, nb::handle y, nb::handle weight, nb::handle bias,
          float eps, bool centred, nb::handle residual) {
  const View<float> from(x, "x", 2), to(y, "y", 2, true);
  const NormView by(weight, bias, eps, centred);
  const OptionalView<float> add(residual, "residual", 2);
  const int64_t rows = from.size(0), width = from.size(1);
  by.require(width);
  to.require(0, rows);
  to.require(1, width);
  add.require(0, rows);
  add.require(1, width);
  const nb::gil_scoped_release release;
  backend.norm({from.data(), to.data(), add.data(), width, width, 1, by.view()}, rows);
}

void norm_columns(Backend& backend, nb::handle x, int64_t start, nb::handle weight, nb::handle bias,
                  float eps, bool centred, int64_t groups) {
  const View<float> rows(x, "x", 2, true);
  const NormView by(weight, bias, eps, centred);
  const int64_t width = by.width(), stride = rows.size(1);
  if (start < 0 || start > stride - width) {
    refuse("columns [" + std::to_string(start) + ", " + std::to_string(start + width) +
           ") are not those of rows of " + std::to_string(stride));
  }
  if (groups < 1 || width % groups != 0) {
    refuse(std::to_string(width) + " columns cannot be cut into " + std::to_string(groups) +
           " equal groups");
  }
  float* at = rows.data() + start;
  const nb::gil_scoped_release release;
  backend.norm({at, at, nullptr, stride, width / groups, groups, by.view()}, rows.size(0));
}

void embedding(Backend& backend, const Rows& table, nb::handle ids, nb::handle y, float scale,
               nb::handle residual) {
  const View<int32_t> of(ids, "token id", 1);
  const View<float> to(y, "y", 2, true);
  const OptionalView<float> add(residual, "residual", 2);
  of.require_below(table.count());
  to.require(0, of.size(0));
  to.require(1, table.width());
  add.require(0, of.size(0));
  add.require(1, table.width());
  const nb::gil_scoped_release release;
  backend.embed({table.data(), row_bytes(table.codec(), table.width()), table.width(),
                 table.codec(), table.order(), of.data(), to.data(), scale, add.data()},
                of.size(0));
}

Activation activation_of(const std::string& kind, bool gated) {
  if (kind == "silu") return Activation::silu;
  if (kind == "gelu") return Activation::gelu;
  if (kind == "gelu_tanh") return Activation::gelu_tanh;
  if (kind == "relu") return Activation::relu;
  if (kind == "relu2") return Activation::relu2;
  if (kind == "swiglu_clamped" && gated) return Activation::swiglu_clamped;
  refuse("activation '" + kind + "' is unknown; supported: silu, gelu, gelu_tanh, relu, relu2" +
         (gated ? ", swiglu_clamped" : ""));
}

// What bounds a gate and what it meets; 0 where nothing does.
void check_limit(float limit, Activation function) {
  check_range("limit", limit, limit >= 0 && limit <= 3.4e38f, "[0, inf)");
  if (limit > 0 && function == Activation::swiglu_clamped) {
    refuse("limit: swiglu_clamped has its own");
  }
}

void activation(Backend& backend, nb::handle x, nb::handle y, const std::string& kind, bool gated,
                float limit) {
  const Activation function = activation_of(kind, gated);
  check_limit(limit, function);
  const View<float> from(x, gated ? "gate_up" : "x", 2), to(y, "y", 2, true);
  to.require(0, from.size(0));
  from.require(1, (gated ? 2 : 1) * to.size(1));
  const nb::gil_scoped_release release;
  backend.activate({from.data(), to.data(), to.size(1), function, gated, limit}, from.size(0));
}

void softcap(Backend& backend, nb::handle x, nb::handle y, float cap) {
  const View<float> from(x, "x", 2), to(y, "y", 2, true);
  check_range("cap", cap, cap > 0 && cap <= 3.4e38f, "(0, inf)");
  to.require(0, from.size(0));
  to.require(1, from.size(1));
  const nb::gil_scoped_release release;
  backend.activate({from.data(), to.data(), to.size(1), Activation::softcap, false, cap},
                   from.size(0));
}

// A rule of routing: the limits that the kernels rely on. Python's Routing names the others.
Routing routing_of(int64_t experts, int64_t chosen, const std::string& score, bool normalised,
                   double epsilon, double scale, int64_t groups, int64_t chosen_groups,
                   const std::string& group_score, double jitter) {
  const auto count = [](const char* field, int64_t value, int64_t most) {
    check_range(field, value, value >= 1 && value <= most, ("[1, " + std::to_string(most) + "]").c_str());
  };
  count("num_experts", experts, int64_t{1} << 16);
  count("num_groups", groups, experts);
  count("chosen_groups", chosen_groups, groups);
  if (experts % groups != 0) {
    refuse("num_groups " + std::to_string(groups) + " does not divide num_experts " +
           std::to_string(experts));
  }
  count("experts_per_token", chosen, experts / groups * chosen_groups);
  const std::string scores[] = {"softmax", "sigmoid", "softmax_of_chosen", "sparsemixer"};
  const auto found = std::find(std::begin(scores), std::end(scores), score);
  if (found == std::end(scores)) {
    refuse("score '" + score +
           "' is unknown; supported: softmax, sigmoid, softmax_of_chosen, sparsemixer");
  }
  if (group_score != "max" && group_score != "top2") {
    refuse("group_score '" + group_score + "' is unknown; supported: max, top2");
  }
  return {experts, chosen, static_cast<RouterScore>(found - std::begin(scores)), normalised,
          epsilon, scale, groups, chosen_groups, group_score == "top2", jitter};
}

void route(Backend& backend, const Routing& routing, nb::handle logits, nb::handle bias,
           nb::handle experts, nb::handle weights) {
  const View<float> from(logits, "logits", 2), share(weights, "weights", 2, true);
  const View<int32_t> to(experts, "experts", 2, true);
  const OptionalView<float> added(bias, "bias", 1);
  const int64_t rows = from.size(0);
  from.require(1, routing.experts);
  to.require(0, rows);
  to.require(1, routing.chosen);
  share.require(0, rows);
  share.require(1, routing.chosen);
  added.require(0, routing.experts);
  if (added && routing.score == RouterScore::sparsemixer) {
    refuse("bias: the score sparsemixer takes no selection bias");
  }
  for (int64_t e = 0; added && e < routing.experts; ++e) {
    check_range("bias", added.data()[e], std::isfinite(added.data()[e]), "(-inf, inf)");
  }
  const nb::gil_scoped_release release;
  backend.route(routing, from.data(), added.data(), rows, to.data(), share.data());
}

void experts(Backend& backend, const ExpertMatrices& gate_up,
             const ExpertMatrices& down,
             nb::handle x, nb::handle y, nb::handle chosen, nb::handle weights,
             const std::string& kind, float limit, bool weigh_input, nb::handle residual,
             float scale) {
  const Activation function = activation_of(kind, true);
  check_limit(limit, function);
  const View<float> from(x, "x", 2), to(y, "y", 2, true), share(weights, "weights of routes", 2);
  const View<int32_t> of(chosen, "expert", 2);
  const OptionalView<float> add(residual, "residual", 2);
  const int64_t rows = from.size(0);
  if (gate_up.count() != down.count() || gate_up.out() != 2 * down.in()) {
    refuse("gate_up of " + std::to_string(gate_up.count()) + " experts with " +
           std::to_string(gate_up.out()) + " outputs does not fit down of " +
           std::to_string(down.count()) + " with " + std::to_string(down.in()) + " inputs");
  }
  from.require(1, gate_up.in());
  to.require(0, rows);
  to.require(1, down.out());
  of.require(0, rows);
  of.require_below(gate_up.count());
  share.require(0, rows);
  share.require(1, of.size(1));
  add.require(0, rows);
  add.require(1, down.out());
  check_range("experts per token", of.size(1), of.size(1) >= 1 && of.size(1) <= kMostChosen,
              ("[1, " + std::to_string(kMostChosen) + "]").c_str());
  const nb::gil_scoped_release release;
  backend.experts({gate_up, down, from.data(), rows, of.size(1), of.data(), share.data(), function,
                   weigh_input, add.data(), scale, to.data(), limit});
}

void take_rows(Backend& backend, nb::handle x, nb::handle rows, nb::handle y) {
  const View<float> from(x, "x", 2), to(y, "y", 2, true);
  const View<int32_t> at(rows, "row", 1);
  at.require_below(from.size(0));
  to.require(0, at.size(0));
  to.require(1, from.size(1));
  const nb::gil_scoped_release release;
  backend.take_rows(from.data(), from.size(1), at.data(), at.size(0), to.data());
}

void scale_rows(Backend& backend, nb::handle x, nb::handle factors, int64_t columns) {
  const View<float> rows(x, "x", 2, true), by(factors, "factors", 1);
  by.require(0, rows.size(0));
  check_range("columns", columns, columns >= 0 && columns <= rows.size(1),
              ("[0, " + std::to_string(rows.size(1)) + "]").c_str());
  const nb::gil_scoped_release release;
  backend.scale_rows(rows.data(), rows.size(1), columns, by.data(), rows.size(0));
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
  at.require_below(c.size(0));
  s.require(0, c.size(0));
  s.require(1, c.size(1));
  q.require(0, head_dim);
  k.require(0, head_dim);
  if (2 * c.size(1) > head_dim) {
    refuse("rotary_dim " + std::to_string(2 * c.size(1)) + " exceeds head_dim " +
           std::to_string(head_dim));
  }
  const nb::gil_scoped_release release;
  backend.rope({rows.data(), rows.size(1), heads.heads, heads.kv_heads, head_dim, c.size(1),
                c.data(), s.data(), at.data(), q.data(), k.data(), q_eps, k_eps},
               rows.size(0));
}

void kv_write(Backend& backend, BoundBatch& batch, int64_t layer, nb::handle qkv,
              nb::handle shape) {
  const HeadCounts heads = head_counts(shape);
  const KvLayer& kv = batch.cache().layer(layer);
  check_heads(kv, heads);
  const View<float> rows(qkv, "qkv", 2);
  rows.require(0, batch.tokens());
  rows.require(1, heads.row_width());
  const BatchView view = batch.view(layer, visibility_of(shape));
  const nb::gil_scoped_release release;
  backend.kv_write({kv, view, batch.request_of(), rows.data(), rows.size(1),
                    heads.heads * heads.head_dim,
                    (heads.heads + heads.kv_heads) * heads.head_dim});
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
  const BatchView view = batch.view(layer, sees);
  const Masks masked(masks, sees, view);
  const nb::gil_scoped_release release;
  backend.attention({kv, view, rows.data(), rows.size(1),
                     heads.heads / heads.kv_heads,
                     scale, masked.of(sees), softcap, sink.data(), slope.data(), to.data()});
}

// The fields of a KvPlace.
using PlaceTuple = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, bool>;

KvPlace place_of(const PlaceTuple& fields) {
  const auto [table, index, heads, head_dim, value_dim, latent] = fields;
  return {table, index, heads, head_dim, value_dim, latent};
}

[[noreturn]] void refuse_row(int32_t status, int64_t row) {
  const std::string name = "row " + std::to_string(row) + " of logits ";
  refuse(name + (status == kNoToken ? "holds NaN or +inf"
                                    : "is -inf everywhere: its mask allows no token"));
}

void check_logits(const View<float>& logits, int64_t num_tokens) {
  if (num_tokens < 1 || num_tokens > logits.size(1)) {
    refuse("num_tokens " + std::to_string(num_tokens) + " is not in [1, " +
           std::to_string(logits.size(1)) + "], the width of the logits");
  }
}

void sample(Backend& backend, nb::handle logits, int64_t num_tokens, nb::handle temperature,
            nb::handle top_k, nb::handle top_p, nb::handle min_p, nb::handle uniform,
            nb::handle ids, std::optional<nb::tuple> chains) {
  const View<float> from(logits, "logits", 2), t(temperature, "temperature", 1),
      p(top_p, "top_p", 1), m(min_p, "min_p", 1);
  const View<int32_t> k(top_k, "top_k", 1), to(ids, "ids", 1, true);
  const View<double> u(uniform, "uniform", 1);
  check_logits(from, num_tokens);
  const int64_t rows = from.size(0);
  t.require(0, rows);
  k.require(0, rows);
  p.require(0, rows);
  m.require(0, rows);
  u.require(0, rows);
  to.require(0, rows);
  std::optional<ChainsView> chained;
  if (chains) {
    if (chains->size() != 5) refuse("chains takes five arrays");
    const nb::tuple& a = *chains;
    chained.emplace(a[0], a[1], a[2], a[3], a[4], rows, from.size(1));
  }
  std::vector<SampleRow> of;
  for (int64_t i = 0; i < rows; ++i) {
    SampleRow row{t.data()[i], k.data()[i], p.data()[i], m.data()[i], u.data()[i]};
    if (chained) row.chain = chained->row(i);
    check_range("temperature", row.temperature,
                row.temperature >= 0 && row.temperature <= 3.4e38f, "[0, inf)");
    check_range("top_k", row.top_k, row.top_k >= 0, "[0, inf)");
    check_range("top_p", row.top_p, row.top_p > 0 && row.top_p <= 1, "(0, 1]");
    check_range("min_p", row.min_p, row.min_p >= 0 && row.min_p <= 1, "[0, 1]");
    check_range("uniform", row.uniform, row.uniform >= 0 && row.uniform < 1, "[0, 1)");
    of.push_back(row);
  }
  int64_t bad = 0;
  int32_t status;
  {
    const nb::gil_scoped_release release;
    status = backend.sample(from.data(), from.size(1), num_tokens, of, to.data(), &bad);
  }
  if (status != 0) refuse_row(status, bad);
}

void top_logprobs(Backend& backend, nb::handle logits, int64_t num_tokens, nb::handle chosen,
                  nb::handle logprobs, nb::handle ranks, nb::handle ids, nb::handle values) {
  const View<float> from(logits, "logits", 2), l(logprobs, "logprobs", 1, true),
      v(values, "values", 2, true);
  const View<int32_t> c(chosen, "chosen id", 1), r(ranks, "ranks", 1, true), i(ids, "ids", 2, true);
  check_logits(from, num_tokens);
  c.require(0, from.size(0));
  c.require_below(num_tokens);
  l.require(0, from.size(0));
  r.require(0, from.size(0));
  i.require(0, from.size(0));
  v.require(0, from.size(0));
  v.require(1, i.size(1));
  if (i.size(1) > num_tokens) {
    refuse("k " + std::to_string(i.size(1)) + " is not in [0, " + std::to_string(num_tokens) +
           "], the number of tokens");
  }
  int64_t bad = 0;
  int32_t status;
  {
    const nb::gil_scoped_release release;
    status = backend.top_logprobs(from.data(), from.size(1), num_tokens, from.size(0), c.data(),
                                  i.size(1), l.data(), r.data(), i.data(), v.data(), &bad);
  }
  if (status != 0) refuse_row(status, bad);
}

}  // namespace
}  // namespace headrace

NB_MODULE(_native, m) {
  using namespace headrace;
  m.def("levels", &usable_levels);

  nb::class_<MatrixRows>(m, "MatrixRows");
  nb::class_<Rows, MatrixRows>(m, "Rows")
      .def(nb::init<const std::string&, int64_t, nb::object, nb::object>(), nb::arg("codec"),
           nb::arg("width"), nb::arg("data"), nb::arg("row_order").none());
  nb::class_<TurnedRows, MatrixRows>(m, "TurnedRows")
      .def(nb::init<const std::string&, nb::object>(), nb::arg("codec"), nb::arg("values"));
  nb::class_<SplitRows, MatrixRows>(m, "SplitRows")
      .def(nb::init<nb::object, nb::object>(), nb::arg("pairs"), nb::arg("exponents"));
  nb::class_<PackedLinear>(m, "PackedLinear").def_prop_ro("nbytes", &PackedLinear::bytes);
  nb::class_<ExpertMatrices>(m, "ExpertMatrices").def_prop_ro("nbytes", &ExpertMatrices::bytes);
  nb::class_<Routing>(m, "Routing")
      .def("__init__",
           [](Routing* self, int64_t experts, int64_t chosen, const std::string& score,
              bool normalised, double epsilon, double scale, int64_t groups, int64_t chosen_groups,
              const std::string& group_score, double jitter) {
             new (self) Routing(routing_of(experts, chosen, score, normalised, epsilon, scale,
                                           groups, chosen_groups, group_score, jitter));
           });
  nb::class_<KvCache>(m, "KvCache")
      .def("__init__",
           [](KvCache* self, const std::vector<std::optional<PlaceTuple>>& places,
              int64_t block_size, int64_t blocks, bool k_bf16, bool v_bf16) {
             std::vector<std::optional<KvPlace>> of;
             for (const auto& place : places) {
               of.push_back(place ? std::optional(place_of(*place))
                                  : std::nullopt);
             }
             new (self) KvCache(of, block_size, blocks, k_bf16, v_bf16);
           },
           nb::arg("places"), nb::arg("block_size"), nb::arg("num_blocks"), nb::arg("k_bf16"),
           nb::arg("v_bf16"))
      .def("copy_blocks",
           [](KvCache& cache, nb::handle pairs) {
             const View<int32_t> copies(pairs, "pairs", 2);
             copies.require(1, 2);
             const nb::gil_scoped_release release;
             for (int64_t copy = 0; copy < copies.size(0); ++copy) {
               cache.copy_block(copies.data()[2 * copy], copies.data()[2 * copy + 1]);
             }
           })
      .def_prop_ro("nbytes", &KvCache::bytes);
  nb::class_<BoundBatch>(m, "BoundBatch")
      .def(nb::init<const KvCache&, nb::handle, nb::handle, const std::vector<nb::object>&>(),
           nb::arg("cache"), nb::arg("positions"), nb::arg("query_start"),
           nb::arg("block_tables"), nb::keep_alive<1, 2>());

  nb::class_<Backend>(m, "Backend")
      .def("__init__",
           [](Backend* self, const std::string& level, int threads,
              std::optional<int64_t> expert_cache_bytes) {
             if (threads < 1 || threads > 1024) {
               refuse("threads " + std::to_string(threads) + " is not in [1, 1024]");
             }
             if (expert_cache_bytes && *expert_cache_bytes < 0) {
               refuse("expert_cache_bytes " + std::to_string(*expert_cache_bytes) +
                      " is negative; None packs all experts at load");
             }
             new (self) Backend(level, threads);
             if (expert_cache_bytes) self->cache_experts(*expert_cache_bytes);
           },
           nb::arg("level"), nb::arg("threads"), nb::arg("expert_cache_bytes") = nb::none())
      .def_prop_ro("level", &Backend::level)
      .def_prop_ro("num_threads", [](Backend& b) { return b.pool().size(); })
      .def("flushing_threads", &Backend::flushing_threads, nb::call_guard<nb::gil_scoped_release>())
      .def("read_bandwidth",
           [](Backend& b, double megabytes) {
             check_range("megabytes", megabytes, megabytes >= 1e-3 && megabytes <= 1 << 20,
                         "[0.001, 2^20]");
             const nb::gil_scoped_release release;
             return b.read_bandwidth(static_cast<int64_t>(megabytes * 1e6));
           })
      .def("peak_multiplies",
           [](Backend& b, const std::string& kind) {
             const std::string kinds[] = {"f32", "bf16", "int8"};
             const auto found = std::find(std::begin(kinds), std::end(kinds), kind);
             if (found == std::end(kinds)) refuse("kind " + kind + " is not f32, bf16 or int8");
             const nb::gil_scoped_release release;
             return b.peak_multiplies(static_cast<Operands>(found - std::begin(kinds)));
           })
      .def("pack", &pack, nb::arg("parts"), nb::arg("bias").none())
      .def("pack_experts", &pack_experts, nb::arg("experts"), nb::arg("bias").none())
      .def("map_experts", &map_experts, nb::arg("experts"), nb::arg("bias").none(),
           nb::keep_alive<0, 2>())
      .def("expert_cache_stats",
           [](const Backend& b) -> std::optional<nb::tuple> {
             if (b.expert_cache() == nullptr) return std::nullopt;
             const ExpertCacheStats s = b.expert_cache()->stats();
             return nb::make_tuple(s.limit_bytes, s.held_bytes, s.hits, s.misses, s.read_bytes);
           })
      .def("linear", &linear, nb::arg("weight"), nb::arg("x"), nb::arg("y"),
           nb::arg("norm_weight").none(), nb::arg("norm_bias").none(), nb::arg("eps"),
           nb::arg("centred"), nb::arg("residual").none(), nb::arg("scale"))
      .def("norm", &norm, nb::arg("x"), nb::arg("y"), nb::arg("weight"), nb::arg("bias").none(),
           nb::arg("eps"), nb::arg("centred"), nb::arg("residual").none())
      .def("norm_columns", &norm_columns, nb::arg("x"), nb::arg("start"), nb::arg("weight"),
           nb::arg("bias").none(), nb::arg("eps"), nb::arg("centred"), nb::arg("groups"))
      .def("embedding", &embedding, nb::arg("table"), nb::arg("ids"), nb::arg("y"),
           nb::arg("scale"), nb::arg("residual").none())
      .def("activation", &activation)
      .def("softcap", &softcap)
      .def("take_rows", &take_rows)
      .def("scale_rows", &scale_rows)
      .def("route", &route, nb::arg("routing"), nb::arg("logits"), nb::arg("bias").none(),
           nb::arg("experts"), nb::arg("weights"))
      .def("head_linear", &head_linear, nb::arg("weight"), nb::arg("x"), nb::arg("kept"),
           nb::arg("beside").none(), nb::arg("y"))
      .def("experts", &experts, nb::arg("gate_up"), nb::arg("down"), nb::arg("x"), nb::arg("y"),
           nb::arg("experts"), nb::arg("weights"), nb::arg("activation"), nb::arg("limit"),
           nb::arg("weigh_input"), nb::arg("residual").none(), nb::arg("scale"))
      .def("rope", &rope, nb::arg("qkv"), nb::arg("shape"), nb::arg("cos"), nb::arg("sin"),
           nb::arg("positions"), nb::arg("q_weight").none(), nb::arg("q_eps"),
           nb::arg("k_weight").none(), nb::arg("k_eps"))
      .def("kv_write", &kv_write)
      .def("attention", &attention, nb::arg("batch"), nb::arg("layer"), nb::arg("qkv"),
           nb::arg("y"), nb::arg("shape"), nb::arg("sinks").none(),
           nb::arg("slopes").none(), nb::arg("masks").none())
      .def("sample", &sample, nb::arg("logits"), nb::arg("num_tokens"), nb::arg("temperature"),
           nb::arg("top_k"), nb::arg("top_p"), nb::arg("min_p"), nb::arg("uniform"),
           nb::arg("ids"), nb::arg("chains") = nb::none())
      .def("top_logprobs", &top_logprobs);
}
