"""What tests of attention share: a cache, masks, a ragged batch, a bound from error analysis."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from headrace.ops.interface import Ops
from headrace.ops.kv import KV_CODECS, AttentionShape, KVCacheArrays, KVCacheSpec, KVCodec
from headrace.ops.reference import ReferenceOps
from tests.ops.cpu.cases import UNIT, Request, batch_of, shuffled_blocks

Codecs = tuple[KVCodec, KVCodec]


def new_cache(
    ops: Ops, shape: AttentionShape, blocks: int, block_size: int, k: KVCodec, v: KVCodec
) -> KVCacheArrays:
    return ops.kv_cache(
        KVCacheSpec.uniform(
            2,
            shape.num_kv_heads,
            shape.head_dim,
            block_size,
            blocks,
            k,
            v,
            value_dim=shape.value_dim,
            latent=shape.latent,
        )
    )


def packed(shown: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Masks of bool[tokens, positions]: bit b of span s is position 64 s + b."""
    tokens, positions = shown.shape
    bits = np.zeros((tokens, -(-positions // 64) * 64), np.uint8)
    bits[:, :positions] = shown
    return np.ascontiguousarray(np.packbits(bits, axis=1, bitorder="little")).view(np.uint64)


def write(ops: Ops, shape: AttentionShape, kv: KVCacheArrays, requests: list[Request]) -> None:
    """Write K and V alone, in layer 1."""
    qkv = np.concatenate([request.rows(shape) for request in requests])
    ops.kv_write(qkv, shape, kv, 1, batch_of(requests))


def run(ops: Ops, shape: AttentionShape, kv: KVCacheArrays, requests: list[Request]) -> np.ndarray:
    """Write and attend, in layer 1."""
    qkv = np.concatenate([request.rows(shape) for request in requests])
    batch = batch_of(requests)
    ops.kv_write(qkv, shape, kv, 1, batch)
    return np.asarray(ops.paged_attention(qkv, shape, kv, 1, batch))


def ragged(ops: Ops, shape: AttentionShape, block_size: int, codecs: Codecs) -> np.ndarray:
    """Prefills, chunks and decodes in one ragged batch over shuffled blocks."""
    starts, lengths = [0, 100, 16, 63, 0], [70, 130, 17, 64, 1]
    tables = shuffled_blocks(1, lengths, block_size)
    before = [Request(i, 0, s, tables[i]) for i, s in enumerate(starts) if s]
    now = [Request(i, starts[i], lengths[i] - starts[i], tables[i]) for i in range(5)]
    kv = new_cache(ops, shape, sum(map(len, tables)), block_size, *codecs)
    write(ops, shape, kv, before)
    return run(ops, shape, kv, now)


@cache
def expected_ragged(shape: AttentionShape, block_size: int, codecs: Codecs) -> np.ndarray:
    """The reference's, once for all levels."""
    return ragged(ReferenceOps(), shape, block_size, codecs)


def goes_by_pairs(level: str) -> bool:
    """Whether a level's attention multiplies pairs of bfloat16 (VDPBF16PS) where K and V are not
    f32, in an arithmetic of its own."""
    return level in ("amx", "avx512_bf16")


def roundings(level: str, k: KVCodec, head_dim: int) -> float:
    """How often what a product of q and a key adds up is rounded, at most.

    In a tile of 32 each of two chains is 16 fused sums, joined by one; tiles and the row's sum
    are one each. By pairs there is one chain of fused sums to each 128 of a key, but of f32.
    """
    if goes_by_pairs(level) and k != "f32":
        return min(head_dim, 128) + -(-head_dim // 128)
    return 33 + head_dim / 32


def bound(shape: AttentionShape, rows: np.ndarray, codecs: Codecs, level: str) -> float:
    """What rounding alone may change.

    A score carries the roundings of a product of sum |q k| * scale, which shifts its p by as much,
    relatively; p itself a few of the exponential; sums of p and p v a rounding per token at most
    (in pairs one for each token of a span and one for each span, which is fewer).
    With bf16 V a p that lies near a tie may round the other way, by 2^-7 of itself. Values that
    were rotated are read larger, and turned back with the rounding of all: both by up to the root
    of their number. A scale is one more rounding of each score and of each p. By pairs q is rounded
    to 2^-9 of itself for keys of few bits too, which the reference does not, and p with such V.
    """
    d = shape.head_dim
    k, v = codecs[0], codecs[0 if shape.latent else 1]
    keys_end = (shape.num_heads + shape.num_kv_heads) * d
    heads = rows[:, :keys_end].reshape(len(rows), -1, d)
    longest = np.sqrt((heads.astype(np.float64) ** 2).sum(axis=2)).max()
    largest_v = np.abs(heads[:, shape.num_heads :] if shape.latent else rows[:, keys_end:]).max()
    score = roundings(level, k, d) * UNIT * longest * longest * shape.scale
    pairs = goes_by_pairs(level)
    if pairs and KV_CODECS[k].value_bits < 16:
        score += 2.0**-9 * longest * longest * shape.scale
    if KV_CODECS[v].rotated and not shape.latent:
        largest_v *= shape.value_width
    rounded = v == "bf16" or (pairs and v != "f32")
    return float(largest_v * (2 * score + (len(rows) + 24) * UNIT + (2.0**-7 if rounded else 0)))
