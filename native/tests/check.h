// What the native tests are written with: counted checks, and random numbers that depend on a seed
// alone. Failures are printed at once, the first few of each check's elements; the program goes on.

#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace headrace::tests {

class Checks {
 public:
  explicit Checks(std::string level) : level_(std::move(level)) {}

  void that(bool good, const std::string& what) {
    ++made_;
    if (!good) fail(what);
  }

  // Bit for bit, but any NaN for a NaN.
  void equal(const std::vector<float>& got, const std::vector<float>& want,
             const std::string& what) {
    compare(got, want, what, [](float a, float b) {
      return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
             (std::isnan(a) && std::isnan(b));
    });
  }

  // |got - want| <= relative * |want|, element by element.
  void near(const std::vector<float>& got, const std::vector<float>& want, double relative,
            const std::string& what) {
    compare(got, want, what, [relative](double a, double b) {
      return a == b || std::abs(a - b) <= relative * std::abs(b);
    });
  }

  int64_t made() const { return made_; }
  int64_t failed() const { return failed_; }

 private:
  template <class Fn>
  void compare(const std::vector<float>& got, const std::vector<float>& want,
               const std::string& what, const Fn& same) {
    ++made_;
    if (got.size() != want.size()) return fail(what + ": sizes differ");
    int64_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      if (same(got[i], want[i])) continue;
      if (++wrong <= kShown) {
        std::printf("  [%zu] is %.9g (%a), not %.9g (%a)\n", i, got[i], got[i], want[i], want[i]);
      }
    }
    if (wrong != 0) fail(what + ": " + std::to_string(wrong) + " of " + std::to_string(got.size()));
  }
  void fail(const std::string& what) {
    ++failed_;
    std::printf("FAILED %s: %s\n", level_.c_str(), what.c_str());
  }

  static constexpr int64_t kShown = 3;
  std::string level_;
  int64_t made_ = 0;
  int64_t failed_ = 0;
};

// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
  // In (-scale, scale), never denormal and never zero.
  float value(float scale = 1.0f) {
    const double unit = static_cast<double>(bits() >> 40) * 0x1p-23 - 1.0 + 0x1p-25;
    return static_cast<float>(unit * static_cast<double>(scale));
  }
  std::vector<float> values(int64_t count, float scale = 1.0f) {
    std::vector<float> x(static_cast<size_t>(count));
    for (float& v : x) v = value(scale);
    return x;
  }

 private:
  uint64_t state_;
};

}  // namespace headrace::tests
