"""Codecs of folders with 8 bits: of the numbers, or of the activations that meet them.

    I8_32, I8_128      a scale d, values d * (q - 128)
    U8_32, U8_128      a scale d and a zero point z of a byte, values d * (q - z)
    W8A8_32, W8A8_128  as I8, for formats that round each row of activations by one scale
    W4A8_32, W4A8_128  the same of 4 bits, values d * (q - 8)

As those of `four_bits` they are in no registry: a folder stores numbers, scales and zero points in
tensors of their own, which `headrace.weights.tensors.whole_number_tensor` puts together.
Bytes are stored 128 above signed numbers. With scales of F16 or BF16 nothing is rounded.

Sources: compressed-tensors compressors (naive_quantized, pack_quantized), GPTQModel (8 bits).
"""

from __future__ import annotations

import numpy as np

from headrace.weights.codecs.codec import Blocks, Codec, Floats, nibbles


def _decode_signed(blocks: Blocks, out: Floats) -> None:
    numbers = (blocks["qs"] ^ np.uint8(128)).view(np.int8)
    np.multiply(blocks["d"][:, None], numbers, out=out)


def _decode_unsigned(blocks: Blocks, out: Floats) -> None:
    d, z = blocks["d"][:, None], blocks["z"][:, None]
    np.multiply(d, blocks["qs"], out=out)
    np.subtract(out, d * z.astype(np.float32), out=out)


def _decode_four(blocks: Blocks, out: Floats) -> None:
    packed = blocks["qs"]
    codes = nibbles(packed.reshape(len(packed), -1, 16)).reshape(len(packed), -1)
    np.multiply(blocks["d"][:, None], codes.view(np.int8) - np.int8(8), out=out)


def _codec(name: str, elements: int) -> Codec:
    kind = name[0] if name[0] != "W" else name[:2]
    fields: list[tuple[str, str] | tuple[str, str, tuple[int]]] = [("d", "<f4")]
    if kind == "U":
        fields.append(("z", "u1"))
    fields.append(("qs", "u1", (elements // 2 if kind == "W4" else elements,)))
    decode = {"I": _decode_signed, "U": _decode_unsigned, "W8": _decode_signed,
              "W4": _decode_four}[kind]  # fmt: skip
    return Codec(f"{name}_{elements}", elements, np.dtype(fields), -1, decode)


EIGHT_BITS = {
    codec.name: codec
    for codec in (_codec(name, size) for name in ("I8", "U8", "W8A8", "W4A8") for size in (32, 128))
}
"""By name."""

ROW_ROUNDED = frozenset(name for name in EIGHT_BITS if name.startswith("W"))
"""Names of those that meet activations rounded by one scale of a row."""
