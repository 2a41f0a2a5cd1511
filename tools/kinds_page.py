"""docs/storage-kinds.md: every kind of weights, and what shows that it is read, run and made.

Cells come from the marks of tests (`tests.proofs`), from two recordings that their commands wrote
(`benchmarks/storage_kinds.json`, `benchmarks/loaded_elsewhere.json`), and from what became of the
published configs (`tools/counts/published.json`). A gap without a reason in MISSING, and a kind
below AIM without one in SLOW, stop the page.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.loaded_elsewhere import Loaded
from benchmarks.loaded_elsewhere import Recording as LoadedRecording
from benchmarks.storage_kinds import Recording, Share
from headrace.weights.codecs import CODECS
from tests.models import eight_bit_folders, four_bit_folders, fp8_folders
from tests.proofs import Proof, proofs
from tools.count_models import RECORD

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
SHARES, LOADED = BENCHMARKS / "storage_kinds.json", BENCHMARKS / "loaded_elsewhere.json"
AIM = 0.8
"""Of the read bandwidth."""
LAYOUTS: Mapping[str, Mapping[str, str]] = {
    "FP8": {name: layout.held for name, layout in fp8_folders.LAYOUTS.items()},
    "8 bits and NF4": {name: layout.held for name, layout in eight_bit_folders.LAYOUTS.items()},
    "4 bits": {name: layout.held for name, layout in four_bit_folders.LAYOUTS.items()}
    | {"MXFP4 of gpt-oss": "MXFP4"},
}
"""Layouts of folders by their width, and what the kernels hold each in."""

SLOW: Sequence[tuple[str, tuple[str, ...]]] = (
    (
        "A run of four or eight values is a word that is looked up, and its signs are turned: "
        "instructions bind, not memory. IQ2 and IQ3 still give more weights a second than Q8_0.",
        ("IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S"),
    ),
    (
        "One or two bits: a byte of memory is four to eight weights, and unpacking and multiplying "
        "those takes longer than reading it.",
        ("Q1_0", "Q2_0", "TQ1_0", "TQ2_0", "Q2_K"),
    ),
    (
        "Codes become floats before they are multiplied: FP8 by eleven instructions for 32 "
        "weights, NF4 by a table, with two chains of float sums.",
        ("F8_E4M3 tensor", "F8_E4M3 channel", "F8_E4M3 block", "NF4"),
    ),
    (
        "Groups of 16: twice the scales for as many weights, and a conversion and a multiply for "
        "each.",
        ("Q3_K", "Q6_K", "NVFP4", "E2M1_64", "E2M1_128"),
    ),
    (
        "A few per cent are missing, in loops with which kinds like them pass; what takes them was "
        "not found.",
        ("BF16", "MXFP4", "U4_128", "I8_128", "U8_128", "W8A8_128"),
    ),
)
"""Why kinds stay below AIM."""

MISSING: Mapping[tuple[str, str], str] = {
    ("made", "folders"): "`headrace quantize --format` makes sixteen formats, all in layouts of "
    "compressed-tensors. Ten layouts of compressed-tensors are not among them: "
    "W8A8 with one scale for static activations, W8A8 with zero points of weights or of "
    "activations, W8A16 in rows, in bytes or with zero points, W4A16 in rows or in an order, and "
    "W4A8 and W4AFP8 packed, which `--format` writes with a byte for each weight. The others are "
    "written by other programs: DeepSeek's and AutoFP8's FP8, modelopt, fbgemm, SGLang's INT8, "
    "GPTQ, AWQ, AutoRound, bitsandbytes and gpt-oss's own.",
    ("elsewhere", "folders"): "Folders are read by formula, not beside the programs that make "
    "them: those need PyTorch, and their kernels a GPU.",
}
"""Why cells of a column are empty, by column and kinds."""
LEFT_OUT = (
    "HQQ", "torchao's own", "FP4 and INT8 of bitsandbytes", "2 and 3 bits of GPTQ", "EXL2",
    "experts with columns in an order of their own (no published config below states one), and "
    "stacks of experts of 4 or 8 bits in one tensor, but for FP8 and gpt-oss's MXFP4",
    "AWQ of modelopt (`pre_quant_scale`)", "sparse and rotated weights of compressed-tensors",
)  # fmt: skip
"""Formats that are refused by name."""


class GapError(Exception):
    """A gap that has no reason."""


def kinds_page() -> str:
    """The page."""
    found = list(proofs())
    shares = msgspec.json.decode(SHARES.read_bytes(), type=Recording)
    loaded = msgspec.json.decode(LOADED.read_bytes(), type=LoadedRecording)
    by_kind = {share.kind: share for share in shares.kinds}
    lines = [
        "# Kinds of weights",
        "",
        "What is shown of each kind: that it is read, against what; that it is run, against what "
        "and at what share of the",
        "machine's read bandwidth; that it is made, and loaded by another program. This page is "
        "generated (`make docs`): each cell",
        "is the mark of a test (`@pytest.mark.proves`), which fails where it is not so, or a "
        "recorded measurement. What the kinds",
        "are is in [checkpoints.md](checkpoints.md#codecs), how to make them in "
        "[quantization.md](quantization.md).",
        "",
        "## GGUF",
        "",
        *_gguf_table(found, by_kind, {each.kind: each for each in loaded.kinds}),
        "",
        f"*Loaded elsewhere*: {loaded.program} loads {loaded.model} in that kind and gives tokens; "
        "of them, after the same ones,",
        "so many are those that headrace chooses. Both round activations, each in its own way. "
        f"`{loaded.command}`, {loaded.date}.",
        "",
        "## Folders",
        "",
        *_folder_table(found, by_kind),
        "",
        "## Share of the read bandwidth",
        "",
        f"One row × {shares.width} × as many rows as give 400 MB, in turns with reading as many "
        "bytes. The host is shared, so figures",
        f"of one kind differ by a tenth between runs. {shares.cpu}, {shares.threads} threads, "
        f"level `{shares.level}`, {shares.date}: `{shares.command}`.",
        "",
        *_share_table(shares.kinds),
        "",
        *_slow_lines(shares.kinds),
        "",
        "## What is missing",
        "",
        *_missing_lines(found, by_kind),
        "",
        *_published_lines(),
    ]
    return "\n".join(lines) + "\n"


def _cells(found: Iterable[Proof], group: str) -> dict[tuple[str, str], str]:
    """What each kind of a group is held against, by column and kind."""
    against: dict[tuple[str, str], list[str]] = defaultdict(list)
    for proof in found:
        if proof.group == group:
            against[proof.column, proof.kind].append(proof.against)
    return {key: "; ".join(dict.fromkeys(words)) for key, words in against.items()}


def _gguf_table(
    found: Sequence[Proof], shares: Mapping[str, Share], loaded: Mapping[str, Loaded]
) -> Iterator[str]:
    cells = _cells(found, "GGUF")
    yield from _head("kind", "bits", "read against", "run against", "share", "made against",
                     "loaded elsewhere")  # fmt: skip
    for name, codec in CODECS.items():
        elsewhere = [cells[key]] if (key := ("elsewhere", name)) in cells else []
        if name in loaded:
            one = loaded[name]
            elsewhere.append(f"llama.cpp, {one.same_tokens} of {one.tokens} tokens")
        yield _row(
            name, f"{codec.bits_per_weight:g}", cells[("read", name)], cells[("run", name)],
            f"{shares[name].share:.0%}", cells.get(("made", name), "—"),
            "; ".join(elsewhere) or "—",
        )  # fmt: skip


def _folder_table(found: Sequence[Proof], shares: Mapping[str, Share]) -> Iterator[str]:
    yield from _head("width", "layout", "held as", "read against", "run against", "share",
                     "made by")  # fmt: skip
    for group, layouts in LAYOUTS.items():
        cells = _cells(found, group)
        for name, held in layouts.items():
            kinds = [kind for kind in shares if kind == held or kind.startswith(f"{held}_")]
            share = " to ".join(
                sorted({f"{shares[kind].share:.0%}" for kind in kinds}, key=lambda s: int(s[:-1]))
            )
            made = cells.get(("made", name), "—")
            yield _row(group, name, held, cells[("read", name)], cells[("run", name)], share, made)


def _share_table(kinds: Iterable[Share]) -> Iterator[str]:
    yield from _head("kind", "bits held", "GB/s", "of", "share", "10⁹ weights a second")
    for share in kinds:
        weights = share.product_gb_s * 8 / share.bits_per_weight
        yield _row(
            share.kind, f"{share.bits_per_weight:.3g}", f"{share.product_gb_s:.1f}",
            f"{share.read_gb_s:.1f}", f"{share.share:.0%}", f"{weights:.0f}",
        )  # fmt: skip


def _slow_lines(kinds: Iterable[Share]) -> Iterator[str]:
    """Why kinds stay below AIM. Raises GapError for one without a reason."""
    slow = {share.kind for share in kinds if share.share < AIM}
    yield f"Below {AIM:.0%}:"
    yield ""
    for reason, names in SLOW:
        if those := [name for name in names if name in slow]:
            yield f"- {', '.join(those)}: {reason}"
            slow -= set(those)
    if slow:
        raise GapError(f"{SHARES.name}: {sorted(slow)} are below {AIM:.0%}, and SLOW has no reason")


def _missing_lines(found: Sequence[Proof], shares: Mapping[str, Share]) -> Iterator[str]:
    """Empty cells, by column, with their reasons. Raises GapError for one without."""
    gguf = set(_cells(found, "GGUF"))
    recorded = msgspec.json.decode(LOADED.read_bytes(), type=LoadedRecording)
    gguf |= {("elsewhere", loaded.kind) for loaded in recorded.kinds}
    for column in ("made", "elsewhere"):
        names = [name for name in CODECS if (column, name) not in gguf]
        if names:
            yield f"- {_WORDS[column]}: {', '.join(names)}. {_reason(column, 'GGUF')}"
        count = sum(
            (column, name) not in _cells(found, group)
            for group, layouts in LAYOUTS.items()
            for name in layouts
        )
        if count:
            yield f"- {_WORDS[column]}: {count} layouts of folders. {_reason(column, 'folders')}"
    yield f"- Not read, and refused by name: {'; '.join(LEFT_OUT)}."


_WORDS = {"made": "Not made", "elsewhere": "Not loaded elsewhere"}


def _reason(column: str, kinds: str) -> str:
    reason = MISSING.get((column, kinds))
    if reason is None:
        raise GapError(f"column {column!r} has gaps among {kinds}, and MISSING has no reason")
    return reason


def _published_lines() -> Iterator[str]:
    """The published configs: how many open, by what they state, and why each other one does not."""
    recorded: list[dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8"))
    opened = sum(not config["reason"] for config in recorded)
    yield "## Published configs"
    yield ""
    yield f"Of {len(recorded)} published configs {opened} open as published"
    yield "(`python -m tools.count_models --record`), by what their configs state:"
    yield ""
    yield from _head("stated", "configs", "open")
    every = Counter(config["quantised"] for config in recorded)
    good = Counter(config["quantised"] for config in recorded if not config["reason"])
    for kind, count in sorted(every.items()):
        yield _row(f"`{kind}`" if kind else "16 bits", str(count), str(good[kind]))
    reasons: dict[str, list[str]] = defaultdict(list)
    for config in recorded:
        if config["reason"]:
            reasons[config["reason"]].append(config["name"].replace("--", "/"))
    yield ""
    yield "The others, by what stops them:"
    yield ""
    for reason, names in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        yield f"- {reason}, {len(names)}: {', '.join(names)}"


def _head(*names: str) -> Iterator[str]:
    yield _row(*names)
    yield "|---" * len(names) + "|"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
