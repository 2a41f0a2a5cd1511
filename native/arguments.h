// Arguments as they come from Python: ranges, stored rows, norms and activations, checked once and
// trusted afterwards.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

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

// Stored rows of a matrix of an expert, with the arrays they lie in kept alive.
class MatrixRows {
 public:
  MatrixRows(const MatrixRows&) = delete;
  MatrixRows& operator=(const MatrixRows&) = delete;

  Codec codec() const { return codec_; }
  int64_t width() const { return width_; }
  int64_t count() const { return stored_.count; }
  const StoredRows& stored() const { return stored_; }

 protected:
  MatrixRows(Codec codec, int64_t width) : codec_(codec), width_(width) {
    const CodecFacts& f = facts(codec_);
    if (width < 0 || width > kMostWidth) {
      refuse("rows of width " + std::to_string(width) + ": must be in [0, " +
             std::to_string(kMostWidth) + "]");
    }
    if (width % f.stored_elements != 0) {
      refuse("rows of width " + std::to_string(width) + " cannot be " + f.name +
             ": not a multiple of its block of " + std::to_string(f.stored_elements));
    }
  }

  StoredRows stored_{};

 private:
  static constexpr int64_t kMostWidth = int64_t{1} << 40;  // no sum of bytes overflows

  Codec codec_;
  int64_t width_;
};

// A stored table of rows, each in one piece.
class Rows : public MatrixRows {
 public:
  // file: a descriptor, open as long as `data` is there, of the file in which it lies from `place`
  // on; -1 without one.
  Rows(const std::string& codec, int64_t width, nanobind::object data, nanobind::object order,
       int file, int64_t place)
      : MatrixRows(codec_of(codec), width), data_(data, "data", 2), order_(order, "row_order", 1) {
    if (this->codec() == Codec::f8_e4m3) refuse("rows of F8_E4M3 have scales: ScaledRows");
    const int64_t bytes = row_bytes(this->codec(), width);
    data_.require(1, bytes);
    if (order_) order_.view().require_below(data_.size(0));
    stored_ = {data_.data(), order_.data(), order_ ? order_.view().size(0) : data_.size(0), bytes};
    if (file >= 0 && place < 0) refuse("rows lie in a file at " + std::to_string(place));
    stored_.file = file;
    stored_.place_in_file = place;
  }

  const uint8_t* data() const { return data_.data(); }
  const int32_t* order() const { return order_.data(); }
  const uint8_t* row(int64_t i) const { return stored_.row(i); }

 private:
  View<uint8_t> data_;
  OptionalView<int32_t> order_;
};

// A matrix of plain values that is stored turned: uint8[rows, columns, bytes of a value], strided.
class TurnedRows : public MatrixRows {
 public:
  TurnedRows(const std::string& codec, nanobind::object values)
      : TurnedRows(codec, std::make_unique<StridedView>(values, "values", 3)) {}

 private:
  TurnedRows(const std::string& codec, std::unique_ptr<StridedView> values)
      : MatrixRows(codec_of(codec), values->size(1)), values_(std::move(values)) {
    const CodecFacts& f = facts(this->codec());
    if (f.stored_elements != 1) refuse("rows of " + codec + " cannot be stored turned");
    values_->require(2, f.stored_bytes);
    stored_ = {values_->data(), nullptr, values_->size(0), row_bytes(this->codec(), width()),
               {f.stored_bytes, values_->stride(1), values_->stride(0)}};
  }

  std::unique_ptr<StridedView> values_;
};

// A matrix of MXFP4 whose numbers and exponents are apart: uint8[rows, blocks, 16], two neighbours
// in a byte, and uint8[rows, blocks]; both strided.
class SplitRows : public MatrixRows {
 public:
  SplitRows(nanobind::object pairs, nanobind::object exponents)
      : SplitRows(std::make_unique<StridedView>(pairs, "pairs", 3),
                  std::make_unique<StridedView>(exponents, "exponents", 2)) {}

