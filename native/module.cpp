// The Python module: levels and the backend. What it computes is bound by subject in bindings/.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>

#include "arguments.h"
#include "backend.h"
#include "bindings/bindings.h"
#include "levels.h"

NB_MODULE(_native, m) {
  using namespace headrace;
  m.def("levels", &usable_levels);

  nb::class_<Backend> backend(m, "Backend");
  backend
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
             const std::string kinds[kOperands] = {"f32", "bf16", "int8", "bf16_pairs"};
             const auto found = std::find(std::begin(kinds), std::end(kinds), kind);
             if (found == std::end(kinds)) {
               refuse("kind " + kind + " is not f32, bf16, int8 or bf16_pairs");
             }
             const nb::gil_scoped_release release;
             return b.peak_multiplies(static_cast<Operands>(found - std::begin(kinds)));
           });
  bind_linear(m, backend);
  bind_elementwise(m, backend);
  bind_experts(m, backend);
  bind_attention(m, backend);
  bind_sampling(m, backend);
  bind_tape(m, backend);
}
