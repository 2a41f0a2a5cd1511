// Norms, activations and what else takes rows one by one.

#include "bindings.h"

#include <cstdint>
#include <string>

#include "arguments.h"

namespace headrace {
namespace {

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

void gate_heads(Backend& backend, nb::handle x, nb::handle gates) {
  const View<float> rows(x, "x", 2, true), by(gates, "gates", 2);
  const int64_t heads = by.size(1);
  by.require(0, rows.size(0));
  if (heads < 1 || rows.size(1) % heads != 0) {
    refuse("gates of " + std::to_string(heads) + " heads do not fit rows of " +
           std::to_string(rows.size(1)));
  }
  const nb::gil_scoped_release release;
  backend.gate_heads(rows.data(), heads, rows.size(1) / heads, by.data(), rows.size(0));
}

}  // namespace

void bind_elementwise(nb::module_&, nb::class_<Backend>& backend) {
  backend
      .def("norm", &norm, nb::arg("x"), nb::arg("y"), nb::arg("weight"), nb::arg("bias").none(),
           nb::arg("eps"), nb::arg("centred"), nb::arg("residual").none())
      .def("norm_columns", &norm_columns, nb::arg("x"), nb::arg("start"), nb::arg("weight"),
           nb::arg("bias").none(), nb::arg("eps"), nb::arg("centred"), nb::arg("groups"))
      .def("activation", &activation)
      .def("softcap", &softcap)
      .def("take_rows", &take_rows)
      .def("scale_rows", &scale_rows)
      .def("gate_heads", &gate_heads);
}

}  // namespace headrace
