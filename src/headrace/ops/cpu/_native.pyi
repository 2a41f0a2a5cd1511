"""The native module, as native/bindings/ binds it.

Arrays are C-contiguous NumPy arrays of the type the name of the parameter's kind says: F32, I32,
F64, U8. ValueError names an array of another type or shape, an index out of range and a value that
means nothing. Nothing here copies an array; outputs are handed in.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headrace.ops.kv import AttentionShape

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
U8 = npt.NDArray[np.uint8]

def levels() -> list[str]:
    """Levels this machine can run, best first."""

def kv_codecs() -> list[tuple[str, int, int, bool]]:
    """Codecs of K and V: name, bytes of a value, bytes of the scale of a token of one head."""

class MatrixRows:
    """Stored rows of a matrix of an expert; keeps the arrays alive."""

class Rows(MatrixRows):
    """Stored rows of a codec, named as in GGUF ("F32", "Q8_0", "Q4_K"); keeps the arrays alive."""

    def __init__(
        self,
        codec: str,
        width: int,
        data: U8,
        row_order: I32 | None,
        file: int = -1,
        place: int = 0,
    ) -> None:
        """file: a descriptor, open as long as `data` is there, of the file in which it lies from
        byte `place` on: what is packed is read from there; -1 without one."""

class TurnedRows(MatrixRows):
    """A matrix of plain values stored turned: strided views [rows, columns, bytes of a value]."""

    def __init__(self, codec: str, values: U8) -> None: ...

class SplitRows(MatrixRows):
    """A matrix of MXFP4, numbers [rows, blocks, 16] and exponents [rows, blocks] apart."""

    def __init__(self, pairs: U8, exponents: U8) -> None: ...

class ScaledRows(MatrixRows):
    """A matrix of F8_E4M3 [rows, columns] and its scales [row blocks, column blocks]."""

    def __init__(
        self,
        values: U8,
        scales: F32,
        block_rows: int,
        block_columns: int,
        row_order: I32 | None,
    ) -> None: ...

class PackedLinear:
    @property
    def nbytes(self) -> int: ...

class ExpertMatrices:
    @property
    def nbytes(self) -> int: ...

class Routing:
    """A rule of routing; see headrace.ops.experts.Routing."""

    def __init__(
        self,
        num_experts: int,
        experts_per_token: int,
        score: str,
        normalised: bool,
        epsilon: float,
        scale: float,
        num_groups: int,
        chosen_groups: int,
        group_score: str,
        jitter: float,
    ) -> None: ...

Place = tuple[int, int, int, int, int, bool, str, str, int, int, float, float]
"""Table, index, heads, head_dim, value_dim, latent, codecs of K and V; table (or -1) and index of
what is kept near; scales of K and V in fp8."""

class KvCache:
    def __init__(
        self,
        places: Sequence[Place | None],
        block_size: int,
        num_blocks: int,
    ) -> None: ...
    def copy_blocks(self, pairs: npt.NDArray[np.int32]) -> None: ...
    def populate(self, num_blocks: int, wait: bool) -> None: ...
    @property
    def populated(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

class BoundBatch:
    """The arrays of a ragged batch, copied and checked, for the layers of one cache."""

    def __init__(
        self, cache: KvCache, positions: I32, query_start: I32, block_tables: Sequence[I32]
    ) -> None: ...
    def refill(self, positions: I32, query_start: I32, block_tables: Sequence[I32]) -> None:
        """Another batch, of as many tokens and requests, in its place."""

class Tape:
    """Operations of the thread that makes it, noted as they run."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def run(self) -> None:
        """All of them again, in the same memory. Raises what they raise."""

