// The tile instructions in plain C++, as Intel's manual (volume 2) defines them, with the interface
// of amx_tiles.h. What an instruction would fault on ends the program.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "amx_tiles.h"

namespace {

struct SoftTiles {
  struct State {
    bool configured = false;
    TileConfig config;
    uint8_t data[8][16][64] = {};
  };
  static State& state() {
    static thread_local State of_thread;
    return of_thread;
  }
  static void require(bool good, const char* what) {
    if (good) return;
    std::printf("tile instruction would fault: %s\n", what);
    std::exit(2);
  }
  static int rows(int tile) { return state().config.rows[tile]; }
  static int row_bytes(int tile) { return state().config.row_bytes[tile]; }
  static void require_shape(int tile) {
    require(state().configured && rows(tile) > 0 && row_bytes(tile) > 0, "tile without a shape");
  }
  static void require_product(int sum, int a, int b) {
    require_shape(sum);
    require_shape(a);
    require_shape(b);
    require(sum != a && sum != b && a != b, "same tile twice");
    require(rows(sum) == rows(a) && row_bytes(sum) == row_bytes(b) &&
                row_bytes(a) == 4 * rows(b), "shapes do not fit");
  }

  static void configure(const TileConfig& config) {
    State& s = state();
    require(config.palette == 1 && config.start_row == 0, "palette or start row");
    for (int i = 0; i < 16; ++i) {
      const bool none = config.rows[i] == 0 && config.row_bytes[i] == 0;
      require(none || (i < 8 && config.rows[i] > 0 && config.rows[i] <= 16 &&
                       config.row_bytes[i] > 0 && config.row_bytes[i] <= 64), "shape of a tile");
    }
    s.config = config;
    s.configured = true;
    std::memset(s.data, 0, sizeof s.data);
  }
  static void release() { state().configured = false; }

  template <int kTo>
  static void zero() {
    require_shape(kTo);
    std::memset(state().data[kTo], 0, sizeof state().data[kTo]);
  }
  template <int kTo>
  static void load(const void* from, int64_t row_stride) {
    zero<kTo>();
    for (int i = 0; i < rows(kTo); ++i) {
      std::memcpy(state().data[kTo][i], static_cast<const uint8_t*>(from) + i * row_stride,
                  static_cast<size_t>(row_bytes(kTo)));
    }
  }
  template <int kFrom>
  static void store(void* to, int64_t row_stride) {
    require_shape(kFrom);
    for (int i = 0; i < rows(kFrom); ++i) {
      std::memcpy(static_cast<uint8_t*>(to) + i * row_stride, state().data[kFrom][i],
                  static_cast<size_t>(row_bytes(kFrom)));
    }
  }

  // Element [row][i] of a tile of T.
  template <class T>
  static T get(int tile, int row, int i) {
    T x;
    std::memcpy(&x, state().data[tile][row] + static_cast<size_t>(i) * sizeof(T), sizeof x);
    return x;
  }
  template <class T>
  static void put(int tile, int row, int i, T x) {
    std::memcpy(state().data[tile][row] + static_cast<size_t>(i) * sizeof(T), &x, sizeof x);
  }
  static float bf16(int tile, int row, int i) {
    const uint32_t bits = static_cast<uint32_t>(get<uint16_t>(tile, row, i)) << 16;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }

  template <int kSum, int kA, int kB>
  static void multiply_bf16() {
    require_product(kSum, kA, kB);
    for (int m = 0; m < rows(kSum); ++m) {
      for (int n = 0; n < row_bytes(kSum) / 4; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < row_bytes(kA) / 4; ++k) {
          even = std::fma(bf16(kA, m, 2 * k), bf16(kB, k, 2 * n), even);
          odd = std::fma(bf16(kA, m, 2 * k + 1), bf16(kB, k, 2 * n + 1), odd);
        }
        put(kSum, m, n, get<float>(kSum, m, n) + (even + odd));
      }
    }
  }
  template <int kSum, int kA, int kB, class Weight>
  static void multiply_bytes() {
    require_product(kSum, kA, kB);
    for (int m = 0; m < rows(kSum); ++m) {
      for (int n = 0; n < row_bytes(kSum) / 4; ++n) {
        int32_t sum = get<int32_t>(kSum, m, n);
        for (int i = 0; i < row_bytes(kA); ++i) {
          sum += get<int8_t>(kA, m, i) * get<Weight>(kB, i / 4, 4 * n + i % 4);
        }
        put(kSum, m, n, sum);
      }
    }
  }
  template <int kSum, int kA, int kB>
  static void multiply_signed() {
    multiply_bytes<kSum, kA, kB, int8_t>();
  }
  template <int kSum, int kA, int kB>
  static void multiply_int8() {
    multiply_bytes<kSum, kA, kB, uint8_t>();
  }
};

}  // namespace
