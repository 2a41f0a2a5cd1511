"""Perplexity of a member's GGUF files in headrace and in llama.cpp: one text, the same windows.

    python -m training.measure.perplexity models/headrace-moe/headrace-moe-q8_0.gguf \\
        --llama FOLDER --out build/train/measures/perplexity-moe.json

The file is converted to F32, and that one quantised to each of the KINDS by llama.cpp's quantizer,
so that both programs read the same files. The text is of the standard library's packages that are
held out of training, so whoever has the same Python has it.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from headrace.weights.conversion.convert import write_gguf
from headrace.weights.open import open_checkpoint

TEXTS = ("email/message.py", "email/headerregistry.py", "wsgiref/handlers.py", "xmlrpc/client.py")
CONTEXT_TOKENS = 512
KINDS = ("F32", "Q8_0", "Q4_K_M")
_FINAL = re.compile(r"Final estimate: PPL = ([\d.]+) \+/- ([\d.]+)")


def held_out_text() -> str:
    """The modules of TEXTS, one behind the other."""
    library = Path(sysconfig.get_paths()["stdlib"])
    return "".join((library / name).read_text(encoding="utf-8") for name in TEXTS)


def of_headrace(model: Path, text: Path) -> dict[str, Any]:
    """What `headrace eval perplexity` prints as JSON; K and V are F32 where the weights are."""
    command = [sys.executable, "-m", "headrace", "eval", "perplexity", str(model)]
    options = ["--text", str(text), "--context", str(CONTEXT_TOKENS), "--json"]
    done = subprocess.run([*command, *options], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def of_llama(program: Path, model: Path, text: Path, exact: bool) -> tuple[float, float]:
    """llama-perplexity's estimate and its error; exact: with K and V in F32.

    Raises ValueError where it prints none.
    """
    command = [str(program), "-m", str(model), "-f", str(text), "-c", str(CONTEXT_TOKENS)]
    command += ["-t", "1", "-ngl", "0"]
    if exact:
        command += ["-ctk", "f32", "-ctv", "f32", "-fa", "off"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = _FINAL.search(done.stdout + done.stderr)
    if found is None:
        raise ValueError(f"{' '.join(command)} printed no final estimate")
    return float(found[1]), float(found[2])


def compare(model: Path, llama: Path) -> dict[str, Any]:
    """The report: a row for each of KINDS."""
    rows = []
    text = held_out_text()
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "text.txt"
        source.write_text(text, encoding="utf-8")
        whole = Path(scratch) / "F32.gguf"
        write_gguf(open_checkpoint(model), whole, "F32")
        for kind in KINDS:
            path = Path(scratch) / f"{kind}.gguf"
            if path != whole:
                command = [str(llama / "llama-quantize"), str(whole), str(path), kind]
                subprocess.run(command, check=True, capture_output=True)
            ours = of_headrace(path, source)
            theirs, error = of_llama(llama / "llama-perplexity", path, source, kind == "F32")
            rows.append(
                {"kind": kind, "headrace": ours["perplexity"], "llama_cpp": theirs, "error": error}
            )
    return {
        "texts": list(TEXTS),
        "python": platform.python_version(),
        "n_bytes": len(text.encode()),
        "context": CONTEXT_TOKENS,
        "windows": ours["windows"],
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare perplexities with llama.cpp's.")
    parser.add_argument("model", type=Path, help="GGUF file of a member")
    parser.add_argument("--llama", type=Path, required=True, help="folder of llama.cpp's programs")
    parser.add_argument("--out", type=Path, help="JSON file for the report")
    arguments = parser.parse_args()
    report = json.dumps(compare(arguments.model, arguments.llama), indent=2)
    print(report)
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(report + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
