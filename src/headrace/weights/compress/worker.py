"""What runs in the process that has PyTorch: `python worker.py JOB ANSWER`, in a session of its
own. It ends when its stdin does, of which whoever started it holds the other end.

It reads a Job, lets llm-compressor do it, and writes an Answer (`library.py`), both JSON. It
imports nothing of headrace, so that its environment needs none. Code that comes with a model is
never run, and no weights but safetensors are opened. `--check` looks whether the library is there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any

Job = dict[str, Any]

_NEEDED = ("torch", "transformers", "llmcompressor")
_SMOOTHING = 0.8
"""SmoothQuant's exponent in llm-compressor's own examples of W8A8."""


class StageError(Exception):
    """A failure, with the stage in which it came."""

    def __init__(self, stage: str, words: str) -> None:
        super().__init__(words)
        self.stage = stage


def do(job: Job) -> None:
    """Write the folder. Raises StageError."""
    import torch

    torch.set_num_threads(job["threads"])
    torch.manual_seed(0)
    try:
        model = _loaded(job["source"])
    except Exception as error:
        # Whatever transformers raises of a config or of names of tensors.
        raise StageError("load", _words(error)) from error
    for name, values in model.state_dict().items():
        if not torch.isfinite(values).all():
            raise StageError("numbers", f"tensor {name!r} holds NaN or infinity; it is damaged")
    try:
        model = _compressed(model, job)
    except Exception as error:
        raise StageError("compress", _words(error)) from error
    try:
        model.save_pretrained(job["out"], save_compressed=True)
    except Exception as error:
        # A disk that is full is an error of safetensors' own, which is no OSError. What was written
        # is of no use, and leaves no room for the answer.
        shutil.rmtree(job["out"], ignore_errors=True)
        raise StageError("write", _words(error)) from error


def _loaded(source: str) -> Any:
    from transformers import AutoModelForCausalLM, GenerationConfig, logging

    logging.set_verbosity_error()
    model, found = AutoModelForCausalLM.from_pretrained(
        source, dtype="auto", use_safetensors=True, trust_remote_code=False, local_files_only=True,
        output_loading_info=True,
    )  # fmt: skip
    # What a folder lacks it makes up of random numbers.
    if lacking := sorted(found["missing_keys"]):
        raise ValueError(f"{len(lacking)} tensors are missing, {lacking[0]!r} among them")
    # The source's goes along as it is. Some state a temperature without do_sample, which
    # transformers reads and then refuses to write.
    model.generation_config = GenerationConfig()
    return model


def _compressed(model: Any, job: Job) -> Any:
    import torch
    from llmcompressor import oneshot
    from llmcompressor.pipelines.cache import IntermediatesCache
    from torch.utils.data import DataLoader

    if not torch.accelerator.is_available():
        # AWQ of 0.14 pins pages for copies to a device, which raises where there is none.
        IntermediatesCache.pin_memory = lambda *_args, **_kwargs: None
    windows = [torch.tensor([window]) for window in job["windows"]]
    # A list has what a loader asks of a set of data; torch's types name a class of theirs.
    rows: Any = [{"input_ids": ids, "attention_mask": torch.ones_like(ids)} for ids in windows]
    return oneshot(
        model=model,
        recipe=_recipe(job),
        dataset=DataLoader(rows, batch_size=None) if rows else None,
        num_calibration_samples=len(rows) or 1,
        shuffle_calibration_samples=False,
        # Texts are tokens already; without anything here it looks for a tokenizer's files.
        processor=object(),
    )


def _recipe(job: Job) -> list[Any]:
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQModifier
    from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier

    groups: dict[str, Any] = {"config_groups": {"group_0": _scheme(job)}, "ignore": job["ignore"]}
    match job["method"]:
        case "gptq":
            return [GPTQModifier(**groups)]
        case "awq":
            return [AWQModifier(), QuantizationModifier(**groups)]
        case "smoothquant":
            return [SmoothQuantModifier(smoothing_strength=_SMOOTHING), GPTQModifier(**groups)]
    return [QuantizationModifier(**groups)]


def _scheme(job: Job) -> Any:
    from compressed_tensors.quantization import QuantizationArgs, preset_name_to_scheme

    scheme = preset_name_to_scheme(job["scheme"], ["Linear"])
    if job["group_size"]:
        stated = scheme.weights.model_dump(exclude_none=True)
        stated |= {"strategy": "group", "group_size": job["group_size"]}
        scheme.weights = QuantizationArgs(**stated)
    return scheme


def end_with_starter() -> None:
    """From now on this process and those that it starts are killed when its stdin ends, however
    whoever holds the other end came to its own.
    """

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        os.killpg(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="end-with-starter", daemon=True).start()


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def main(order: Path, answer: Path) -> None:
    """Do the job of one file and answer in another, whatever comes of it."""
    try:
        do(json.loads(order.read_text(encoding="utf-8")))
        found = {"program": f"llm-compressor {version('llmcompressor')}"}
    except StageError as error:
        found = {"error": str(error), "stage": error.stage}
    except Exception as error:
        found = {"error": _words(error), "stage": ""}
    # Its name shows only all of it.
    part = answer.with_name(f"{answer.name}.part")
    part.write_text(json.dumps(found), encoding="utf-8")
    part.replace(answer)


def check() -> int:
    """The exit status; what is lacking is printed."""
    lacking = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if lacking:
        print(f"{', '.join(lacking)} missing")
    return int(bool(lacking))


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(check())
    end_with_starter()
    main(Path(sys.argv[1]), Path(sys.argv[2]))
