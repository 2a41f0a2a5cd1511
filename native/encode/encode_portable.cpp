// Vectors of four floats, which every machine has. Eight (AVX2) are slower than these as gcc 12
// compiles them.
#define HEADRACE_LANES 4
#include "encode/search.h"

namespace headrace {
void search_portable(const Task& task) { search(task); }
}  // namespace headrace
