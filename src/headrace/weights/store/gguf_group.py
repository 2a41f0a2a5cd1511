"""The GGUF models among file names: pieces of a split one together, and the kind in the name.

Names are all there is to go by before a file is fetched. Repositories write the kind at the end
of the stem ("name-Q4_K_M.gguf", "name.Q8_0.gguf") and pieces as "-00001-of-00003". Projectors of
vision models, draft layers and importance matrices are no models of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.errors import FetchError

_PIECE = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})")
_KIND = re.compile(
    r"(?:^|[-_.])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|NVFP4\w*|[BF]?F16|F32|FP16|FP32))$",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(r"mmproj|imatrix|^mtp-", re.IGNORECASE)


@dataclass(frozen=True)
class GGUFGroup:
    """One model: its files in order, the first to be opened. kind: "Q4_K_M"; "" where unnamed.

    num_pieces: how many the names say there are; `files` may hold fewer.
    """

    files: tuple[str, ...]
    kind: str
    num_pieces: int

    @property
    def complete(self) -> bool:
        """Whether every piece is there."""
        return len(self.files) == self.num_pieces


def gguf_groups(names: Iterable[str]) -> list[GGUFGroup]:
    """The GGUF models among `names` (paths in a repository), in name order."""
    pieces: dict[tuple[str, int], list[str]] = {}
    for name in sorted(names):
        if not name.endswith(".gguf") or _NO_MODEL.search(name.rpartition("/")[2]):
            continue
        stem = name.removesuffix(".gguf")
        split = _PIECE.fullmatch(stem)
        key = (split["stem"], int(split["count"])) if split else (stem, 1)
        pieces.setdefault(key, []).append(name)
    return [GGUFGroup(tuple(files), _kind(stem), count) for (stem, count), files in pieces.items()]


def choose_group(
    groups: list[GGUFGroup], *, quant: str | None, file: str | None, where: str
) -> GGUFGroup:
    """The one of `groups` that is meant: by file, by kind, or the only one.

    Raises FetchError listing what there is where none or several fit. where: for its first words.
    """
    if file is not None:
        fitting = [group for group in groups if file in group.files]
    elif quant is not None:
        fitting = [group for group in groups if group.kind.lower() == quant.lower()]
    else:
        fitting = groups
    if len(fitting) == 1:
        return fitting[0]
    asked = file or quant
    if not groups:
        raise FetchError(f"{where} has no GGUF model" + (f", so no {asked}" if asked else ""))
    if not fitting:
        raise FetchError(f"{where}: holds no {asked}; there is {listed(groups)}")
    remedy = "name one by its file: org/name/FILE" if quant else "name one: org/name:KIND"
    raise FetchError(f"{where}: holds several models; {remedy}; there is {listed(fitting)}")


def listed(groups: list[GGUFGroup]) -> str:
    """The groups by kind where that tells them apart, by file otherwise."""
    kinds = [group.kind for group in groups]
    return ", ".join(
        group.kind if group.kind and kinds.count(group.kind) == 1 else group.files[0]
        for group in groups
    )


def _kind(stem: str) -> str:
    match = _KIND.search(stem.rpartition("/")[2])
    # Some repositories name the kind in the folder only: "Q8_0/model-00001-of-00002.gguf".
    match = match or _KIND.search(stem.rpartition("/")[0].rpartition("/")[2])
    return match[1].upper() if match else ""
