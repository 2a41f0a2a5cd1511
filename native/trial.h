// Whether a level really works on this machine: its products of few and of many rows must give the
// same bits.
//
// For levels whose instructions the project has no machine of. What processor and system say they
// have is believed only after it has been tried, in a child process, so that an instruction that
// faults ends the child and not the server.

#pragma once

#include "kernels.h"

namespace headrace {

// Tries BF16 weights and quantised ones with one group, two, and mins. Takes about a millisecond;
// false as well where no child process can be made. Nothing of the caller is changed.
bool passes_trial(const Kernels& kernels);

}  // namespace headrace
