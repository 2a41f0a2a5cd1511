// The parts of the Python module, by subject. Each binds its classes to the module and its
// operations to Backend. Arguments are checked there, so that a wrong call raises and never crashes;
// the interpreter is let go while kernels run.

#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "backend.h"

namespace headrace {

namespace nb = nanobind;

void bind_attention(nb::module_& m, nb::class_<Backend>& backend);
void bind_elementwise(nb::module_& m, nb::class_<Backend>& backend);
void bind_experts(nb::module_& m, nb::class_<Backend>& backend);
void bind_linear(nb::module_& m, nb::class_<Backend>& backend);
void bind_sampling(nb::module_& m, nb::class_<Backend>& backend);

}  // namespace headrace
