"""Assemble a corpus of Python source from the running interpreter's standard library.

Tests, third-party packages, files that are mostly data tables, and exact duplicates are left out.
The order is by path and the held-out split is by a hash of the path, so that the same interpreter
always gives the same corpus. A provenance list (path, bytes, SHA-256, split) is written beside it.
Knows nothing of tokens.

    python -m tools.train.corpus --out work/corpus
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import platform
import sysconfig
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Split = Literal["train", "heldout"]

LICENCE = "PSF-2.0"
HELD_OUT_PER_MILLE = 30
SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test"})
# Build-time variables of the machine that compiled the interpreter: data, and full of its paths.
SKIPPED_PREFIXES = ("_sysconfigdata",)
# Above this share of lines inside literals a file is a table (encodings/cp*.py, html/entities.py).
MAX_LITERAL_SHARE = 0.5
# Below this a file is an import shim that teaches nothing but its own licence header.
MIN_BYTES = 64


@dataclass(frozen=True)
class Source:
    """One file of the corpus; `path` is relative to the root, with forward slashes."""

    path: str
    n_bytes: int
    sha256: str
    split: Split


def split_of(path: str) -> Split:
    """The split of a file, decided by its path alone: adding a file never moves another."""
    digest = hashlib.sha256(path.encode()).digest()
    bucket = int.from_bytes(digest[:4], "big") % 1000
    return "heldout" if bucket < HELD_OUT_PER_MILLE else "train"


def literal_share(text: str) -> float:
    """The share of lines covered by literal values of assignments and calls (not docstrings).

    Raises SyntaxError when `text` is not Python of the running interpreter's version.
    """
    total = text.count("\n") + 1
    covered: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(
            node.value, ast.Dict | ast.List | ast.Tuple | ast.Set | ast.Constant
        ):
            covered.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(covered) / total


def read_sources(root: Path) -> Iterator[tuple[Source, str]]:
    """Yield every accepted file below `root` in path order, with its text."""
    seen: set[str] = set()
    for file in sorted(root.rglob("*.py"), key=lambda f: f.relative_to(root).as_posix()):
        relative = file.relative_to(root)
        if SKIPPED_FOLDERS.intersection(relative.parts[:-1]):
            continue
        if relative.name.startswith(SKIPPED_PREFIXES):
            continue
        raw = file.read_bytes()
        digest = hashlib.sha256(raw).hexdigest()
        if len(raw) < MIN_BYTES or digest in seen:
            continue
        try:
            text = raw.decode("utf-8")
            share = literal_share(text)
        except (UnicodeDecodeError, SyntaxError):
            continue  # old encodings and other grammars (lib2to3's samples) are not worth a rule
        if share > MAX_LITERAL_SHARE:
            continue
        seen.add(digest)
        path = relative.as_posix()
        yield Source(path, len(raw), digest, split_of(path)), text.replace("\r\n", "\n")


def write_corpus(root: Path, out: Path) -> dict[str, int]:
    """Write train.jsonl, heldout.jsonl and provenance.json to `out`; return bytes per split."""
    out.mkdir(parents=True, exist_ok=True)
    sources: list[Source] = []
    texts: dict[Split, list[str]] = {"train": [], "heldout": []}
    for source, text in read_sources(root):
        sources.append(source)
        texts[source.split].append(json.dumps({"path": source.path, "text": text}))
    for split, lines in texts.items():
        (out / f"{split}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    provenance = {
        "origin": f"the standard library of {platform.python_implementation()} "
        f"{platform.python_version()}",
        "licence": LICENCE,
        "files": [asdict(source) for source in sources],
    }
    (out / "provenance.json").write_text(json.dumps(provenance, indent=1) + "\n")
    return {
        split: sum(source.n_bytes for source in sources if source.split == split) for split in texts
    }


def read_documents(corpus: Path, split: Split) -> list[str]:
    """The texts of one split, in path order."""
    with (corpus / f"{split}.jsonl").open() as lines:
        return [str(json.loads(line)["text"]) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description="Assemble the training corpus.")
    parser.add_argument("--root", type=Path, default=Path(sysconfig.get_path("stdlib")))
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    for split, n_bytes in write_corpus(arguments.root, arguments.out).items():
        print(f"{split}: {n_bytes} bytes")


if __name__ == "__main__":
    main()
