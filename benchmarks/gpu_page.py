"""The page of figures of `benchmarks.gpu`: `python -m benchmarks.gpu_page OUT.json PAGE.md`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu_pieces import FAILED, has_failed
from benchmarks.markdown import table

PUBLISHED = (
    ("vLLM, a model of 8B, batch 1", 0.64),
    ("a megakernel, a model of 1B, batch 1", 0.78),
    ("aim of this engine, batch 1", 0.85),
)
"""Shares of bandwidth that others published of their engines, on other cards than this, and the
share that this engine aims at, which is no measurement."""


def page(found: dict[str, Any]) -> str:
    """Everything that the file has, part by part; what failed comes last."""
    parts = ["# Figures of a device", _machine(found["machine"])]
    if "roof" in found and not has_failed(found["roof"]):
        rows = [(name, f"{rate / 1e12:,.3f}") for name, rate in found["roof"].items()]
        parts += ["## Roof", table(("limit", "10^12 a second"), rows)]
    for name, model in found.get("shapes", {}).items():
        parts += [f"## {name}", *_of_model(model, _predicted(found, name))]
    for name, model in found.get("tables", {}).items():
        parts += [f"## {name}, from a file", *_from_file(model)]
    if "transformers" in found:
        parts += ["## transformers beside it", *_transformers(found["transformers"])]
    bars = [(what, f"{share:.0%}") for what, share in PUBLISHED]
    parts += ["## Published by others, and aimed at", table(("what", "share of bandwidth"), bars)]
    for name, kinds in found.get("kernels", {}).items():
        parts += [f"## Kernels: {name}", _kernels(kinds)]
    if "greedy" in found and not has_failed(found["greedy"]):
        same = sum(each["first_difference"] is None for each in found["greedy"])
        parts += ["## Greedy tokens", f"{same} of {len(found['greedy'])} answers are those of the "
                  "kernels for processors to their end."]  # fmt: skip
    if "checks" in found:
        parts += ["## Tests on the device", *_checks(found["checks"])]
    failures = [f"* {' '.join(keys)}: {why}" for keys, why in _failures(found)]
    if failures:
        parts += ["## Failed", "\n".join(failures)]
    return "\n\n".join(part for part in parts if part) + "\n"


_COLUMNS = ("test", "batch", "tokens/s", "predicted", "GB/s", "of bandwidth", "of bf16 peak")


def _machine(machine: dict[str, Any]) -> str:
    memory = machine.get("memory_bytes")
    size = f", {memory / 1e9:,.0f} GB" if memory else ""
    return f"{machine['device']}{size}; PyTorch {machine['torch']}, Python {machine['python']}."


def _failures(at: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """What failed, and the last line of why."""
    if has_failed(at):
        yield keys, at[FAILED].strip().splitlines()[-1]
    elif isinstance(at, dict):
        for key, value in at.items():
            yield from _failures(value, (*keys, key))


def _predicted(found: dict[str, Any], name: str) -> dict[tuple[int, int], float]:
    """Tokens a second by `headrace plan speed`, by batch and context."""
    plan = found.get("plan", {}).get(name, {})
    return {
        (point["batch"], point["context_tokens"]): point["system_tokens_per_s"]
        for point in plan.get("points", ())
    }


def _good(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not has_failed(value)}


def _of_model(model: dict[str, Any], predicted: dict[tuple[int, int], float]) -> Iterator[str]:
    for which, start in _good(model.get("starts", {})).items():
        yield (
            f"Start {which}: {start['weight_bytes'] / 1e9:,.1f} GB of weights; loaded in "
            f"{start['load_s']:.1f} s, ready in {start['ready_s']:.1f} s, first token after "
            f"{start['first_token_s']:.1f} s; recorded for "
            f"{', '.join(map(str, start['recorded'])) or 'no number of'} requests."
        )
    yield from _rows(model.get("rows", {}), predicted)
    for name, how in (
        ("host_gap", ""),
        ("host_gap_waiting", ", where each step is read before the next is planned"),
    ):
        gaps = _good(model.get(name, {}))
        if gaps:
            words = ", ".join(f"{gap:.1%} at batch {batch}" for batch, gap in gaps.items())
            yield f"Of a decode step the device waits for the host{how}: {words}."


def _from_file(model: dict[str, Any]) -> Iterator[str]:
    for name, words in (("first_start", "The first start"), ("start", "The next one")):
        start = model.get(name)
        if start is not None and not has_failed(start):
            yield (
                f"{words} loaded in {start['load_s']:.1f} s, first token after "
                f"{start['first_token_s']:.1f} s."
            )
    yield from _rows(model.get("rows", {}), {})


def _rows(found: dict[str, Any], predicted: dict[tuple[int, int], float]) -> Iterator[str]:
    rows = [_row(key, row, predicted) for key, row in _good(found).items()]
    if rows:
        yield table(_COLUMNS, rows)
    left_out = [f"* {key}: {row['left_out']}" for key, row in found.items() if "left_out" in row]
    if left_out:
        yield "Left out:\n\n" + "\n".join(left_out)


def _row(key: str, row: dict[str, Any], predicted: dict[tuple[int, int], float]) -> list[object]:
    test, _, batch = key.rpartition(" b")
    _, _, depth = test.rpartition("@ d")
    plan = predicted.get((int(batch), int(depth))) if depth.isdigit() else None
    words = None if plan is None else f"{plan:,.0f}"
    if "left_out" in row:
        return [test, batch, None, words, None, None, None]
    shares = [row.get(name) for name in ("share_of_read", "share_of_bf16")]
    return [
        test, batch, f"{row['tokens_per_s']:,.0f}", words, f"{row['bytes_per_s'] / 1e9:,.0f}",
        *(None if share is None else f"{share:.0%}" for share in shares),
    ]  # fmt: skip


def _transformers(found: dict[str, Any]) -> Iterator[str]:
    for name, ways in found.items():
        rows = [
            (f"{name}, {way}, transformers {each['version']}", batch, f"{rate:,.0f}")
            for way, each in _good(ways).items()
            for batch, rate in each["tokens_per_s"].items()
        ]
        if rows:
            yield "A static cache, BF16:"
            yield table(("what", "batch", "tokens/s"), rows)


def _kernels(kinds: dict[str, Any]) -> str:
    """error: as gpu_kernels.py has it, of products; of attention that beside plain operations."""
    rows = []
    for kind, shapes in kinds.items():
        for name, each in _good(shapes).items():
            error = each.get("error", each.get("beside_plain"))
            rows.append((
                f"{kind}, {name}", f"{each['seconds'] * 1e6:,.1f}",
                f"{each['bytes_per_s'] / 1e9:,.0f}", f"{each['ops_per_s'] / 1e12:,.2f}",
                "yes" if each["as_alone"] else "NO", None if error is None else f"{error:.2g}",
            ))  # fmt: skip
    return table(("kernel", "µs", "GB/s", "10^12 operations/s", "as alone", "error"), rows)


def _checks(files: dict[str, Any]) -> Iterator[str]:
    rows = []
    for path, found in _good(files).items():
        words = ", ".join(f"{many} {word}" for word, many in found["counts"].items())
        rows.append((path, words or f"ended with {found['returned']}"))
    if rows:
        yield table(("file", "tests"), rows)
    failed = [f"* {each}" for found in _good(files).values() for each in found["failed_tests"]]
    yield "\n".join(failed)


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