 private:
  static constexpr int64_t kBlock = facts(Codec::mxfp4).stored_elements;

  SplitRows(std::unique_ptr<StridedView> pairs, std::unique_ptr<StridedView> exponents)
      : MatrixRows(Codec::mxfp4, pairs->size(1) * kBlock),
        pairs_(std::move(pairs)),
        exponents_(std::move(exponents)) {
    pairs_->require(2, kBlock / 2);
    exponents_->require(0, pairs_->size(0));
    exponents_->require(1, pairs_->size(1));
    stored_ = {pairs_->data(), nullptr, pairs_->size(0), row_bytes(codec(), width()),
               {kBlock / 2, pairs_->stride(1), pairs_->stride(0), exponents_->data(),
                exponents_->stride(0)}};
  }

  std::unique_ptr<StridedView> pairs_, exponents_;
};

// A matrix of F8_E4M3, uint8[rows, columns], and its scales, float32[row blocks, column blocks].
class ScaledRows : public MatrixRows {
 public:
  ScaledRows(nanobind::object values, nanobind::object scales, int64_t block_rows,
             int64_t block_columns, nanobind::object order)
      : ScaledRows(std::make_unique<View<uint8_t>>(values, "values", 2), scales, block_rows,
                   block_columns, order) {}

 private:
  ScaledRows(std::unique_ptr<View<uint8_t>> values, nanobind::object scales, int64_t block_rows,
             int64_t block_columns, nanobind::object order)
      : MatrixRows(Codec::f8_e4m3, values->size(1)),
        values_(std::move(values)),
        scales_(scales, "scales", 2),
        order_(order, "row_order", 1) {
    const int64_t rows = values_->size(0), width = values_->size(1);
    const auto check = [](const char* name, int64_t value, bool good, const char* rule) {
      if (!good) refuse(std::string(name) + " " + std::to_string(value) + " is not " + rule);
    };
    // Sizes of dimensions have 32 bits here; sums with larger ones would overflow.
    constexpr int64_t kMost = INT32_MAX;
    check("block_rows", block_rows, block_rows >= 1 && block_rows <= kMost, "1 to 2147483647");
    check("block_columns", block_columns,
          block_columns >= 1 && block_columns <= kMost &&
              (block_columns % kRun == 0 || block_columns >= width),
          "a multiple of 128, or all columns, and at most 2147483647");
    scales_.require(0, (rows + block_rows - 1) / block_rows);
    scales_.require(1, (width + block_columns - 1) / block_columns);
    if (order_) order_.view().require_below(rows);
    stored_ = {values_->data(), order_.data(), order_ ? order_.view().size(0) : rows,
               headrace::row_bytes(Codec::f8_e4m3, width), {}};
    stored_.pieces.bytes = width;
    stored_.pieces.scales = scales_.data();
    stored_.pieces.scales_stride = scales_.size(1);
    stored_.pieces.block_rows = block_rows;
    stored_.pieces.block_columns = block_columns;
  }

  std::unique_ptr<View<uint8_t>> values_;
  View<float> scales_;
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

inline Activation activation_of(const std::string& kind, bool gated) {
  if (kind == "silu") return Activation::silu;
  if (kind == "gelu") return Activation::gelu;
  if (kind == "gelu_tanh") return Activation::gelu_tanh;
  if (kind == "relu") return Activation::relu;
  if (kind == "relu2") return Activation::relu2;
  if (kind == "swiglu_clamped" && gated) return Activation::swiglu_clamped;
  refuse("activation '" + kind + "' is unknown; supported: silu, gelu, gelu_tanh, relu, relu2" +
         (gated ? ", swiglu_clamped" : ""));
}

// What bounds a gate and what it meets; 0 where nothing does.
inline void check_limit(float limit, Activation function) {
  check_range("limit", limit, limit >= 0 && limit <= 3.4e38f, "[0, inf)");
  if (limit > 0 && function == Activation::swiglu_clamped) {
    refuse("limit: swiglu_clamped has its own");
  }
}

}  // namespace headrace
