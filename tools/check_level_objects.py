"""Checks that nothing compiled for one dispatch level can be linked into the path of another.

Reads the object files of the kernels in a build folder with nm (and objdump on x86-64): a level's
unit defines one symbol for others, its table; it needs nothing but the C library, the tables of
other levels and the code books; units without -m flags hold no instruction on wide registers. Exits
1 naming what does not hold.
usage: python tools/check_level_objects.py BUILD_FOLDER [--prefix aarch64-linux-gnu-]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ALLOWED = {
    "memcpy",
    "memset",
    "memmove",
    "__cxa_guard_acquire",
    "__cxa_guard_release",
    "_GLOBAL_OFFSET_TABLE_",
}
"""What a level may call: none of it is inline, so none of it is compiled with the level's flags."""

TABLES = r"headrace::(\w+_kernels\(\)|kIq\w+Book)"
"""What it may need of headrace: tables of other levels, and data."""

WIDE = {
    "avx2": "zmm", "avx_vnni": "zmm", "avx512": "tmm", "avx512_vbmi": "tmm",
    "avx512_bf16": "tmm", "amx": "none of them",
}  # fmt: skip
"""Registers a level must not touch; every other unit must not touch ymm either."""


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def symbol_faults(path: Path, level: str, prefix: str) -> list[str]:
    """What the level's unit defines for others, and needs of others, beyond what it may."""
    faults = []
    own = f"headrace::{level}_kernels()"
    for line in output_of(f"{prefix}nm", "-C", str(path)).splitlines():
        found = re.fullmatch(r"\s*[0-9a-f]*\s+([A-Za-z])\s+(.+)", line)
        if found is None:
            continue
        kind, name = found.groups()
        if kind == "U":
            if name not in ALLOWED and not re.fullmatch(TABLES, name):
                faults.append(f"{path.name} needs {name}")
        elif (kind.isupper() or kind in "wvu") and name != own:
            faults.append(f"{path.name} defines {name} ({kind}) for others")
    return faults


def register_faults(path: Path, level: str | None, prefix: str) -> list[str]:
    forbidden = "[yzt]mm" if level in (None, "portable") else WIDE.get(level, "[yzt]mm")
    found = re.search(rf"%{forbidden}\d+", output_of(f"{prefix}objdump", "-d", str(path)))
    return [] if found is None else [f"{path.name} uses {found[0]}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prefix", default="", help="of nm and objdump")
    options = parser.parse_args()
    objects = sorted(options.folder.glob("**/headrace_kernels.dir/*.o"))
    levels = [path for path in objects if path.name.startswith("level_")]
    if len(levels) < 2:
        print(f"{options.folder} holds the objects of {len(levels)} levels; build first")
        return 1
    faults = []
    for path in objects:
        match = re.fullmatch(r"level_(\w+)\.cpp\.o", path.name)
        level = match[1] if match else None
        if level is not None:
            faults += symbol_faults(path, level, options.prefix)
        if not options.prefix:
            faults += register_faults(path, level, options.prefix)
    print("\n".join(faults) or f"{len(levels)} levels, {len(objects)} objects: nothing leaks")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
