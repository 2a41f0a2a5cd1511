"""llm-compressor, run in a process of its own: what it is asked for, and what came of it.

The process may be of another environment, since llm-compressor pins versions of what it needs. It
has PyTorch, gives its memory back when it ends, and what it prints goes nowhere unless stderr is a
terminal, where its bars are the progress. What it answers is a file. Of headrace's environment it
sees `_PASSED` alone, so no keys and tokens, and HF_HUB_OFFLINE=1, by which Hugging Face's libraries
ask no hub; nothing else keeps it from the network. It ends with headrace, however that does.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headrace.errors import CheckpointError, ConfigError, HeadraceError, UnsupportedModelError

REMEDY = (
    "make an environment for it (python3 -m venv compress; compress/bin/pip install torch "
    "llmcompressor) and give --compressor compress/bin/python"
)
WORKER = Path(__file__).with_name("worker.py")
_SHOWN_CHARACTERS = 600
"""Of an error of the library, which may be of many lines; the last says what it was."""


_PASSED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|COLUMNS|LINES|NO_COLOR|TZ|TMPDIR|LANG|LANGUAGE|LC_\w+"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|CUDA_\w+|NVIDIA_\w+|NCCL_\w+|HIP_\w+|ROCM_\w+|ROCR_\w+|HSA_\w+"
    r"|XDG_\w+|OMP_\w+|GOMP_\w+|KMP_\w+|MKL_\w+|OPENBLAS_\w+|MALLOC_\w+|TORCH_\w+|PYTORCH_\w+"
    r"|TORCHINDUCTOR_\w+|TRITON_\w+"
)
"""Variables that programs, libraries and devices are found and set up by."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """An order for the library."""

    source: str
    """Folder of weights at 16 or 32 bits."""
    out: str
    """Folder to write."""
    scheme: str
    method: str
    """As in `Format`."""
    group_size: int
    """Values along a row that share a scale; 0 leaves what the scheme has."""
    ignore: list[str]
    """Modules that stay as they are: names, or "re:" and an expression."""
    windows: list[list[int]]
    """Token ids that are read meanwhile; none where the format is made without."""
    threads: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a job."""

    error: str = ""
    """The library's own words; "" where it was done."""
    stage: str = ""
    """Where it stopped: "load", "numbers", "compress" or "write"; "" of what is none of them."""
    program: str = ""
    """Name and version of what made the folder."""


def check_installed(python: Path) -> None:
    """Raise ConfigError where the environment of this Python lacks the library."""
    command = [str(python), str(WORKER), "--check"]
    try:
        found = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment_of(os.environ, 1)
        )
    except OSError as error:
        raise ConfigError(f"--compressor {python}: {error.strerror}; {REMEDY}") from error
    if found.returncode:
        lacking = found.stdout.strip() or found.stderr.strip()[-_SHOWN_CHARACTERS:]
        raise ConfigError(
            f"--format needs llm-compressor and PyTorch, and {python} has none ({lacking}): "
            f"{REMEDY}"
        )


def environment_of(variables: Mapping[str, str], threads: int) -> dict[str, str]:
    """What the process sees of these variables, and what is set for it."""
    passed = {name: value for name, value in variables.items() if _PASSED.fullmatch(name)}
    return passed | {
        "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
        "LLM_COMPRESSOR_LOG_LEVEL": "ERROR",
        "OMP_NUM_THREADS": str(threads), "PYTHONWARNINGS": "ignore",
    }  # fmt: skip


def run_job(job: Job, work: Path, python: Path) -> str:
    """Do it, with files of its own in the folder `work`, by the `python` that has the library; the
    program's name and version.

    Raises UnsupportedModelError for a model that transformers cannot load, CheckpointError where
    the disk refuses or weights are no finite numbers, HeadraceError for other failures.
    """
    order, answer, log = work / "job.json", work / "answer.json", work / "log"
    order.write_bytes(msgspec.json.encode(job))
    shown = sys.stderr.isatty()
    command = [str(python), str(WORKER), str(order), str(answer)]
    with log.open("wb") as written:
        process = subprocess.Popen(
            command,
            # Nothing is written to it: it ends with this process, and the worker with it.
            stdin=subprocess.PIPE,
            stdout=written,
            stderr=None if shown else written,
            env=environment_of(os.environ, job.threads),
            start_new_session=True,
        )
        with process:
            try:
                status = process.wait()
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
    if not answer.is_file():
        last = log.read_text(encoding="utf-8", errors="replace").strip()[-_SHOWN_CHARACTERS:]
        why = "killed, as a process is that needs more memory than there is" if status == -9 else (
            f"status {status}"
        )  # fmt: skip
        raise HeadraceError(f"llm-compressor ended ({why}){': ' if last else ''}{last}")
    found = msgspec.json.decode(answer.read_bytes(), type=Answer)
    if found.error:
        raise _error(found, job)
    return found.program


def _error(found: Answer, job: Job) -> HeadraceError:
    words = found.error.strip()
    if len(words) > _SHOWN_CHARACTERS:
        words = f"...{words[-_SHOWN_CHARACTERS:]}"
    match found.stage:
        case "load":
            return UnsupportedModelError(
                f"{job.source}: transformers cannot load this model, and llm-compressor works on "
                f"what it loads: {words}"
            )
        case "numbers":
            return CheckpointError(f"{job.source}: {words}")
        case "write":
            return CheckpointError(f"{job.out}: cannot be written: {words}")
    return HeadraceError(f"llm-compressor cannot make {job.scheme} of {job.source}: {words}")
