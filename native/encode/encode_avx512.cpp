#define HEADRACE_LANES 16
#include "encode/search.h"

namespace headrace {
void search_avx512(const Task& task) { search(task); }
}  // namespace headrace
