// Experts, the matrices of heads, which are packed like them, and the rule that chooses experts.

#include "bindings.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"

namespace headrace {
namespace {

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

ExpertMatrices* pack_experts(Backend& backend,
                             const std::vector<std::vector<const MatrixRows*>>& experts,
                             nb::object bias) {
  return expert_matrices(backend, experts, std::move(bias), nullptr);
}

ExpertMatrices* map_experts(Backend& backend,
                            const std::vector<std::vector<const MatrixRows*>>& experts,
                            nb::object bias) {
  if (backend.expert_cache() == nullptr) refuse("this backend has no cache of experts");
  return expert_matrices(backend, experts, std::move(bias), backend.expert_cache());
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
  const HeadsArgs args{weight, from.data(), rows, kept, more.data(), width, to.data()};
  run(backend, [&backend, args] { backend.head_linear(args); });
}

// A rule of routing: the limits that the kernels rely on. Python's Routing names the others.
Routing routing_of(int64_t experts, int64_t chosen, const std::string& score, bool normalised,
                   double epsilon, double scale, int64_t groups, int64_t chosen_groups,
                   const std::string& group_score, double jitter) {
  const auto count = [](const char* field, int64_t value, int64_t most) {
    check_range(field, value, value >= 1 && value <= most,
                ("[1, " + std::to_string(most) + "]").c_str());
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
  run(backend, [&backend, routing, of = from.data(), plus = added.data(), rows, chosen = to.data(),
                by = share.data()] {
    backend.route(routing, of, plus, rows, chosen, by);
  });
}

void experts(Backend& backend, const ExpertMatrices& gate_up, const ExpertMatrices& down,
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
  const ExpertsArgs args{gate_up,      down,     from.data(), rows,        of.size(1),
                         of.data(),    share.data(), function,  weigh_input, add.data(),
                         scale,        to.data(), limit};
  run(backend, [&backend, args] { backend.experts(args); });
}

}  // namespace

void bind_experts(nb::module_& m, nb::class_<Backend>& backend) {
  nb::class_<ExpertMatrices>(m, "ExpertMatrices").def_prop_ro("nbytes", &ExpertMatrices::bytes);
  nb::class_<Routing>(m, "Routing")
      .def("__init__",
           [](Routing* self, int64_t experts, int64_t chosen, const std::string& score,
              bool normalised, double epsilon, double scale, int64_t groups, int64_t chosen_groups,
              const std::string& group_score, double jitter) {
             new (self) Routing(routing_of(experts, chosen, score, normalised, epsilon, scale,
                                           groups, chosen_groups, group_score, jitter));
           });

  backend
      .def("pack_experts", &pack_experts, nb::arg("experts"), nb::arg("bias").none())
      .def("map_experts", &map_experts, nb::arg("experts"), nb::arg("bias").none(),
           nb::keep_alive<0, 2>())
      .def("expert_cache_stats",
           [](const Backend& b) -> std::optional<nb::tuple> {
             if (b.expert_cache() == nullptr) return std::nullopt;
             const ExpertCacheStats s = b.expert_cache()->stats();
             return nb::make_tuple(s.limit_bytes, s.held_bytes, s.hits, s.misses, s.read_bytes);
           })
      .def("head_linear", &head_linear, nb::arg("weight"), nb::arg("x"), nb::arg("kept"),
           nb::arg("beside").none(), nb::arg("y"))
      .def("route", &route, nb::arg("routing"), nb::arg("logits"), nb::arg("bias").none(),
           nb::arg("experts"), nb::arg("weights"))
      .def("experts", &experts, nb::arg("gate_up"), nb::arg("down"), nb::arg("x"), nb::arg("y"),
           nb::arg("experts"), nb::arg("weights"), nb::arg("activation"), nb::arg("limit"),
           nb::arg("weigh_input"), nb::arg("residual").none(), nb::arg("scale"));
}

}  // namespace headrace
