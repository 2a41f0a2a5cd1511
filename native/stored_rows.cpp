#include "stored_rows.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace headrace {
namespace {

constexpr int64_t kPage = 4096;
// The system takes no more of a wish than a device's window for reading ahead, 128 KiB or more.
constexpr int64_t kWish = 128 << 10;
// Behind what is read: two matrices or more of a layer of a small model, some ms of a fast disk.
constexpr int64_t kAhead = 8 << 20;

// A block of MXFP4 from 16 bytes of two neighbouring values each: value i goes to the low half of
// byte i, value i + 16 to the high half.
void join_block(uint8_t exponent, const uint8_t* pairs, uint8_t* to) {
  *to++ = exponent;
  for (int i = 0; i < 8; ++i) {
    const uint8_t low = pairs[i], high = pairs[i + 8];
    *to++ = static_cast<uint8_t>((low & 15) | high << 4);
    *to++ = static_cast<uint8_t>(low >> 4 | (high & 0xf0));
  }
}

// Values of kBytes each, turned: neighbouring rows lie near each other.
template <int kBytes>
void gather_values(const StoredRows& stored, int64_t first, int64_t rows, uint8_t* to) {
  const Pieces& p = stored.pieces;
  const uint8_t* from = stored.data + first * p.row_stride;
  const int64_t columns = stored.row_bytes / kBytes;
  for (int64_t k = 0; k < columns; ++k, from += p.stride, to += kBytes) {
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(to + row * stored.row_bytes, from + row * p.row_stride, kBytes);
    }
  }
}

// The scales of a row's runs, then its values.
void gather_scaled(const StoredRows& stored, int64_t first, int64_t rows, uint8_t* to) {
  const Pieces& p = stored.pieces;
  for (int64_t i = first; i < first + rows; ++i) {
    const int64_t row = stored.place(i);
    const float* scales = p.scales + row / p.block_rows * p.scales_stride;
    for (int64_t k = 0; k < p.bytes; k += kRun, to += sizeof(float)) {
      std::memcpy(to, scales + k / p.block_columns, sizeof(float));
    }
    std::memcpy(to, stored.data + row * p.bytes, static_cast<size_t>(p.bytes));
    to += p.bytes;
  }
}

// What cannot be read (a file that was shortened meanwhile) is taken from where it is mapped, and
// ends as it would have there.
void read_rows(const StoredRows& stored, int64_t first, int64_t rows, uint8_t* to) {
  int64_t at = first * stored.row_bytes;
  const int64_t end = at + rows * stored.row_bytes;
  while (at < end) {
    const ssize_t count =
        pread(stored.file, to, static_cast<size_t>(end - at), stored.place_in_file + at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    at += count;
    to += count;
  }
  std::memcpy(to, stored.data + at, static_cast<size_t>(end - at));
}

void begin_reading(const uint8_t* data, int64_t bytes) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data) / kPage * kPage;
  const uintptr_t end = reinterpret_cast<uintptr_t>(data + bytes);
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);  // a wish
}

}  // namespace

void StoredRows::gather(int64_t first, int64_t rows, uint8_t* to) const {
  if (in_file()) return read_rows(*this, first, rows, to);
  if (pieces.scales != nullptr) return gather_scaled(*this, first, rows, to);
  if (pieces.exponents == nullptr) {
    if (pieces.bytes == 2) return gather_values<2>(*this, first, rows, to);
    return gather_values<4>(*this, first, rows, to);
  }
  const int64_t block = facts(Codec::mxfp4).stored_bytes, blocks = row_bytes / block;
  for (int64_t row = first; row < first + rows; ++row) {
    const uint8_t* from = data + row * pieces.row_stride;
    const uint8_t* exponents = pieces.exponents + row * pieces.exponents_stride;
    for (int64_t b = 0; b < blocks; ++b, from += pieces.stride, to += block) {
      join_block(exponents[b], from, to);
    }
  }
}

void StoredRows::read_ahead() const {
  if (order != nullptr || count == 0 || row_bytes == 0) return;
  if (!in_pieces()) return begin_reading(data, count * row_bytes);
  if (pieces.scales != nullptr) return begin_reading(data, count * pieces.bytes);
  const bool apart = pieces.exponents != nullptr;
  const int64_t each = row_bytes / (apart ? facts(Codec::mxfp4).stored_bytes : pieces.bytes);
  begin_reading(data, (count - 1) * pieces.row_stride + (each - 1) * pieces.stride + pieces.bytes);
  if (apart) begin_reading(pieces.exponents, (count - 1) * pieces.exponents_stride + each);
}

void read_files_ahead(const std::vector<StoredRows>& parts) {
  for (const StoredRows& part : parts) {
    if (!part.in_file()) continue;
    const int64_t end = part.place_in_file + part.count * part.row_bytes + kAhead;
    for (int64_t at = part.place_in_file; at < end; at += kWish) {
      posix_fadvise(part.file, at, std::min(kWish, end - at), POSIX_FADV_WILLNEED);
    }
  }
}

int64_t rows_of(const std::vector<StoredRows>& parts) {
  int64_t rows = 0;
  for (const StoredRows& part : parts) rows += part.count;
  return rows;
}

bool any_gathered(const std::vector<StoredRows>& parts) {
  for (const StoredRows& part : parts) {
    if (part.gathered()) return true;
  }
  return false;
}

}  // namespace headrace
