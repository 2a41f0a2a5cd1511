// Which dispatch levels were compiled, which of them this machine can run, and the best one.

#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace headrace {

struct Level {
  const char* name;
  const Kernels& (*kernels)();  // only where it is usable
  bool usable;
};

// What was compiled, best first.
std::vector<Level> levels();

// Names of the levels this machine can run, best first; "portable" is always the last.
std::vector<std::string> usable_levels();

// "auto" is the best one. Throws std::invalid_argument naming what there is.
const Kernels& select_level(const std::string& name);

}  // namespace headrace
