"""The native module of strings behind their lengths, as native/strings/module.cpp binds it.

starts, ends: the first byte of each string in `data` and one past its last. ValueError names what
is of another type or lies outside the data; UnicodeDecodeError is raised for what is not UTF-8.
"""

from array import array

def find(data: memoryview, at: int, starts: array[int], ends: array[int]) -> tuple[int, int]:
    """Fill both from byte `at` on: how many strings lie within the data, and where they end."""

def decode(data: memoryview, starts: array[int], ends: array[int]) -> list[str]: ...
def pairs(data: memoryview, starts: array[int], ends: array[int]) -> list[tuple[str, ...]]:
    """Each cut at its first space; alone where it has none."""
