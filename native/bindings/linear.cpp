// Stored rows, packed matrices, and the operations that look rows up in them or multiply by them.

#include "bindings.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"

namespace headrace {
namespace {

PackedLinear* pack(Backend& backend, const std::vector<const MatrixRows*>& parts,
                   nb::object bias) {
  if (parts.empty()) refuse("a linear weight needs at least one part");
  std::vector<StoredRows> stored;
  for (const MatrixRows* part : parts) {
    if (part == nullptr) refuse("a part of a linear weight is None");
    if (part->codec() != parts[0]->codec() || part->width() != parts[0]->width()) {
      refuse("parts of a linear weight must have one codec and one width");
    }
    stored.push_back(part->stored());
  }
  std::vector<float> values;
  if (!bias.is_none()) {
    const View<float> view(bias, "bias", 1);
    view.require(0, rows_of(stored));
    values.assign(view.data(), view.data() + view.size(0));
  }
  const nb::gil_scoped_release release;
  const auto lock = backend.pool().acquire();
  return new PackedLinear(backend.pool(), backend.weights(), parts[0]->codec(), parts[0]->width(),
                          stored, std::move(values));
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
  run(backend, [&backend, matrix, x = from.data(), rows = from.size(0), by = norm.view(),
                plus = add.data(), scale, y = to.data()] {
    backend.linear(matrix, x, rows, by, plus, scale, y);
  });
}

void embedding(Backend& backend, const Rows& table, nb::handle ids, nb::handle y, float scale,
               nb::handle residual) {
  const View<int32_t> of(ids, "token id", 1);
  const View<float> to(y, "y", 2, true);
  const OptionalView<float> add(residual, "residual", 2);
  to.require(0, of.size(0));
  to.require(1, table.width());
  add.require(0, of.size(0));
  add.require(1, table.width());
  const EmbedArgs args{table.data(), row_bytes(table.codec(), table.width()), table.width(),
                       table.codec(), table.order(), of.data(), to.data(), scale, add.data()};
  run(backend, [&backend, args, count = of.size(0), limit = table.count()] {
    require_below("token id", args.ids, count, limit);
    backend.embed(args, count);
  });
}

}  // namespace

void bind_linear(nb::module_& m, nb::class_<Backend>& backend) {
  nb::class_<MatrixRows>(m, "MatrixRows");
  nb::class_<Rows, MatrixRows>(m, "Rows")
      .def(nb::init<const std::string&, int64_t, nb::object, nb::object, int, int64_t>(),
           nb::arg("codec"), nb::arg("width"), nb::arg("data"), nb::arg("row_order").none(),
           nb::arg("file") = -1, nb::arg("place") = 0);
  nb::class_<TurnedRows, MatrixRows>(m, "TurnedRows")
      .def(nb::init<const std::string&, nb::object>(), nb::arg("codec"), nb::arg("values"));
  nb::class_<SplitRows, MatrixRows>(m, "SplitRows")
      .def(nb::init<nb::object, nb::object>(), nb::arg("pairs"), nb::arg("exponents"));
  nb::class_<ScaledRows, MatrixRows>(m, "ScaledRows")
      .def(nb::init<nb::object, nb::object, int64_t, int64_t, nb::object>(), nb::arg("values"),
           nb::arg("scales"), nb::arg("block_rows"), nb::arg("block_columns"),
           nb::arg("row_order").none());
  nb::class_<PackedLinear>(m, "PackedLinear").def_prop_ro("nbytes", &PackedLinear::bytes);

  backend
      .def("pack", &pack, nb::arg("parts"), nb::arg("bias").none())
      .def("linear", &linear, nb::arg("weight"), nb::arg("x"), nb::arg("y"),
           nb::arg("norm_weight").none(), nb::arg("norm_bias").none(), nb::arg("eps"),
           nb::arg("centred"), nb::arg("residual").none(), nb::arg("scale"))
      .def("embedding", &embedding, nb::arg("table"), nb::arg("ids"), nb::arg("y"),
           nb::arg("scale"), nb::arg("residual").none());
}

}  // namespace headrace
