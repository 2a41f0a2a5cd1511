// Steps that are noted and run again.

#include "tape.h"

#include "bindings.h"

namespace headrace {

void bind_tape(nb::module_& m, nb::class_<Backend>& backend) {
  nb::class_<Tape>(m, "Tape")
      .def(nb::init<>())
      .def("__len__", &Tape::size)
      .def("run", &Tape::run, nb::call_guard<nb::gil_scoped_release>());
  backend.def("note_on", [](Backend& b, Tape* tape) { b.note_on(tape); }, nb::arg("tape").none());
}

}  // namespace headrace
