"""List what the family learnt from: every package with version, licence, files, bytes and split.

python -m training.data.provenance --corpus build/train/corpus --out models/PROVENANCE.md
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from training.cards.markdown import table
from training.members import LICENCE

PAGE = """\
# What the family learnt from

The corpus of the models in this repository: the standard library of the interpreter that
assembled it, and packages as their makers published them, with their documents. Each package's
text stays under its own licence and the copyright of its authors; licence texts and notices are in
the packages themselves, which package indexes offer under these names and versions. The models'
weights are distributed under {licence}.

Left out are tests, vendored copies, generated files, tables of data and near-duplicates; the rules
are in [training/data/corpus.py](../training/data/corpus.py). The split "heldout" was never
trained on: the models are measured on it. It is whole packages, and three of the standard library's
(email, wsgiref, xmlrpc), so that "python" has a row in each split. `python -m
training.data.corpus` writes `provenance.json`, which lists every file with its SHA-256; the
SHA-256 of that list is
`{digest}`.

Licences are as each package's metadata says them; "BSD" where it does not say of how many clauses.

## By licence

{licences}

## By package

{packages}
"""


class Part(NamedTuple):
    """The files of one package in one split."""

    name: str
    version: str
    licence: str
    split: str
    n_files: int
    n_bytes: int


def parts(provenance: Mapping[str, Any]) -> list[Part]:
    """One entry per package and split that has files, by name."""
    found = []
    for package in provenance["packages"]:
        by_split: defaultdict[str, list[int]] = defaultdict(list)
        for file in package["files"]:
            by_split[file["split"]].append(file["n_bytes"])
        for split, sizes in sorted(by_split.items()):
            about = (package["name"], package["version"], package["licence"])
            found.append(Part(*about, split, len(sizes), sum(sizes)))
    return sorted(found)


def by_licence(found: list[Part]) -> list[tuple[str, int, int, int]]:
    """(licence, packages, files, bytes), the largest first."""
    groups: defaultdict[str, list[Part]] = defaultdict(list)
    for part in found:
        groups[part.licence].append(part)
    rows = [
        (
            licence,
            len({part.name for part in group}),
            sum(part.n_files for part in group),
            sum(part.n_bytes for part in group),
        )
        for licence, group in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row[3], row[0]))


def licence_table(found: list[Part]) -> str:
    """What each licence stands over."""
    return table(("licence", "packages", "files", "bytes"), [*by_licence(found)])


def page(raw: bytes) -> str:
    """The page for the bytes of provenance.json."""
    found = parts(json.loads(raw))
    return PAGE.format(
        licence=LICENCE,
        digest=hashlib.sha256(raw).hexdigest(),
        licences=licence_table(found),
        packages=table(("package", "version", "licence", "split", "files", "bytes"), [*found]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="List what the family learnt from.")
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    raw = (arguments.corpus / "provenance.json").read_bytes()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(page(raw))


if __name__ == "__main__":
    main()
