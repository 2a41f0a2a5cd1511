// How kernels compute: rounding to nearest even, no traps, and denormals read as zero and flushed
// to zero (they carry nothing, and one of them costs more than a hundred multiplies). Whatever mode
// the thread had comes back afterwards.

#pragma once

#include <cstdint>

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

namespace headrace {

class FlushDenormals {
 public:
  FlushDenormals() : saved_(read()) { write(kMode); }
  ~FlushDenormals() { write(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__) || defined(__i386__)
  using Word = uint32_t;
  static constexpr Word kMode = 0x1f80 | 0x8040;  // exceptions masked; FTZ, DAZ
  static Word read() { return _mm_getcsr(); }
  static void write(Word word) { _mm_setcsr(word); }
#elif defined(__aarch64__)
  using Word = uint64_t;
  static constexpr Word kMode = 1u << 24;  // FZ
  static Word read() {
    Word word;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void write(Word word) { asm volatile("msr fpcr, %0" : : "r"(word)); }
#else
  using Word = uint32_t;
  static constexpr Word kMode = 0;
  static Word read() { return 0; }
  static void write(Word) {}
#endif

  Word saved_;
};

}  // namespace headrace
