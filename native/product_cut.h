// How the work of a product is cut for the threads: its rows into passes over the weights, the
// panels of each pass into pieces. Never through a sum, so that no cut shows in a result.

#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels.h"

namespace headrace {

// Rows of a product that one piece takes at most: beyond this they gain nothing from weights that
// are in the cache already, and push them out of it.
constexpr int64_t kRowsPerPass = 512;

// Bytes that move through the caches for a product of so many rows, about.
inline int64_t work_of(const PackedMatrix& weight, int64_t rows) {
  const int64_t panels = (weight.out + kLanes - 1) / kLanes;
  return weight.panel_bytes * panels * std::max<int64_t>(1, rows / 8);
}

class ProductCut {
 public:
  // About `wanted` pieces, of a row or more. Rows are cut where there are too many for one pass, or
  // too few panels; two panels stay together where a kernel may take them side by side.
  ProductCut(int64_t out, int64_t rows, int64_t wanted)
      : panels_((out + kLanes - 1) / kLanes),
        rows_(rows),
        unit_(rows > 1 ? 2 : 1),
        units_((panels_ + unit_ - 1) / unit_),
        passes_((rows + kRowsPerPass - 1) / kRowsPerPass) {
    if (units_ * passes_ < wanted) {
      passes_ = std::max<int64_t>(1, std::min(rows / kManyRows, (wanted + units_ - 1) / units_));
    }
    per_pass_ = std::max<int64_t>(1, std::min(units_, wanted / passes_));
  }

  // Pieces, those of a pass one after another.
  int64_t count() const { return passes_ * per_pass_; }
  // Panels of a piece; the thread that takes it most likely takes those before `end` too.
  PanelRange panels(int64_t piece, int64_t end) const {
    const int64_t first = piece / per_pass_ * per_pass_;
    return {panel(piece - first), panel(piece + 1 - first),
            panel(std::min(end - first, per_pass_))};
  }
  int64_t row_begin(int64_t piece) const { return rows_ * (piece / per_pass_) / passes_; }
  int64_t row_end(int64_t piece) const { return rows_ * (piece / per_pass_ + 1) / passes_; }

 private:
  // Where a piece of a pass begins.
  int64_t panel(int64_t piece) const {
    return std::min(panels_, units_ * piece / per_pass_ * unit_);
  }

  int64_t panels_;
  int64_t rows_;
  int64_t unit_;
  int64_t units_;
  int64_t passes_;
  int64_t per_pass_ = 1;
};

}  // namespace headrace
