// The Python module of guesses that are looked up. Arguments are checked here.

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "lookup/automaton.h"
#include "lookup/text.h"

namespace nb = nanobind;

NB_MODULE(_lookup, m) {
  using namespace headrace;
  nb::class_<Text>(m, "Text")
      .def("__init__",
           [](Text* self, std::vector<int32_t> lengths, int32_t most_match) {
             if (lengths.empty() || lengths.front() < 1 ||
                 !std::is_sorted(lengths.begin(), lengths.end()) || most_match < lengths.back()) {
               throw std::invalid_argument(
                   "lengths have to be 1 or more, ascending and at most most_match");
             }
             new (self) Text(std::move(lengths), most_match);
           },
           nb::arg("lengths"), nb::arg("most_match"))
      .def("__len__", &Text::size)
      .def("guess", &Text::guess, nb::arg("added"), nb::arg("most"));
  nb::class_<Automaton>(m, "SuffixAutomaton")
      .def(nb::init<>())
      .def("begin", &Automaton::begin)
      .def("add", &Automaton::add, nb::arg("token_ids"));
  nb::class_<Reader>(m, "Reader")
      .def(nb::init<const Automaton&>(), nb::keep_alive<1, 2>(), nb::arg("automaton"))
      .def_prop_ro("match_tokens", &Reader::match)
      .def("read", &Reader::read, nb::arg("token_ids"))
      .def("guess", &Reader::guess, nb::arg("least_match"), nb::arg("most"));
}
