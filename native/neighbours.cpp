#include "neighbours.h"

#include <algorithm>

namespace headrace {
namespace {

struct Sharing {
  int64_t request;
  int64_t opening;  // the first block that is seen
  int64_t end;      // the position before which all spans are compared
  const int32_t* table;
};

// Of `count` requests that are compared from block `opening` on.
class InOrder {
 public:
  InOrder(int64_t opening, int64_t block_size) : opening_(opening), block_size_(block_size) {}

  void sort(Sharing* of, int64_t count) const {
    std::stable_sort(of, of + count, [&](const Sharing& a, const Sharing& b) {
      return std::lexicographical_compare(begin(a), end(a), begin(b), end(b));
    });
  }

  // The first position that is compared.
  int64_t from() const { return (opening_ * block_size_ + kSpan - 1) / kSpan * kSpan; }

  // Up to which position both have the same K and V; 0 where that is no span.
  int64_t shared(const Sharing& a, const Sharing& b) const {
    const int64_t alike = std::mismatch(begin(a), end(a), begin(b), end(b)).first - begin(a);
    const int64_t position = std::min({(opening_ + alike) * block_size_, a.end, b.end});
    return position / kSpan * kSpan > from() ? position / kSpan * kSpan : 0;
  }

 private:
  const int32_t* begin(const Sharing& of) const { return of.table + opening_; }
  const int32_t* end(const Sharing& of) const {
    return of.table + std::max(opening_, (of.end + block_size_ - 1) / block_size_);
  }

  int64_t opening_;
  int64_t block_size_;
};

}  // namespace

std::vector<Neighbour> find_neighbours(const BatchView& batch, const Visibility& sees,
                                       int64_t block_size) {
  std::vector<Neighbour> order;
  std::vector<Sharing> all;
  for (int64_t r = 0; batch.requests > 1 && r < batch.requests; ++r) {
    if (batch.query_start[r] == batch.query_start[r + 1]) continue;
    const int64_t position = batch.positions[batch.query_start[r]];
    all.push_back({r, first_seen(sees, position) / block_size, position / kSpan * kSpan,
                   batch.block_tables + r * batch.table_width});
  }
  // The furthest first; it is compared with those that are not wholly before what it sees.
  std::stable_sort(all.begin(), all.end(),
                   [](const Sharing& a, const Sharing& b) { return a.opening > b.opening; });
  bool any = false;
  const auto count = static_cast<int64_t>(all.size());
  for (int64_t i = 0, next; i < count; i = next) {
    const InOrder compared(all[static_cast<size_t>(i)].opening, block_size);
    for (next = i + 1; next < count; ++next) {
      if (all[static_cast<size_t>(next)].end <= compared.from()) break;
    }
    Sharing* const of = all.data() + i;
    compared.sort(of, next - i);
    for (int64_t j = 0; j < next - i; ++j) {
      const int64_t shared = j == 0 ? 0 : compared.shared(of[j - 1], of[j]);
      any |= shared != 0;
      order.push_back({of[j].request, compared.from(), shared});
    }
  }
  if (!any) order.clear();
  return order;
}

}  // namespace headrace
