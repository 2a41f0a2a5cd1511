// Vectors of four floats, which every machine has. Eight (AVX2) are slower than these as gcc 12
// compiles them.
#define HEADRACE_LANES 4
#include "encode/points.h"
#include "encode/search.h"

namespace headrace {
void search_portable(const Task& task) { search(task); }
void search_points_portable(const PointTask& task) { search_points(task); }
}  // namespace headrace
