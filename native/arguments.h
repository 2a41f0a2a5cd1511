// Weights as they come from Python: stored rows and norms, checked once and trusted afterwards.

#pragma once

#include <cstdint>
#include <string>

#include "expert_weights.h"
#include "kernels.h"
#include "pack.h"
#include "view.h"

namespace headrace {

inline Codec codec_of(const std::string& name) {
  std::string names;
  for (int i = 0; i < kCodecs; ++i) {
    if (name == kCodecFacts[i].name) return static_cast<Codec>(i);
    names += (i == 0 ? "" : ", ") + std::string(kCodecFacts[i].name);
  }
  refuse("codec " + name + " is unknown; supported: " + names);
}

// A stored table of rows, with the arrays it lies in kept alive.
class Rows {
 public:
  Rows(const std::string& codec, int64_t width, nanobind::object data, nanobind::object order)
      : codec_(codec_of(codec)), width_(width), data_(data, "data", 2),
        order_(order, "row_order", 1) {
    const CodecFacts& f = facts(codec_);
    if (width < 0 || width > kMostWidth) {
      refuse("rows of width " + std::to_string(width) + ": must be in [0, " +
             std::to_string(kMostWidth) + "]");
    }
    if (width % f.stored_elements != 0) {
      refuse("rows of width " + std::to_string(width) + " cannot be " + f.name +
             ": not a multiple of its block of " + std::to_string(f.stored_elements));
    }
    data_.require(1, row_bytes(codec_, width));
    if (order_) order_.view().require_below(data_.size(0));
  }

  Codec codec() const { return codec_; }
  int64_t width() const { return width_; }
  int64_t count() const { return order_ ? order_.view().size(0) : data_.size(0); }
  const uint8_t* data() const { return data_.data(); }
  const int32_t* order() const { return order_.data(); }
  StoredRows stored() const { return {data(), order(), count(), row_bytes(codec_, width_)}; }
  const uint8_t* row(int64_t i) const {
    return data() + (order_ ? order_.data()[i] : i) * row_bytes(codec_, width_);
  }

 private:
  static constexpr int64_t kMostWidth = int64_t{1} << 40;  // no sum of bytes overflows

  Codec codec_;
  int64_t width_;
  View<uint8_t> data_;
  OptionalView<int32_t> order_;
};

template <class T>
void check_range(const char* name, T value, bool good, const char* range) {
  if (!good) refuse(std::string(name) + " " + std::to_string(value) + " is not in " + range);
}

// A norm's arrays, each of the width it is meant for.
class NormView {
 public:
  NormView(nanobind::handle weight, nanobind::handle bias, float eps, bool centred)
      : weight_(weight, "norm weight", 1), bias_(bias, "norm bias", 1), eps_(eps),
        centred_(centred) {
    bias_.require(0, width());
  }
  int64_t width() const { return weight_ ? weight_.view().size(0) : 0; }
  void require(int64_t width) const { weight_.require(0, width); }
  NormWeights view() const { return {weight_.data(), bias_.data(), eps_, centred_}; }

 private:
  OptionalView<float> weight_;
  OptionalView<float> bias_;
  float eps_;
  bool centred_;
};

}  // namespace headrace
