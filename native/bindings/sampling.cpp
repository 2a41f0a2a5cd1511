// Tokens drawn from logits, and their log probabilities.

#include "bindings.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "chains_view.h"

namespace headrace {
namespace {

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
  if (num_tokens > kMostScores) {
    refuse("num_tokens " + std::to_string(num_tokens) + " is above " + std::to_string(kMostScores) +
           ", the most whose weights are summed");
  }
}

// The masks of R rows of `width` ids: a uint32[(width + 31) / 32] of each, or None.
class MasksView {
 public:
  MasksView(const nb::tuple& masks, int64_t rows, int64_t width) {
    if (static_cast<int64_t>(masks.size()) != rows) {
      refuse(std::to_string(masks.size()) + " masks for " + std::to_string(rows) +
             " rows of logits");
    }
    for (const nb::handle mask : masks) {
      views_.emplace_back(mask, "masks", 1).require(0, (width + 31) / 32);
    }
  }

  const uint32_t* row(int64_t i) const { return views_[static_cast<size_t>(i)].data(); }

 private:
  std::deque<OptionalView<uint32_t>> views_;  // none of them is ever moved
};

void sample(Backend& backend, nb::handle logits, int64_t num_tokens, nb::handle temperature,
            nb::handle top_k, nb::handle top_p, nb::handle min_p, nb::handle uniform,
            nb::handle ids, std::optional<nb::tuple> chains, std::optional<nb::tuple> masks) {
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
  std::optional<MasksView> masked;
  if (masks) masked.emplace(*masks, rows, from.size(1));
  std::vector<SampleRow> of;
  for (int64_t i = 0; i < rows; ++i) {
    SampleRow row{t.data()[i], k.data()[i], p.data()[i], m.data()[i], u.data()[i]};
    if (chained) row.chain = chained->row(i);
    if (masked) row.mask = masked->row(i);
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

void bind_sampling(nb::module_&, nb::class_<Backend>& backend) {
  backend
      .def("sample", &sample, nb::arg("logits"), nb::arg("num_tokens"), nb::arg("temperature"),
           nb::arg("top_k"), nb::arg("top_p"), nb::arg("min_p"), nb::arg("uniform"),
           nb::arg("ids"), nb::arg("chains") = nb::none(), nb::arg("masks") = nb::none())
      .def("top_logprobs", &top_logprobs);
}

}  // namespace headrace
