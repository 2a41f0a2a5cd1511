"""Models of names and shapes alone, small enough to quantise in no time, for the table of mixes.

`python -m tests.weights.quantize.shapes LLAMA_QUANTIZE` asks that program what it would make of
each and writes mixes.json: the facts that the table is compared with.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from headrace.weights.codecs import F32, get_codec
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.quantize.mixes import MIXES
from headrace.weights.quantize.roles import layer_of
from headrace.weights.tensors.source import TensorSource

FACTS = Path(__file__).with_name("mixes.json")
NO_TYPE = "NVFP4"
"""llama-quantize gives it to single tensors alone."""
NOT_RECORDED = {"llama-9-width-288": ("Q1_0",), "llama-9-width-40": ("Q1_0",)}
"""Mixes that it refuses for rows that are not whole blocks."""
# A line of what --dry-run prints: a tensor, its kind and, where that changes, the new one.
_LINE = re.compile(r"\[ *\d+/ *\d+\] +(\S+) +- \[.*type = +(\w+), .*?(?:\((\w+)\))?$")


@dataclass(frozen=True)
class Case:
    """A model's outline."""

    architecture: str
    layers: int
    heads: int
    kv_heads: int
    experts: int = 0
    width: int = 256
    tied: bool = False
    fused: bool = False

    def metadata(self) -> dict[str, Any]:
        """What llama-quantize looks at."""
        own = {
            "context_length": 64, "embedding_length": self.width, "block_count": self.layers,
            "feed_forward_length": self.width, "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.layer_norm_rms_epsilon": 1e-5, "attention.layer_norm_epsilon": 1e-5,
            "rope.dimension_count": self.width // self.heads,
        }  # fmt: skip
        if self.experts:
            own |= {
                "expert_count": self.experts, "expert_used_count": 2,
                "expert_feed_forward_length": self.width,
            }  # fmt: skip
        prefix = f"{self.architecture}."
        return {"general.architecture": self.architecture} | {
            prefix + key: value for key, value in own.items()
        }

    def sources(self) -> list[TensorSource]:
        """The tensors, of zeros."""
        return [_zeros(name, shape) for name, shape in self._shapes()]

    def _shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        matrix, vector = (2, self.width), (self.width,)
        yield "token_embd.weight", matrix
        if not self.tied:
            yield "output.weight", matrix
        yield "output_norm.weight", vector
        parts = ["attn_qkv"] if self.fused else ["attn_q", "attn_k", "attn_v"]
        for layer in range(self.layers):
            at = f"blk.{layer}."
            yield f"{at}attn_norm.weight", vector
            for part in [*parts, "attn_output"]:
                yield f"{at}{part}.weight", matrix
            yield f"{at}attn_q.bias", vector
            if self.experts:
                yield f"{at}ffn_gate_inp.weight", (self.experts, self.width)
            stack = "_exps" if self.experts else ""
            for part in ("ffn_gate", "ffn_down", "ffn_up"):
                of_all = (self.experts, *matrix) if self.experts else matrix
                yield f"{at}{part}{stack}.weight", of_all


CASES: Mapping[str, Case] = {
    "llama-32-gqa": Case("llama", 32, 8, 2),
    "llama-80-gqa": Case("llama", 80, 16, 2),
    "llama-22-tied": Case("llama", 22, 4, 4, tied=True),
    "llama-5-eight-experts": Case("llama", 5, 8, 4, experts=8),
    "qwen3moe-24": Case("qwen3moe", 24, 8, 1, experts=16),
    "falcon-32": Case("falcon", 32, 8, 1, fused=True),
    "llama-9-width-288": Case("llama", 9, 4, 4, width=288),
    "llama-9-width-40": Case("llama", 9, 4, 4, width=40, tied=True),
}


def _zeros(name: str, shape: tuple[int, ...]) -> TensorSource:
    rows = int(np.prod(shape[:-1], dtype=np.int64))
    size = F32.row_bytes(shape[-1])
    return TensorSource(name, shape, F32, lambda: [np.zeros((rows, size), np.uint8)])


def by_part(kinds: Mapping[str, str]) -> dict[str, str]:
    """Kinds of each part of the layers in their order, equal ones counted: "Q6_K*4 Q4_K Q6_K"."""
    parts: dict[str, list[str]] = {}
    for name in sorted(kinds, key=lambda name: (layer_of(name), name)):
        parts.setdefault(re.sub(r"^blk\.\d+\.", "", name), []).append(kinds[name])
    return {part: " ".join(_counted(of_part)) for part, of_part in parts.items()}


def _counted(kinds: list[str]) -> Iterator[str]:
    for kind, run in groupby(kinds):
        count = len(list(run))
        yield kind if count == 1 else f"{kind}*{count}"


def _record(program: str, case: Case, mix: str, folder: Path) -> dict[str, str]:
    path = folder / "model.gguf"
    write_gguf_file(path, case.metadata(), case.sources())
    done = subprocess.run(
        [program, "--dry-run", str(path), mix], capture_output=True, text=True, timeout=60
    )
    kinds = {}
    for line in (done.stdout + done.stderr).splitlines():
        found = _LINE.search(line.strip())
        if found:
            kinds[found[1]] = get_codec((found[3] or found[2]).upper()).name
    if len(kinds) != len(case.sources()):
        raise RuntimeError(f"{mix}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return by_part(kinds)


def main() -> None:
    """Write mixes.json."""
    facts: dict[str, dict[str, dict[str, str]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, case in CASES.items():
            facts[name] = {
                mix: _record(sys.argv[1], case, mix, Path(folder))
                for mix in MIXES
                if mix not in NOT_RECORDED.get(name, ()) and mix != NO_TYPE
            }
    lines = [
        f' "{name}": {{\n'
        + ",\n".join(f'  "{mix}": {json.dumps(parts)}' for mix, parts in of_case.items())
        + "\n }"
        for name, of_case in facts.items()
    ]
    FACTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
