"""Mooncake's traces: JSON lines of timestamp in ms, input_length, output_length and hash_ids.

A hash id stands for a block of 512 tokens together with all before it, so two prompts are equal up
to where their lists of ids part. The last block is one that the prompt may only begin. Other tools
write the same lines with other sizes of blocks; then the size has to be named.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.bench.prompts.lengths import MAX_TOKENS
from headrace.bench.prompts.read_json import MAX_TIMESTAMP_MS, Line, read_lines
from headrace.bench.traces.row import TraceRow

BLOCK_TOKENS = 512
FIELDS = ("timestamp", "input_length", "output_length", "hash_ids")

_NS_PER_MS = 1_000_000


def rows(path: Path, block_tokens: int = BLOCK_TOKENS) -> Iterator[TraceRow]:
    """The file's rows in its order.

    Raises ConfigError where ids and length do not fit together: ids are as many as the blocks that
    the prompt has begun.
    """
    for line in read_lines(path):
        prompt = line.whole("input_length", 0, MAX_TOKENS)
        blocks = _blocks(line)
        if len(blocks) != -(-prompt // block_tokens):
            line.refuse(
                "hash_ids",
                f"{len(blocks)} ids",
                f"an input_length of {prompt} has {-(-prompt // block_tokens)} blocks of "
                f"{block_tokens} tokens; name the block size of this trace, or correct the "
                "line",
            )
        yield TraceRow(
            at_ns=line.whole("timestamp", 0, MAX_TIMESTAMP_MS) * _NS_PER_MS,
            prompt_tokens=prompt,
            output_tokens=line.whole("output_length", 0, MAX_TOKENS),
            blocks=blocks,
        )


def _blocks(line: Line) -> tuple[int, ...]:
    found: Any = line.fields.get("hash_ids")
    if not isinstance(found, list):
        line.refuse("hash_ids", found, "must be a list of whole numbers")
    for one in found:
        if isinstance(one, bool) or not isinstance(one, int) or not -(2**63) <= one < 2**64:
            line.refuse("hash_ids", one, "must be whole numbers of at most 64 bits")
    return tuple(found)
