// Rows of a matrix as they are stored: in one piece each, or in pieces that lie apart. Rows in
// pieces, and rows of a file that can be read, are put together for a panel at a time, as the codec
// has them.

#pragma once

#include <cstdint>
#include <vector>

#include "codecs.h"

namespace headrace {

// How a row is put together that is stored in pieces.
struct Pieces {
  int64_t bytes = 0;   // of a piece; 0 where rows lie in one piece each
  int64_t stride = 0;  // from one piece to the next
  int64_t row_stride = 0;
  // MXFP4 apart: pieces are 32 values, two neighbours in a byte, and these are the exponents.
  const uint8_t* exponents = nullptr;
  int64_t exponents_stride = 0;  // from one row to the next
  // F8_E4M3: a piece is the values of a row, and these are the scales, of blocks of so many rows
  // and columns (a multiple of kRun, or all of them).
  const float* scales = nullptr;
  int64_t scales_stride = 0;  // from one row of blocks to the next
  int64_t block_rows = 0, block_columns = 0;
};

// Rows of a matrix as they are stored; whoever makes it keeps the memory alive.
struct StoredRows {
  const uint8_t* data;
  const int32_t* order;  // stored row of each row, or null; of pieces only F8_E4M3 has one
  int64_t count;
  int64_t row_bytes;  // as the codec has them
  Pieces pieces = {};
  // A file in which they lie, from `place_in_file` on, one after another; -1 where `data` is all.
  int file = -1;
  int64_t place_in_file = 0;

  bool in_pieces() const { return pieces.bytes != 0; }
  // Read rather than touched where they are mapped: 60 us a MB against 100 for faults and
  // unmapping.
  bool in_file() const { return file >= 0 && order == nullptr && !in_pieces(); }
  // Whether rows are put together in memory of the caller's.
  bool gathered() const { return in_pieces() || in_file(); }
  int64_t place(int64_t i) const { return order == nullptr ? i : order[i]; }
  // Of rows in one piece.
  const uint8_t* row(int64_t i) const { return data + place(i) * row_bytes; }
  // Of these: `rows` of them from `first` on, one after another as the codec has them.
  void gather(int64_t first, int64_t rows, uint8_t* to) const;
  // Asks the system for the pages, so that several reads are under way at a time.
  void read_ahead() const;
};

// Rows of all parts together.
int64_t rows_of(const std::vector<StoredRows>& parts);
// Asks the system for the rows that are read from files, and for what follows them there, which is
// mostly read next: threads that read in turns show it no order by which it would read ahead.
void read_files_ahead(const std::vector<StoredRows>& parts);
// Whether rows of any part are gathered.
bool any_gathered(const std::vector<StoredRows>& parts);

}  // namespace headrace
