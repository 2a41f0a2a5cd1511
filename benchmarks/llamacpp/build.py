"""Builds llama.cpp's tools from the sdist of llama_cpp_python, in a folder of their own.

    python -m benchmarks.llamacpp.build FOLDER

The sdist carries the whole of llama.cpp. One thing is changed: gcc 12 declares that
`_tile_loadconfig` reads 8 bytes, so three of the four stores to the configuration may vanish and
the instruction faults on machines with AMX; the call is replaced by the instruction with the whole
structure as its operand. Takes about a quarter of an hour on two cores; what is built is kept.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

VERSION = "0.3.36"
TOOLS = (
    "llama-bench", "llama-batched-bench", "llama-perplexity", "llama-quantize", "llama-server",
)  # fmt: skip
_LIBRARIES = (
    "src/libllama.a", "ggml/src/libggml.a", "ggml/src/libggml-cpu.a", "ggml/src/libggml-base.a",
)  # fmt: skip
_CALL = "_tile_loadconfig(&tc);"
_INSTRUCTION = '__asm__ volatile("ldtilecfg %0" : : "m"(tc));'


class Peer(NamedTuple):
    """A built llama.cpp. source: its tree; bin: where its programs lie."""

    source: Path

    @property
    def bin(self) -> Path:
        """Where its programs lie."""
        return self.source / "build" / "bin"

    def tool(self, name: str) -> str:
        """Path of one program."""
        return str(self.bin / name)

    def logits_program(self) -> Path:
        """logits.cpp linked with its libraries; compiled where that is not done yet."""
        program = self.bin / "headrace-logits"
        code = Path(__file__).with_name("logits.cpp")
        if not program.is_file() or program.stat().st_mtime < code.stat().st_mtime:
            build = self.source / "build"
            subprocess.run(
                [
                    "g++", "-O2", "-std=c++17", f"-I{self.source / 'include'}",
                    f"-I{self.source / 'ggml/include'}", str(code), "-o", str(program),
                    *(str(build / name) for name in _LIBRARIES), "-fopenmp", "-lpthread", "-ldl",
                ],
                check=True,
            )  # fmt: skip
        return program


def built(folder: Path) -> Peer:
    """The llama.cpp of `folder`, fetched and built where it is not there."""
    source = folder / f"llama_cpp_python-{VERSION}" / "vendor" / "llama.cpp"
    if not source.is_dir():
        _fetch(folder)
    peer = Peer(source)
    if not all((peer.bin / name).is_file() for name in TOOLS):
        _patch(source)
        _build(source)
    return peer


def _fetch(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    wanted = f"llama_cpp_python=={VERSION}"
    command = [sys.executable, "-m", "pip", "download", "--no-binary", ":all:", "--no-deps"]
    subprocess.run([*command, "--no-build-isolation", "-d", str(folder), wanted], check=True)
    with tarfile.open(next(folder.glob("llama_cpp_python-*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")


def _patch(source: Path) -> None:
    path = source / "ggml" / "src" / "ggml-cpu" / "amx" / "mmq.cpp"
    text = path.read_text(encoding="utf-8")
    if _CALL not in text and _INSTRUCTION not in text:
        raise SystemExit(f"{path} has no {_CALL}: another version than {VERSION}?")
    path.write_text(text.replace(_CALL, _INSTRUCTION), encoding="utf-8")


def _build(source: Path) -> None:
    if shutil.which("cmake") is None:
        raise SystemExit("cmake is needed to build llama.cpp")
    build = str(source / "build")
    settings = {
        "CMAKE_BUILD_TYPE": "Release", "GGML_NATIVE": "ON", "LLAMA_CURL": "OFF",
        "LLAMA_BUILD_UI": "OFF", "BUILD_SHARED_LIBS": "OFF",
    }  # fmt: skip
    flags = [f"-D{name}={value}" for name, value in settings.items()]
    subprocess.run(["cmake", "-S", str(source), "-B", build, *flags], check=True)
    subprocess.run(["cmake", "--build", build, "-j2", "--target", *TOOLS], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    print(built(parser.parse_args().folder).bin)
