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
  const NormArgs args{from.data(), to.data(), add.data(), width, width, 1, by.view()};
  run(backend, [&backend, args, rows] { backend.norm(args, rows); });
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
  const NormArgs args{at, at, nullptr, stride, width / groups, groups, by.view()};
  run(backend, [&backend, args, count = rows.size(0)] { backend.norm(args, count); });
}

void activation(Backend& backend, nb::handle x, nb::handle y, const std::string& kind, bool gated,
                float limit) {
  const Activation function = activation_of(kind, gated);
  check_limit(limit, function);
  const View<float> from(x, gated ? "gate_up" : "x", 2), to(y, "y", 2, true);
  to.require(0, from.size(0));
  from.require(1, (gated ? 2 : 1) * to.size(1));
  const ActivationArgs args{from.data(), to.data(), to.size(1), function, gated, limit};
  run(backend, [&backend, args, rows = from.size(0)] { backend.activate(args, rows); });
}

void softcap(Backend& backend, nb::handle x, nb::handle y, float cap) {
  const View<float> from(x, "x", 2), to(y, "y", 2, true);
  check_range("cap", cap, cap > 0 && cap <= 3.4e38f, "(0, inf)");
  to.require(0, from.size(0));
  to.require(1, from.size(1));
  const ActivationArgs args{from.data(), to.data(), to.size(1), Activation::softcap, false, cap};
  run(backend, [&backend, args, rows = from.size(0)] { backend.activate(args, rows); });
}

void take_rows(Backend& backend, nb::handle x, nb::handle rows, nb::handle y) {
  const View<float> from(x, "x", 2), to(y, "y", 2, true);
  const View<int32_t> at(rows, "row", 1);
  to.require(0, at.size(0));
  to.require(1, from.size(1));
  run(backend, [&backend, x = from.data(), limit = from.size(0), width = from.size(1),
                of = at.data(), count = at.size(0), y = to.data()] {
    require_below("row", of, count, limit);
    backend.take_rows(x, width, of, count, y);
  });
}

// [start, start + count) of the places [0, limit).
void check_within(const char* what, int64_t start, int64_t count, int64_t limit) {
  if (start >= 0 && start <= limit - count) return;
  refuse(std::string(what) + " [" + std::to_string(start) + ", " + std::to_string(start + count) +
         ") are not in [0, " + std::to_string(limit) + ")");
}

void place(Backend& backend, nb::handle x, int64_t start, nb::handle y, int64_t row, int64_t column,
           int64_t width) {
  const View<float> from(x, "x", 2), to(y, "y", 2, true);
  const int64_t rows = from.size(0);
  check_range("width", width, width >= 0 && width <= from.size(1),
              ("[0, " + std::to_string(from.size(1)) + "]").c_str());
  check_within("columns of x", start, width, from.size(1));
  check_within("columns of y", column, width, to.size(1));
  check_within("rows of y", row, rows, to.size(0));
  run(backend, [&backend, of = from.data() + start, x_stride = from.size(1), width, rows,
                at = to.data() + row * to.size(1) + column, stride = to.size(1)] {
    backend.place(of, x_stride, width, rows, at, stride);
  });
}

void add(Backend& backend, nb::handle x, nb::handle y, nb::handle sum) {
  const View<float> first(x, "x", 2), second(y, "y", 2), to(sum, "sum", 2, true);
  for (int dimension = 0; dimension < 2; ++dimension) {
    second.require(dimension, first.size(dimension));
    to.require(dimension, first.size(dimension));
  }
  run(backend, [&backend, a = first.data(), b = second.data(),
                count = first.size(0) * first.size(1), at = to.data()] {
    backend.add(a, b, count, at);
  });
}

void spread(Backend& backend, nb::handle x, nb::handle columns, nb::handle y) {
  const View<float> from(x, "x", 2), to(y, "y", 2, true);
  const View<int64_t> at(columns, "column", 1);
  at.require(0, from.size(1));
  to.require(0, from.size(0));
  for (int64_t i = 0; i < at.size(0); ++i) {
    if (at.data()[i] < 0 || at.data()[i] >= to.size(1)) {
      refuse("column " + std::to_string(at.data()[i]) + " is not in [0, " +
             std::to_string(to.size(1)) + ")");
    }
  }
  run(backend, [&backend, of = from.data(), width = from.size(1), rows = from.size(0),
                c = at.data(), to_row = to.data(), stride = to.size(1)] {
    backend.spread(of, width, rows, c, to_row, stride);
  });
}

void scale_rows(Backend& backend, nb::handle x, nb::handle factors, int64_t columns) {
  const View<float> rows(x, "x", 2, true), by(factors, "factors", 1);
  by.require(0, rows.size(0));
  check_range("columns", columns, columns >= 0 && columns <= rows.size(1),
              ("[0, " + std::to_string(rows.size(1)) + "]").c_str());
  run(backend, [&backend, x = rows.data(), stride = rows.size(1), columns, f = by.data(),
                count = rows.size(0)] {
    backend.scale_rows(x, stride, columns, f, count);
  });
}

void gate_heads(Backend& backend, nb::handle x, nb::handle gates) {
  const View<float> rows(x, "x", 2, true), by(gates, "gates", 2);
  const int64_t heads = by.size(1);
  by.require(0, rows.size(0));
  if (heads < 1 || rows.size(1) % heads != 0) {
    refuse("gates of " + std::to_string(heads) + " heads do not fit rows of " +
           std::to_string(rows.size(1)));
  }
  run(backend, [&backend, x = rows.data(), heads, width = rows.size(1) / heads, of = by.data(),
                count = rows.size(0)] {
    backend.gate_heads(x, heads, width, of, count);
  });
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
      .def("place", &place, nb::arg("x"), nb::arg("start"), nb::arg("y"), nb::arg("row"),
           nb::arg("column"), nb::arg("width"))
      .def("add", &add, nb::arg("x"), nb::arg("y"), nb::arg("sum"))
      .def("spread", &spread, nb::arg("x"), nb::arg("columns"), nb::arg("y"))
      .def("scale_rows", &scale_rows)
      .def("gate_heads", &gate_heads);
}

}  // namespace headrace
