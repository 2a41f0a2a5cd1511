"""The code books of the IQ1, IQ2 and IQ3 kinds: which runs of levels an index can name.

A book is a set of points of 4 or 8 levels, in ascending order when a point is read as a number
whose first level is the lowest digit; an index counts through it. `code_books.hex` holds a line
for each book (its name, the number of levels, the length of a point) and then, in hexadecimal
digits, one bit for each number there is, the lowest bit of the first byte for 0: set where the
point is in the book. The native kernels are built from the same file.

Source: ggml-common.h (iq1s_grid, iq2xxs_grid, iq2xs_grid, iq2s_grid, iq3xxs_grid, iq3s_grid), of
which the file is another form.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

_FILE = Path(__file__).with_name("code_books.hex")


@lru_cache
def code_book(name: str) -> npt.NDArray[np.uint8]:
    """uint8[points, length]: the number of each level of each point of the book `name`.

    Raises KeyError for a name that has no book.
    """
    levels, length, bitmap = _books()[name]
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(bitmap), np.uint8), bitorder="little")
    numbers = np.flatnonzero(bits)[:, None]
    return (numbers // levels ** np.arange(length) % levels).astype(np.uint8)


@lru_cache
def _books() -> dict[str, tuple[int, int, str]]:
    books: dict[str, tuple[int, int, str]] = {}
    name = ""
    for line in _FILE.read_text("ascii").splitlines():
        head = line.split()
        if len(head) == 3:
            name = head[0]
            books[name] = int(head[1]), int(head[2]), ""
        else:
            levels, length, bitmap = books[name]
            books[name] = levels, length, bitmap + line
    return books
