// Which requests of a batch begin with the same blocks: K and V of what they share are read once
// for all of them. Computed once for a block table and what its layers see.

#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"

namespace headrace {

// The requests of a batch that have tokens, in the order of their block tables, so that those which
// begin alike are neighbours; empty where no two share a span. Compared are the spans of 64 that
// lie before the one in which a request's first token is. Where a window or a chunk hides the
// beginning, those are compared that see the beginning of what the furthest of them sees, from
// there on.
std::vector<Neighbour> find_neighbours(const BatchView& batch, const Visibility& sees,
                                       int64_t block_size);

}  // namespace headrace
