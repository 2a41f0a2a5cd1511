// The parts of the Python module, by subject. Each binds its classes to the module and its
// operations to Backend. Arguments are checked there, so that a wrong call raises and never
// crashes; the interpreter is let go while kernels run, and what a step computes can be noted on a
// tape.

#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "backend.h"
#include "tape.h"

namespace headrace {

namespace nb = nanobind;

// Runs an operation, whose arguments are checked and whose memory outlives it, and notes it where
// this thread's operations are noted.
template <class Call>
void run(Backend& backend, const Call& call) {
  Tape* tape = backend.tape();
  if (tape != nullptr && tape->is_of_this_thread()) tape->add(call);
  const nb::gil_scoped_release release;
  call();
}

void bind_attention(nb::module_& m, nb::class_<Backend>& backend);
void bind_elementwise(nb::module_& m, nb::class_<Backend>& backend);
void bind_experts(nb::module_& m, nb::class_<Backend>& backend);
void bind_linear(nb::module_& m, nb::class_<Backend>& backend);
void bind_sampling(nb::module_& m, nb::class_<Backend>& backend);
void bind_tape(nb::module_& m, nb::class_<Backend>& backend);

}  // namespace headrace
