"""Blocks of a codec as tensors: their fields by name, and the bits of packed numbers."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch

Bytes: TypeAlias = torch.Tensor
"""uint8[...]"""
Floats: TypeAlias = torch.Tensor
"""float32[...]"""


class Blocks:
    """Blocks uint8[n, block_bytes] laid out as the codec says."""

    def __init__(self, data: Bytes, layout: np.dtype[Any]) -> None:
        self._data = data
        self._layout = layout

    def __len__(self) -> int:
        return len(self._data)

    def bytes(self, name: str) -> Bytes:
        """uint8[n, bytes of the field]."""
        assert self._layout.fields is not None
        kind, offset = self._layout.fields[name][:2]
        return self._data[:, offset : offset + kind.itemsize]

    def signed(self, name: str) -> torch.Tensor:
        """int8[n, k] of a field of signed bytes."""
        return self.bytes(name).contiguous().view(torch.int8)

    def halves(self, name: str) -> Floats:
        """float32[n, k] of a field of F16."""
        return self.bytes(name).contiguous().view(torch.float16).float()

    def floats(self, name: str) -> Floats:
        """float32[n, k] of a field of F32."""
        return self.bytes(name).contiguous().view(torch.float32)

    def short_words(self, name: str) -> torch.Tensor:
        """int32[n, k] of a field of unsigned words of 16 bits."""
        return words(self.bytes(name), 2).int()

    def words(self, name: str) -> torch.Tensor:
        """int64[n, k] of a field of unsigned words of 32 bits."""
        return words(self.bytes(name), 4)


def words(packed: Bytes, size: int) -> torch.Tensor:
    """int64[..., k] of uint8[..., k * size]: unsigned little-endian numbers of `size` bytes."""
    parts = packed.reshape(*packed.shape[:-1], -1, size).long()
    shifts = torch.arange(0, 8 * size, 8, device=packed.device)
    return (parts << shifts).sum(dim=-1)


def nibbles(packed: Bytes) -> Bytes:
    """uint8[..., 2k] of uint8[..., k]: all low halves of the bytes, then all high halves."""
    return torch.cat([packed & 15, packed >> 4], dim=-1)


def split(packed: torch.Tensor, step: int, bits: int) -> torch.Tensor:
    """[n, k * bits / step] of [n, k] numbers of so many bits, each cut into parts of `step` bits
    that are not masked, the lowest first."""
    shifts = torch.arange(0, bits, step, device=packed.device, dtype=packed.dtype)
    return (packed[..., None] >> shifts).reshape(len(packed), -1)


def one_bits(packed: Bytes) -> Bytes:
    """uint8[n, 8 k] of uint8[n, k]: the bits of each byte, the lowest first."""
    return split(packed, 1, 8) & 1


def two_bits(packed: Bytes) -> Bytes:
    """uint8[n, parts, 4, 32] of uint8[n, parts * 32]: bits 0-1 of 32 bytes, then bits 2-3, ..."""
    groups = packed.reshape(len(packed), -1, 1, 32)
    return (groups >> _shifts(packed, 2)) & 3


def bit_planes(packed: Bytes) -> Bytes:
    """uint8[n, 8, 32] of uint8[n, 32]: bit 0 of every byte, then bit 1, ..."""
    return (packed[:, None, :] >> _shifts(packed, 1)) & 1


def _shifts(like: Bytes, step: int) -> Bytes:
    return torch.arange(0, 8, step, device=like.device, dtype=torch.uint8)[:, None]


def scaled(scales: Floats, values: torch.Tensor) -> Floats:
    """Scales float32[n, groups] times values [n, ...], each group as long: float32[n, values]."""
    n, groups = scales.shape
    return (scales[..., None] * values.reshape(n, groups, -1)).reshape(n, -1)
