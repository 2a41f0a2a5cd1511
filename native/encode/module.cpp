// The Python module of encoders: searches over arrays that are handed in. Arguments are checked
// here, and the interpreter is let go meanwhile, so that threads of Python encode side by side.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "encode/fitted.h"
#include "encode/kinds.h"
#include "view.h"

namespace headrace {

void search_portable(const Task& task);
void search_points_portable(const PointTask& task);
#if defined(__x86_64__)
void search_avx512(const Task& task);
void search_points_avx512(const PointTask& task);
#endif

namespace {

bool has_avx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

std::vector<std::string> levels() {
  if (has_avx512()) return {"avx512", "portable"};
  return {"portable"};
}

Kind kind_of(const std::string& name) {
  std::string names;
  for (int i = 0; i < kKinds; ++i) {
    if (name == kKindFacts[i].name) return static_cast<Kind>(i);
    names += (i == 0 ? "" : ", ") + std::string(kKindFacts[i].name);
  }
  refuse("kind " + name + " is not encoded by search; these are: " + names);
}

void check_level(const std::string& level) {
  if (level != "auto" && level != "portable" && !(level == "avx512" && has_avx512())) {
    refuse("level '" + level + "' is not available on this machine");
  }
}

void search(const std::string& name, nanobind::object values, nanobind::object weights,
            nanobind::object quants, nanobind::object scales, nanobind::object minimums,
            nanobind::object d, nanobind::object dmin, const std::string& level) {
  const Kind kind = kind_of(name);
  const KindFacts& facts = kKindFacts[static_cast<int>(kind)];
  check_level(level);
  const View<float> x(values, "values", 2);
  const OptionalView<float> w(weights, "weights", 2);
  const View<uint8_t> q(quants, "quants", 2, true);
  const View<int8_t> s(scales, "scales", 2, true), m(minimums, "minimums", 2, true);
  const View<float> unit(d, "d", 1, true), deep(dmin, "dmin", 1, true);
  const int64_t blocks = x.size(0);
  x.require(1, facts.elements);
  if (w) {
    w.view().require(0, blocks);
    w.view().require(1, facts.elements);
  }
  q.require(0, blocks);
  q.require(1, facts.elements);
  s.require(0, blocks);
  s.require(1, facts.groups);
  m.require(0, blocks);
  m.require(1, facts.minimums ? facts.groups : 0);
  unit.require(0, blocks);
  deep.require(0, facts.minimums ? blocks : 0);
  const Task task{kind,     blocks,   x.data(),    w.data(),   q.data(),
                  s.data(), m.data(), unit.data(), deep.data()};
  const nanobind::gil_scoped_release release;
#if defined(__x86_64__)
  if (level != "portable" && has_avx512()) return search_avx512(task);
#endif
  search_portable(task);
}

int point_kind_of(const std::string& name) {
  std::string names;
  for (int i = 0; i < kPointKinds; ++i) {
    if (name == kPointFacts[i].name) return i;
    names += (i == 0 ? "" : ", ") + std::string(kPointFacts[i].name);
  }
  refuse("kind " + name + " has no points; these have: " + names);
}

void search_points(const std::string& name, nanobind::object values, nanobind::object weights,
                   nanobind::object book, nanobind::object points, nanobind::object signs,
                   nanobind::object scales, nanobind::object d, const std::string& level) {
  const int kind = point_kind_of(name);
  const PointFacts& facts = kPointFacts[kind];
  check_level(level);
  const View<float> x(values, "values", 2);
  const OptionalView<float> w(weights, "weights", 2);
  const View<uint8_t> b(book, "book", 2), s(signs, "signs", 2, true), c(scales, "scales", 2, true);
  const View<uint16_t> p(points, "points", 2, true);
  const View<float> unit(d, "d", 1, true);
  const int64_t blocks = x.size(0);
  x.require(1, 256);
  if (w) {
    w.view().require(0, blocks);
    w.view().require(1, 256);
  }
  b.require(0, facts.points);
  b.require(1, facts.length);
  for (int64_t i = 0; i < facts.points * facts.length; ++i) {
    if (b.data()[i] >= facts.num_levels) refuse("book: a level is beyond those of " + name);
  }
  p.require(0, blocks);
  p.require(1, 256 / facts.length);
  s.require(0, blocks);
  s.require(1, 32);
  c.require(0, blocks);
  c.require(1, facts.groups);
  unit.require(0, blocks);
  const PointTask task{kind,     blocks,   x.data(), w.data(),   b.data(),
                       p.data(), s.data(), c.data(), unit.data()};
  const nanobind::gil_scoped_release release;
#if defined(__x86_64__)
  if (level != "portable" && has_avx512()) return search_points_avx512(task);
#endif
  search_points_portable(task);
}

void nvfp4(nanobind::object values, nanobind::object weights, nanobind::object units,
           nanobind::object scales, nanobind::object codes) {
  const View<float> x(values, "values", 2), u(units, "units", 1);
  const OptionalView<float> w(weights, "weights", 2);
  const View<uint8_t> s(scales, "scales", 1, true), c(codes, "codes", 2, true);
  const int64_t runs = x.size(0);
  x.require(1, kNvRun);
  if (w) {
    w.view().require(0, runs);
    w.view().require(1, kNvRun);
  }
  u.require(0, 127);
  s.require(0, runs);
  c.require(0, runs);
  c.require(1, kNvRun);
  const NvTask task{runs, x.data(), w.data(), u.data(), s.data(), c.data()};
  const nanobind::gil_scoped_release release;
  find_nvfp4(task);
}

void q2_0(nanobind::object values, nanobind::object weights, nanobind::object scales) {
  const View<float> x(values, "values", 2);
  const OptionalView<float> w(weights, "weights", 2);
  const View<float> d(scales, "scales", 1, true);
  const int64_t blocks = x.size(0);
  x.require(1, kTernaryRun);
  if (w) {
    w.view().require(0, blocks);
    w.view().require(1, kTernaryRun);
  }
  d.require(0, blocks);
  const TernaryTask task{blocks, x.data(), w.data(), d.data()};
  const nanobind::gil_scoped_release release;
  find_q2_0(task);
}

}  // namespace
}  // namespace headrace

NB_MODULE(_search, m) {
  m.def("levels", &headrace::levels);
  m.def("search", &headrace::search, nanobind::arg("kind"), nanobind::arg("values"),
        nanobind::arg("weights").none(), nanobind::arg("quants"), nanobind::arg("scales"),
        nanobind::arg("minimums"), nanobind::arg("d"), nanobind::arg("dmin"),
        nanobind::arg("level") = "auto");
  m.def("search_points", &headrace::search_points, nanobind::arg("kind"), nanobind::arg("values"),
        nanobind::arg("weights").none(), nanobind::arg("book"), nanobind::arg("points"),
        nanobind::arg("signs"), nanobind::arg("scales"), nanobind::arg("d"),
        nanobind::arg("level") = "auto");
  m.def("nvfp4", &headrace::nvfp4, nanobind::arg("values"), nanobind::arg("weights").none(),
        nanobind::arg("units"), nanobind::arg("scales"), nanobind::arg("codes"));
  m.def("q2_0", &headrace::q2_0, nanobind::arg("values"), nanobind::arg("weights").none(),
        nanobind::arg("scales"));
}
