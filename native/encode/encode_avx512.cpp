#define HEADRACE_LANES 16
#include "encode/points.h"
#include "encode/search.h"

namespace headrace {
void search_avx512(const Task& task) { search(task); }
void search_points_avx512(const PointTask& task) { search_points(task); }
}  // namespace headrace
