// The text of one request, and where its last tokens came before in it.
//
//   guess = t[p : p + k],  p the latest place in t[: N - 1] with t[p - n : p] = t[N - n : N]
//
// for the longest n of those that are sought. While a guess is right its place moves on with the
// text. headrace/engine/drafts/lookup/prompt_lookup.py says what it is for.

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace headrace {

class Text {
 public:
  // lengths: of matches that are sought, ascending, at least one, each 1 or more. most_match:
  // tokens of a match that are counted.
  Text(std::vector<int32_t> lengths, int32_t most_match)
      : lengths_(std::move(lengths)), most_match_(most_match) {}

  int64_t size() const { return static_cast<int64_t>(ids_.size()); }

  // What follows the last tokens of the text with `added` behind it, at most so many; and how many
  // of them are the same there. Empty and 0 where nothing does.
  std::pair<std::vector<int32_t>, int32_t> guess(const std::vector<int32_t>& added, int64_t most) {
    for (const int32_t id : added) read(id);
    if (match_ < lengths_.front()) seek();
    std::vector<int32_t> found;
    if (match_ == 0) return {found, 0};
    const int64_t end = size(), period = end - place_;
    for (int64_t k = 0; k < most; ++k) found.push_back(ids_[place_ + k % period]);
    return {found, match_};
  }

 private:
  void read(int32_t id) {
    if (match_ > 0) {
      if (ids_[place_] == id) {
        ++place_;
        match_ = std::min(match_ + 1, most_match_);
      } else {
        match_ = 0;
      }
    }
    ids_.push_back(id);
  }

  // Last tokens that are those before a place, at most so many.
  int64_t same_before(int64_t place, int64_t most) const {
    const int32_t* end = ids_.data() + size();
    const int32_t* other = ids_.data() + place;
    int64_t count = 0;
    while (count < most && end[-1 - count] == other[-1 - count]) ++count;
    return count;
  }

  void seek() {
    match_ = 0;
    const int64_t end = size();
    if (end == 0) return;
    const int32_t last = ids_.back();
    size_t reached = 0;  // lengths that some later place has
    for (int64_t place = end - 1; place > 0 && reached < lengths_.size(); --place) {
      if (ids_[place - 1] != last) continue;
      const int64_t same = same_before(place, std::min<int64_t>(place, lengths_.back()));
      if (same < lengths_[reached]) continue;
      while (reached < lengths_.size() && same >= lengths_[reached]) ++reached;
      place_ = place;
    }
    if (reached > 0) {
      match_ = static_cast<int32_t>(same_before(place_, std::min<int64_t>(place_, most_match_)));
    }
  }

  std::vector<int32_t> ids_;
  const std::vector<int32_t> lengths_;
  const int32_t most_match_;
  int64_t place_ = 0;  // of what is guessed
  int32_t match_ = 0;  // 0: there is no place
};

}  // namespace headrace
