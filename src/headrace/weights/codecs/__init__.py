"""The storage kinds there are, by name, by GGUF type id and by safetensors dtype.

One file per group: `floats` (F32, F16, BF16), `linear` (32 values on a line), `k_kinds` (256 values
with sub-scales), `tables` (4-bit codes looked up), `books` (runs looked up in code books),
`few_bits` (one bit, two, or three levels). In no registry, as no file holds a tensor of them alone:
`raw` (bytes and words), and `float8`, `four_bits`, `eight_bits` and `normal_float`, whose scales
folders store on their own. `codec` says what a codec is.

Sources: gguf-py constants.py and ggml.h (type ids).
"""

from __future__ import annotations

from headrace.errors import CheckpointError, shown
from headrace.weights.codecs.books import (
    IQ1_M,
    IQ1_S,
    IQ2_S,
    IQ2_XS,
    IQ2_XXS,
    IQ3_S,
    IQ3_XXS,
)
from headrace.weights.codecs.codec import Bytes, Codec, Floats
from headrace.weights.codecs.eight_bits import EIGHT_BITS, ROW_ROUNDED
from headrace.weights.codecs.few_bits import Q1_0, Q2_0, TQ1_0, TQ2_0
from headrace.weights.codecs.float8 import F8_E4M3
from headrace.weights.codecs.floats import BF16, F16, F32
from headrace.weights.codecs.four_bits import (
    E2M1_64,
    E2M1_128,
    GROUPED,
    I4_32,
    I4_128,
    U4_32,
    U4_128,
)
from headrace.weights.codecs.k_kinds import Q2_K, Q3_K, Q4_K, Q5_K, Q6_K
from headrace.weights.codecs.linear import Q4_0, Q4_1, Q5_0, Q5_1, Q8_0
from headrace.weights.codecs.normal_float import NF4, NF4_NUMBERS
from headrace.weights.codecs.raw import BYTES, LONG_WORDS, RAW, SIGNED_BYTES, WORDS
from headrace.weights.codecs.tables import IQ4_NL, IQ4_XS, MXFP4, NVFP4

__all__ = [
    "BF16",
    "BLOCK_ROUNDED",
    "BYTES",
    "CODECS",
    "E2M1_64",
    "E2M1_128",
    "EIGHT_BITS",
    "F8_E4M3",
    "F16",
    "F32",
    "GROUPED",
    "I4_32",
    "I4_128",
    "IQ1_M",
    "IQ1_S",
    "IQ2_S",
    "IQ2_XS",
    "IQ2_XXS",
    "IQ3_S",
    "IQ3_XXS",
    "IQ4_NL",
    "IQ4_XS",
    "LONG_WORDS",
    "MXFP4",
    "NF4",
    "NF4_NUMBERS",
    "NVFP4",
    "OF_FOLDERS",
    "Q1_0",
    "Q2_0",
    "Q2_K",
    "Q3_K",
    "Q4_0",
    "Q4_1",
    "Q4_K",
    "Q5_0",
    "Q5_1",
    "Q5_K",
    "Q6_K",
    "Q8_0",
    "RAW",
    "ROW_ROUNDED",
    "SIGNED_BYTES",
    "TQ1_0",
    "TQ2_0",
    "U4_32",
    "U4_128",
    "WORDS",
    "Bytes",
    "Codec",
    "Floats",
    "codec_of_gguf_type",
    "codec_of_safetensors_dtype",
    "get_codec",
]  # fmt: skip

CODECS: dict[str, Codec] = {
    codec.name: codec
    for codec in (
        F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS,
        MXFP4, NVFP4, IQ3_S, IQ3_XXS, IQ2_S, IQ2_XS, IQ2_XXS, IQ1_M, IQ1_S, TQ1_0, TQ2_0, Q1_0,
        Q2_0,
    )
}  # fmt: skip
OF_FOLDERS = GROUPED | EIGHT_BITS | {NF4.name: NF4}
"""Kinds in blocks that are put together of several tensors of a folder, by name."""
BLOCK_ROUNDED = frozenset(codec.name for codec in (Q4_K, IQ4_XS))
"""Names of those that meet activations rounded by one scale of each of their blocks of 256
(docs/kernels.md)."""
_BY_GGUF_TYPE = {codec.gguf_type: codec for codec in CODECS.values()}
_BY_SAFETENSORS = {
    codec.safetensors_dtype: codec for codec in CODECS.values() if codec.safetensors_dtype
}

# Names of the GGUF type ids that have no codec here, only so that a refusal can say which it was
# (gguf-py constants.py, GGMLQuantizationType).
_OTHER_GGUF_TYPES = {
    9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
}  # fmt: skip


def get_codec(name: str) -> Codec:
    """The codec called `name`; raises CheckpointError naming what there is."""
    codec = CODECS.get(name)
    if codec is None:
        raise CheckpointError(f"codec {name!r} is not supported; supported: {', '.join(CODECS)}")
    return codec


def codec_of_gguf_type(type_id: int) -> Codec:
    """The codec of a GGUF tensor type id; raises CheckpointError naming the type."""
    codec = _BY_GGUF_TYPE.get(type_id)
    if codec is None:
        name = _OTHER_GGUF_TYPES.get(type_id)
        what = f"{type_id} ({name}) is not supported" if name else f"{type_id} is unknown"
        supported = ", ".join(f"{codec.gguf_type} ({codec.name})" for codec in CODECS.values())
        raise CheckpointError(f"tensor type {what}; supported: {supported}")
    return codec


def codec_of_safetensors_dtype(dtype: str) -> Codec:
    """The codec of a safetensors dtype; raises CheckpointError naming what there is."""
    codec = _BY_SAFETENSORS.get(dtype)
    if codec is None:
        raise CheckpointError(
            f"dtype {shown(dtype)} is not supported; supported: {', '.join(_BY_SAFETENSORS)}"
        )
    return codec