class Backend:
    """Kernels of one level on one thread pool. Raises ValueError for a level that cannot run."""

    def __init__(self, level: str, threads: int, expert_cache_bytes: int | None = None) -> None: ...
    @property
    def level(self) -> str: ...
    @property
    def num_threads(self) -> int: ...
    def flushing_threads(self) -> int:
        """For tests: how many of the pool's threads read and write denormals as zero."""

    def read_bandwidth(self, megabytes: float) -> float:
        """Bytes per second that all threads together read of a footprint of about that size."""

    def peak_multiplies(self, kind: str) -> float:
        """Operations per second of "f32", "bf16", "int8" or "bf16_pairs" operands; a multiply and
        an add are two.

        0 where the level does not multiply that kind.
        """

    def pack(self, parts: list[MatrixRows], bias: F32 | None) -> PackedLinear: ...
    def pack_experts(self, experts: list[list[MatrixRows]], bias: F32 | None) -> ExpertMatrices: ...
    def map_experts(self, experts: list[list[MatrixRows]], bias: F32 | None) -> ExpertMatrices:
        """The same, packed on demand into the cache; the rows are kept alive and read later."""

    def expert_cache_stats(self) -> tuple[int, int, int, int, int] | None:
        """Limit and bytes held, hits, misses, stored bytes read; None without a cache."""

    def linear(
        self,
        weight: PackedLinear,
        x: F32,
        y: F32,
        norm_weight: F32 | None,
        norm_bias: F32 | None,
        eps: float,
        centred: bool,
        residual: F32 | None,
        scale: float,
    ) -> None: ...
    def norm(
        self,
        x: F32,
        y: F32,
        weight: F32,
        bias: F32 | None,
        eps: float,
        centred: bool,
        residual: F32 | None,
    ) -> None: ...
    def norm_columns(
        self,
        x: F32,
        start: int,
        weight: F32,
        bias: F32 | None,
        eps: float,
        centred: bool,
        groups: int,
    ) -> None: ...
    def embedding(
        self, table: Rows, ids: I32, y: F32, scale: float, residual: F32 | None
    ) -> None: ...
    def activation(self, x: F32, y: F32, kind: str, gated: bool, limit: float) -> None: ...
    def softcap(self, x: F32, y: F32, cap: float) -> None: ...
    def take_rows(self, x: F32, rows: I32, y: F32) -> None: ...
    def place(self, x: F32, start: int, y: F32, row: int, column: int, width: int) -> None:
        """So many columns of x, from `start` on, into y from there on."""

    def add(self, x: F32, y: F32, sum: F32) -> None: ...
    def spread(self, x: F32, columns: npt.NDArray[np.int64], y: F32) -> None: ...
    def note_on(self, tape: Tape | None) -> None:
        """Note the operations that a step computes, of the tape's own thread, from now on."""
    def scale_rows(self, x: F32, factors: F32, columns: int) -> None: ...
    def gate_heads(self, x: F32, gates: F32) -> None: ...
    def route(
        self, routing: Routing, logits: F32, bias: F32 | None, experts: I32, weights: F32
    ) -> None: ...
    def head_linear(
        self, weight: ExpertMatrices, x: F32, kept: int, beside: F32 | None, y: F32
    ) -> None: ...
    def experts(
        self,
        gate_up: ExpertMatrices,
        down: ExpertMatrices,
        x: F32,
        y: F32,
        experts: I32,
        weights: F32,
        activation: str,
        limit: float,
        weigh_input: bool,
        residual: F32 | None,
        scale: float,
    ) -> None: ...
    def rope(
        self,
        qkv: F32,
        shape: AttentionShape,
        cos: F32,
        sin: F32,
        positions: I32,
        q_weight: F32 | None,
        q_eps: float,
        k_weight: F32 | None,
        k_eps: float,
    ) -> None: ...
    def kv_write(self, batch: BoundBatch, layer: int, qkv: F32, shape: AttentionShape) -> None: ...
    def attention(
        self,
        batch: BoundBatch,
        layer: int,
        qkv: F32,
        y: F32,
        shape: AttentionShape,
        sinks: F32 | None,
        slopes: F32 | None,
        masks: npt.NDArray[np.uint64] | None,
    ) -> None: ...
    def sample(
        self,
        logits: F32,
        num_tokens: int,
        temperature: F32,
        top_k: I32,
        top_p: F32,
        min_p: F32,
        uniform: F64,
        ids: I32,
        chains: tuple[I32, F32, I32, I32, I32] | None = None,
        masks: tuple[npt.NDArray[np.uint32] | None, ...] | None = None,
    ) -> None: ...
    def top_logprobs(
        self,
        logits: F32,
        num_tokens: int,
        chosen: I32,
        logprobs: F32,
        ranks: I32,
        ids: I32,
        values: F32,
    ) -> None: ...
