"""Builds llama.cpp or ik_llama.cpp from the sdist that carries its whole source, in a folder.

    python -m benchmarks.llamacpp.build FOLDER [--peer ik] [--level avx2]

Level `native` takes what the compiler finds on this machine, `avx2` nothing beyond AVX2, FMA and
F16C, `avx_vnni` these and AVX-VNNI: each has a build of its own in the same source. Takes a quarter
of an hour on two cores, half of one for ik_llama.cpp; what is built is kept.

One thing of llama.cpp is changed: gcc 12 declares that `_tile_loadconfig` reads 8 bytes, so three
of the four stores to the configuration may vanish and the instruction faults on machines with AMX;
the call is replaced by the instruction with the whole structure as its operand. The sdist of
ik_llama.cpp lacks the script that writes its version down; it is written here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_AVX2 = {
    "GGML_NATIVE": "OFF", "GGML_AVX": "ON", "GGML_AVX2": "ON", "GGML_FMA": "ON",
    "GGML_F16C": "ON", "GGML_BMI2": "ON", "GGML_AVX512": "OFF",
}  # fmt: skip
LEVELS: Mapping[str, Mapping[str, str]] = {
    "native": {"GGML_NATIVE": "ON"},
    "avx_vnni": {**_AVX2, "GGML_AVX_VNNI": "ON"},
    "avx2": _AVX2,
}
_LIBRARIES = (
    "src/libllama.a", "ggml/src/libggml.a", "ggml/src/libggml-cpu.a", "ggml/src/libggml-base.a",
)  # fmt: skip
_CALL = "_tile_loadconfig(&tc);"
_BUILD_INFO = """\
include(cmake/build-info.cmake)
configure_file(common/build-info.cpp.in common/build-info.cpp)
"""
"""Run in the folder of the source."""
_INSTRUCTION = '__asm__ volatile("ldtilecfg %0" : : "m"(tc));'


def _mend_llama(source: Path) -> None:
    path = source / "ggml" / "src" / "ggml-cpu" / "amx" / "mmq.cpp"
    text = path.read_text(encoding="utf-8")
    if _CALL not in text and _INSTRUCTION not in text:
        raise SystemExit(f"{path} has no {_CALL}: another version than the one that is known?")
    path.write_text(text.replace(_CALL, _INSTRUCTION), encoding="utf-8")


def _mend_ik(source: Path) -> None:
    path = source / "common" / "cmake" / "build-info-gen-cpp.cmake"
    path.parent.mkdir(exist_ok=True)
    path.write_text(_BUILD_INFO, encoding="utf-8")


class Sdist(NamedTuple):
    """A package whose sdist has the source of a peer in `tree`."""

    package: str
    version: str
    tree: str
    tools: Sequence[str]
    settings: Mapping[str, str]
    """Of CMake, beside those of all peers and of a level."""
    mend: Callable[[Path], None]
    """Changes what has to be changed of the source in a folder; once or again."""

    @property
    def folder(self) -> str:
        """What the archive unpacks to."""
        return f"{self.package}-{self.version}"


PEERS = {
    "llama": Sdist(
        "llama_cpp_python",
        "0.3.36",
        "vendor/llama.cpp",
        (
            "llama-bench", "llama-batched-bench", "llama-perplexity", "llama-quantize",
            "llama-server",
        ),
        {"LLAMA_BUILD_UI": "OFF"},
        _mend_llama,
    ),
    "ik": Sdist(
        "ik_llama_cpp_python",
        "0.1.5",
        "vendor/ik_llama.cpp",
        ("llama-bench", "llama-batched-bench", "llama-server"),
        # Attention over quantised K and V, which takes most of the compiler's time, is left out.
        {"GGML_IQK_FA_ALL_QUANTS": "OFF"},
        _mend_ik,
    ),
}  # fmt: skip


class Peer(NamedTuple):
    """A built peer. source: its tree; build: CMake's folder."""

    source: Path
    build: Path

    @property
    def bin(self) -> Path:
        """Where its programs lie."""
        return self.build / "bin"

    def tool(self, name: str) -> str:
        """Path of one program."""
        return str(self.bin / name)

    def logits_program(self) -> Path:
        """logits.cpp linked with its libraries; compiled where that is not done yet."""
        program = self.bin / "headrace-logits"
        code = Path(__file__).with_name("logits.cpp")
        if not program.is_file() or program.stat().st_mtime < code.stat().st_mtime:
            subprocess.run(
                [
                    "g++", "-O2", "-std=c++17", f"-I{self.source / 'include'}",
                    f"-I{self.source / 'ggml/include'}", str(code), "-o", str(program),
                    *(str(self.build / name) for name in _LIBRARIES),
                    "-fopenmp", "-lpthread", "-ldl",
                ],
                check=True,
            )  # fmt: skip
        return program


def built(folder: Path, peer: str = "llama", level: str = "native") -> Peer:
    """The peer of `folder`, fetched and built where it is not there."""
    sdist = PEERS[peer]
    source = folder / sdist.folder / sdist.tree
    if not source.is_dir():
        _fetch(sdist, folder)
    found = Peer(source, source / ("build" if level == "native" else f"build-{level}"))
    if not all((found.bin / name).is_file() for name in sdist.tools):
        sdist.mend(source)
        _build(found, sdist, level)
    return found


def _fetch(sdist: Sdist, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    archives = f"{sdist.folder}.tar.gz"
    if not (folder / archives).is_file():
        wanted = f"{sdist.package}=={sdist.version}"
        command = [sys.executable, "-m", "pip", "download", "--no-binary", ":all:", "--no-deps"]
        subprocess.run([*command, "--no-build-isolation", "-d", str(folder), wanted], check=True)
    with tarfile.open(folder / archives) as archive:
        archive.extractall(folder, filter="data")


def _build(peer: Peer, sdist: Sdist, level: str) -> None:
    if shutil.which("cmake") is None:
        raise SystemExit("cmake is needed to build a peer")
    settings = {
        "CMAKE_BUILD_TYPE": "Release", "LLAMA_CURL": "OFF", "BUILD_SHARED_LIBS": "OFF",
        **sdist.settings, **LEVELS[level],
    }  # fmt: skip
    flags = [f"-D{name}={value}" for name, value in settings.items()]
    build = str(peer.build)
    subprocess.run(["cmake", "-S", str(peer.source), "-B", build, *flags], check=True)
    threads = str(len(os.sched_getaffinity(0)))
    subprocess.run(["cmake", "--build", build, "-j", threads, "--target", *sdist.tools], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer", choices=PEERS, default="llama")
    parser.add_argument("--level", choices=LEVELS, default="native")
    options = parser.parse_args()
    print(built(options.folder, options.peer, options.level).bin)
