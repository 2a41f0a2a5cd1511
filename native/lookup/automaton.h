// A suffix automaton of several texts, and readers that go through other texts in it.
//
// A state stands for the pieces that end at the same places; its longest has `length` tokens, and
// its link is the state of the longest piece at its end that ends at more places (Blumer et al.,
// 1985). How many texts have a piece is counted, once for each text.
// headrace/engine/drafts/lookup/past_answers.py says what it is for.

#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

namespace headrace {

class Automaton {
 public:
  static constexpr int32_t kRoot = 0;
  static constexpr int32_t kNone = -1;

  struct Edge {
    int32_t id;
    int32_t to;
  };

  struct State {
    std::vector<Edge> next;  // ascending by id
    int32_t link = kNone;
    int32_t length = 0;
    int32_t count = 0;   // texts that have its pieces
    int32_t latest = 0;  // the last of those
  };

  Automaton() : states_(1) {}

  // What is added from now on is another text.
  void begin() {
    ++texts_;
    end_ = kRoot;
  }

  // Add tokens to the end of the text that was begun last.
  void add(const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) {
      end_ = extended(end_, id);
      for (int32_t at = end_; at != kRoot && states_[at].latest != texts_; at = states_[at].link) {
        states_[at].latest = texts_;
        ++states_[at].count;
      }
    }
  }

  const State& operator[](int32_t at) const { return states_[at]; }

  // The state behind a token; kNone where there is none.
  int32_t following(int32_t at, int32_t id) const {
    const std::vector<Edge>& next = states_[at].next;
    const auto found = place(next, id);
    return found != next.end() && found->id == id ? found->to : kNone;
  }

 private:
  template <typename Edges>
  static auto place(Edges& next, int32_t id) -> decltype(next.begin()) {
    return std::lower_bound(next.begin(), next.end(), id,
                            [](const Edge& edge, int32_t wanted) { return edge.id < wanted; });
  }

  void lead(int32_t at, int32_t id, int32_t to) {
    std::vector<Edge>& next = states_[at].next;
    const auto found = place(next, id);
    if (found != next.end() && found->id == id) {
      found->to = to;
    } else {
      next.insert(found, Edge{id, to});
    }
  }

  int32_t made(State state) {
    states_.push_back(std::move(state));
    return static_cast<int32_t>(states_.size()) - 1;
  }

  // The state of the text one token longer.
  int32_t extended(int32_t end, int32_t id) {
    const int32_t known = following(end, id);
    if (known != kNone) return of_length(end, id, known);
    State fresh;
    fresh.length = states_[end].length + 1;
    const int32_t added = made(std::move(fresh));
    int32_t at = end;
    while (at != kNone && following(at, id) == kNone) {
      lead(at, id, added);
      at = states_[at].link;
    }
    const int32_t link = at == kNone ? kRoot : of_length(at, id, following(at, id));
    states_[added].link = link;
    return added;
  }

  // The state of the longest piece of `at` and a token more: `to`, or, where that has longer pieces
  // too, those up to this one split off from it.
  int32_t of_length(int32_t at, int32_t id, int32_t to) {
    const int32_t length = states_[at].length + 1;
    if (states_[to].length == length) return to;
    State part = states_[to];
    part.length = length;
    const int32_t split = made(std::move(part));
    states_[to].link = split;
    while (at != kNone && following(at, id) == to) {
      lead(at, id, split);
      at = states_[at].link;
    }
    return split;
  }

  std::vector<State> states_;
  int32_t texts_ = 0;
  int32_t end_ = kRoot;
};

// The place of another text: the longest of its ends that is in there. It stays a place where texts
// are added meanwhile, and is the longest again when as many tokens as that has were read.
class Reader {
 public:
  explicit Reader(const Automaton& automaton) : automaton_(automaton) {}

  int32_t match() const { return match_; }

  void read(const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) {
      settle();  // it was split
      int32_t to = automaton_.following(state_, id);
      while (state_ != Automaton::kRoot && to == Automaton::kNone) {
        state_ = automaton_[state_].link;
        match_ = automaton_[state_].length;
        to = automaton_.following(state_, id);
      }
      if (to == Automaton::kNone) continue;
      state_ = to;
      ++match_;
    }
  }

  // What follows the longest end that anything follows, and how long that is: at each place the
  // token that most texts go on with; of equals the one that came last, then the lower id. Empty
  // where that end is shorter than `least`.
  std::pair<std::vector<int32_t>, int32_t> guess(int32_t least, int64_t most) const {
    Reader at = *this;
    at.settle();
    while (at.state_ != Automaton::kRoot && automaton_[at.state_].next.empty()) {
      at.state_ = automaton_[at.state_].link;
      at.match_ = automaton_[at.state_].length;
    }
    std::vector<int32_t> found;
    if (at.match_ < least) return {found, at.match_};
    int32_t state = at.state_;
    while (static_cast<int64_t>(found.size()) < most && !automaton_[state].next.empty()) {
      const std::vector<Automaton::Edge>& next = automaton_[state].next;
      const auto best = std::max_element(
          next.begin(), next.end(), [this](const Automaton::Edge& a, const Automaton::Edge& b) {
            const Automaton::State &x = automaton_[a.to], &y = automaton_[b.to];
            return std::tie(x.count, x.latest, b.id) < std::tie(y.count, y.latest, a.id);
          });
      found.push_back(best->id);
      state = best->to;
    }
    return {found, at.match_};
  }

 private:
  void settle() {
    while (state_ != Automaton::kRoot && match_ <= automaton_[automaton_[state_].link].length) {
      state_ = automaton_[state_].link;
    }
  }

  const Automaton& automaton_;
  int32_t state_ = Automaton::kRoot;
  int32_t match_ = 0;
};

}  // namespace headrace
