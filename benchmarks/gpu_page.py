"""The page of figures of `benchmarks.gpu`: `python -m benchmarks.gpu_page OUT.json PAGE.md`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.markdown import table

PUBLISHED = (
    ("vLLM, a model of 8B, batch 1", 0.64),
    ("a megakernel, a model of 1B, batch 1", 0.78),
    ("aim of this engine, batch 1", 0.85),
)
"""Shares of bandwidth that others have published, as bars beside ours; of other cards than this."""


def page(found: dict[str, Any]) -> str:
    """Everything that the file has, part by part."""
    parts = ["# Figures of a device", _machine(found["machine"])]
    if "roof" in found:
        rows = [(name, f"{rate / 1e12:,.3f}") for name, rate in found["roof"].items()]
        parts += ["## Roof", table(("limit", "10^12 a second"), rows)]
    for name, model in found.get("shapes", {}).items():
        parts += [f"## {name}", *_of_model(model)]
    for name, model in found.get("tables", {}).items():
        rows = [_row(each["test"], each["batch"], each) for each in model["tests"]]
        parts += [f"## {name}, from a file", _start(model), table(_COLUMNS, rows)]
    if "transformers" in found:
        parts += ["## transformers beside it", *_transformers(found)]
    bars = [(what, f"{share:.0%}") for what, share in PUBLISHED]
    parts += ["## Published", table(("what", "share of bandwidth"), bars)]
    if "greedy" in found:
        same = sum(each["first_difference"] is None for each in found["greedy"])
        parts += ["## Greedy tokens", f"{same} of {len(found['greedy'])} answers are those of the "
                  "kernels for processors to their end."]  # fmt: skip
    if "checks" in found:
        counts = ", ".join(f"{many} {word}" for word, many in found["checks"]["counts"].items())
        failed = "\n".join(f"* {each}" for each in found["checks"]["failed"])
        parts += ["## Tests on the device", counts, failed]
    return "\n\n".join(part for part in parts if part) + "\n"


_COLUMNS = ("test", "batch", "tokens/s", "GB/s", "of bandwidth", "of bf16 peak")


def _machine(machine: dict[str, Any]) -> str:
    memory = machine.get("memory_bytes")
    size = f", {memory / 1e9:,.0f} GB" if memory else ""
    return f"{machine['device']}{size}; PyTorch {machine['torch']}, Python {machine['python']}."


def _start(model: dict[str, Any]) -> str:
    return f"Loaded in {model['load_s']:.1f} s, first token after {model['first_token_s']:.1f} s."


def _of_model(model: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{model['weight_bytes'] / 1e9:,.1f} GB of weights; loaded in {model['load_s']:.1f} s, "
        f"ready in {model['ready_s']:.1f} s, first token after {model['first_token_s']:.1f} s; "
        f"recorded for {', '.join(map(str, model['recorded'])) or 'no number of'} requests."
    )
    rows = []
    for key, row in model["rows"].items():
        test, _, batch = key.rpartition(" b")
        rows.append(_row(test, batch, row))
    yield table(_COLUMNS, rows)
    left_out = [f"* {key}: {row['left_out']}" for key, row in model["rows"].items()
                if "left_out" in row]  # fmt: skip
    if left_out:
        yield "Left out:\n\n" + "\n".join(left_out)
    gaps = {batch: gap for batch, gap in model.get("host_gap", {}).items() if gap is not None}
    if gaps:
        words = ", ".join(f"{gap:.1%} at batch {batch}" for batch, gap in gaps.items())
        yield f"Of a decode step the device waits for the host: {words}."


def _row(test: str, batch: object, row: dict[str, Any]) -> list[object]:
    if "left_out" in row:
        return [test, batch, None, None, None, None]
    shares = [row.get(name) for name in ("share_of_read", "share_of_bf16")]
    return [
        test, batch, f"{row['tokens_per_s']:,.0f}", f"{row['bytes_per_s'] / 1e9:,.0f}",
        *(None if share is None else f"{share:.0%}" for share in shares),
    ]  # fmt: skip


def _transformers(found: dict[str, Any]) -> Iterator[str]:
    for name, each in found["transformers"].items():
        how = "compiled" if each["compiled"] else "not compiled"
        yield f"{name}, transformers {each['version']}, {how}, a static cache, BF16:"
        yield table(
            ("batch", "tokens/s"),
            [(batch, f"{rate:,.0f}") for batch, rate in each["tokens_per_s"].items()],
        )


def main() -> None:
    """Write the page of a file."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figures", type=Path)
    parser.add_argument("page", type=Path)
    given = parser.parse_args()
    given.page.write_text(page(json.loads(given.figures.read_text())))


if __name__ == "__main__":
    main()
