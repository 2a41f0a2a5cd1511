"""Copy the exported family to where it stands in the repository, within its limits of size.

python -m training.place --work build/train --root .
python -m training.place --only moe    one member; the limits hold with what stands there
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from training.members import MEMBERS, Member
from training.stages import exported, exported_gguf

# The base is in every installation of headrace; the others in every clone of the repository, the
# heads of the base together.
MAX_BASE_BYTES, MAX_HEADS_BYTES, MAX_OTHER_BYTES = 15_000_000, 6_000_000, 30_000_000


def files_of(work: Path, root: Path, run: str, member: Member) -> dict[Path, Path]:
    """What stands where: the place in the repository of each exported file."""
    card = {root / member.card: work / "cards" / f"{member.name}.md"}
    if member.kind == "model":
        return {root / member.gguf: exported_gguf(work, run), **card}
    folder = exported(work, run)
    return {**{root / member.place / name: folder / name for name in member.folder_files}, **card}


def checked(what: str, files: list[Path], limit_bytes: int) -> int:
    """The bytes of `files`.

    Raises ValueError when they are more than the limit, or one is not there.
    """
    missing = [str(path) for path in files if not path.exists()]
    if missing:
        named = ", ".join(missing)
        raise ValueError(f"{what}: {named} is not there: export it, and write its card")
    n_bytes = sum(path.stat().st_size for path in files)
    if n_bytes > limit_bytes:
        raise ValueError(
            f"{what}: {n_bytes:,} bytes, allowed are {limit_bytes:,}: make the model smaller"
        )
    return n_bytes


def place(work: Path, root: Path, runs: Sequence[str] = tuple(MEMBERS)) -> None:
    """Copy the members of `runs` or, where something is too large or not there, nothing.

    Raises ValueError for either.
    """
    files = {run: files_of(work, root, run, member) for run, member in MEMBERS.items()}
    # A member that is not copied counts with the files that stand in its place.
    counted = {
        run: list(of.values()) if run in runs else [path for path in of if path.exists()]
        for run, of in files.items()
    }
    heads = [run for run, member in MEMBERS.items() if member.kind == "head"]
    others = [run for run in MEMBERS if run not in ("base", *heads)]
    groups = (
        ("the base", ["base"], MAX_BASE_BYTES),
        ("the heads together", heads, MAX_HEADS_BYTES),
        ("the others together", others, MAX_OTHER_BYTES),
    )
    sizes = {
        what: checked(what, [path for run in of for path in counted[run]], limit)
        for what, of, limit in groups
    }
    for run in runs:
        for target, source in files[run].items():
            target.parent.mkdir(parents=True, exist_ok=True)
            # Contents alone: the writers of some files make them readable by their owner only.
            shutil.copyfile(source, target)
    print(", ".join(f"{what} {n_bytes:,} bytes" for what, n_bytes in sizes.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Copy the family into the repository.")
    parser.add_argument("--work", type=Path, default=Path("build/train"))
    parser.add_argument("--root", type=Path, default=Path())
    parser.add_argument("--only", nargs="+", choices=MEMBERS, default=list(MEMBERS))
    arguments = parser.parse_args()
    try:
        place(arguments.work, arguments.root, arguments.only)
    except ValueError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
