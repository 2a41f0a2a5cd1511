"""Folders by llm-compressor: what is asked of it, and what becomes of its answer.

The library itself is stood in for by a function that writes what it would have written; that it
does is tested with it (test_llm_compressor.py).
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import CheckpointError, ConfigError, HeadraceError, UnsupportedModelError
from headrace.weights.codecs import BF16
from headrace.weights.compress.formats import FORMATS, format_of
from headrace.weights.compress.library import WORKER, Job, check_installed, run_job
from headrace.weights.compress.make import (
    CompressOptions,
    check_group_size,
    compress,
    is_quantisable,
)
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.tensors.source import source_of_tensor
from headrace.weights.tensors.tensor import Tensor
from tests.models.fp8_folders import LAYOUTS, Folders, write_fp8
from tests.tiny import tiny_checkpoint

PROGRAM = "llm-compressor 0"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """A folder of plain numbers, and the same in FP8 as compressed-tensors has it."""
    place = tmp_path_factory.mktemp("folders")
    folders = write_fp8(place, "llama", LAYOUTS["compressed channel"], layers=1)
    (folders.plain / "generation_config.json").write_text('{"temperature": 0.6}')
    (folders.plain / "chat_templates").mkdir()
    (folders.plain / "chat_templates" / "tool.jinja").write_text("{{ messages }}")
    return folders


def copying(folder: Path) -> Callable[[Job, Path], str]:
    """A library that always makes this folder, with files and keys of its own."""

    def run(job: Job, work: Path) -> str:
        assert work.is_dir() and not Path(job.out).exists()
        shutil.copytree(folder, job.out)
        (Path(job.out) / "generation_config.json").write_text("{}")
        config = json.loads((folder / "config.json").read_text()) | {"use_cache": True}
        (Path(job.out) / "config.json").write_text(json.dumps(config))
        return PROGRAM

    return run


def made(folders: Folders, out: Path, run: Callable[[Job, Path], str], name: str = "fp8") -> Path:
    source = open_checkpoint(folders.plain)
    result = compress(folders.plain, source, out, CompressOptions(format_of(name)), run)
    assert result.program == PROGRAM and result.kinds["F8_E4M3"] > 0
    assert result.nbytes == (out / "model.safetensors").stat().st_size
    return out


def test_what_is_not_weights_is_the_sources(folders: Folders, tmp_path: Path) -> None:
    out = made(folders, tmp_path / "out", copying(folders.fp8))
    source, new = (json.loads((p / "config.json").read_text()) for p in (folders.plain, out))
    assert new.pop("quantization_config")["quant_method"] == "compressed-tensors"
    assert new == source
    for name in ("generation_config.json", "chat_templates/tool.jinja"):
        assert (out / name).read_bytes() == (folders.plain / name).read_bytes()


def test_a_job_states_scheme_groups_and_text(folders: Folders, tmp_path: Path) -> None:
    asked: list[Job] = []

    def run(job: Job, work: Path) -> str:
        asked.append(job)
        return copying(folders.fp8)(job, work)

    options = CompressOptions(format_of("W4A16-GPTQ"), 32, ([1, 2], (3, 4)), threads=3)
    compress(folders.plain, open_checkpoint(folders.plain), tmp_path / "out", options, run)
    (job,) = asked
    assert (job.scheme, job.method, job.group_size, job.threads) == ("W4A16", "gptq", 32, 3)
    assert job.windows == [[1, 2], [3, 4]] and "lm_head" in job.ignore


def test_a_folder_that_lacks_a_tensor_or_was_not_quantised_is_refused(
    folders: Folders, tmp_path: Path
) -> None:
    with pytest.raises(
        CheckpointError, match=r"wrote a config\.json without 'quantization_config'"
    ):
        made(folders, tmp_path / "plain", copying(folders.plain))
    lacking, nothing = tmp_path / "lacking", tmp_path / "nothing"
    shutil.copytree(folders.fp8, lacking)
    stored = read_safetensors(folders.fp8 / "model.safetensors").tensors
    rest = [
        source_of_tensor(tensor, name, tensor.codec)
        for name, tensor in stored.items()
        if name != "model.norm.weight"
    ]
    write_safetensors_file(lacking / "model.safetensors", rest)
    with pytest.raises(CheckpointError, match=r"left out 1 tensors, 'model\.norm\.weight' among"):
        made(folders, tmp_path / "first", copying(lacking))
    nothing.mkdir()
    shutil.copyfile(folders.plain / "model.safetensors", nothing / "model.safetensors")
    stating(nothing, folders, ["re:.*"])
    with pytest.raises(CheckpointError, match="left 7 matrices of layers as they were, 'model"):
        made(folders, tmp_path / "second", copying(nothing))


def stating(folder: Path, folders: Folders, ignored: list[str]) -> None:
    """Write the config.json of a folder in FP8 in which these modules stay as they are."""
    config = json.loads((folders.fp8 / "config.json").read_text())
    config["quantization_config"]["ignore"] = ignored
    (folder / "config.json").write_text(json.dumps(config))


def test_one_matrix_of_a_layer_that_stays_as_it_was_is_refused(
    folders: Folders, tmp_path: Path
) -> None:
    left = "model.layers.0.mlp.up_proj"
    partly = tmp_path / "partly"
    partly.mkdir()
    stored = read_safetensors(folders.fp8 / "model.safetensors").tensors
    plain = read_safetensors(folders.plain / "model.safetensors").tensors
    kept = {name: tensor for name, tensor in stored.items() if not name.startswith(left)}
    kept[f"{left}.weight"] = plain[f"{left}.weight"]
    write_safetensors_file(
        partly / "model.safetensors",
        [source_of_tensor(tensor, name, tensor.codec) for name, tensor in kept.items()],
    )
    stating(partly, folders, ["lm_head", left])
    with pytest.raises(CheckpointError, match=rf"left 1 matrices .*'{left}\.weight' among them"):
        made(folders, tmp_path / "out", copying(partly))


@pytest.mark.parametrize(
    ("family", "kept"),
    [
        ("falcon", set()),
        ("llama4_text", {"feed_forward.router"}),
        ("granitemoe", {"block_sparse_moe.router.layer"}),
        ("phimoe", {"block_sparse_moe.gate"}),
        ("hunyuan_v1_moe", {"mlp.gate.wg"}),
        ("step3p7", {"moe.gate"}),
        ("qwen2_moe", {"mlp.gate", "mlp.shared_expert_gate"}),
        ("ernie4_5_moe", {"mlp.gate", "mlp.moe_statics.e_score_correction_bias"}),
    ],
)
def test_all_matrices_of_layers_but_what_routes_have_to_be_quantised(
    family: str, kept: set[str]
) -> None:
    matrices = {
        re.split(r"\.\d+\.", name, maxsplit=1)[-1].removesuffix(".weight"): tensor
        for name, tensor in tiny_checkpoint(family).tensors.items()
        if len(tensor.shape) > 1 and re.search(r"\.\d+\.", name)
    }
    assert len(matrices) > 3
    stay = {name for name, each in matrices.items() if not is_quantisable(each.name, each)}
    assert stay == kept


def test_stacks_of_experts_have_to_be_quantised_and_convolutions_have_not() -> None:
    shapes = {
        "model.layers.0.mlp.experts.gate_up_proj": (4, 64, 128),
        "model.layers.0.mlp.experts.gate_up_proj_bias": (4, 64),
        "model.layers.0.block_sparse_moe.input_linear.weight": (4, 64, 128),
        "model.layers.0.linear_attn.conv1d.weight": (64, 1, 4),
        "model.layers.0.mamba.A_log": (64, 16),
        "model.layers.0.self_attn.q_proj.bias": (64,),
        "lm_head.weight": (64, 64),
    }
    found = [
        name
        for name, shape in shapes.items()
        if is_quantisable(name, Tensor(name, shape, BF16, np.empty((0, 0), np.uint8)))
    ]
    assert found == list(shapes)[:1] + list(shapes)[2:3]


def test_rows_have_to_be_whole_groups(folders: Folders) -> None:
    checkpoint = open_checkpoint(folders.plain)
    width = checkpoint.config["hidden_size"]
    assert width % 128, "a wide model has nothing to refuse"
    with pytest.raises(
        ConfigError, match=r"not a multiple of the group's 128; give --group-size \d+"
    ):
        check_group_size(checkpoint, format_of("w4a16"), None)
    check_group_size(checkpoint, format_of("w4a16"), 32)
    check_group_size(checkpoint, format_of("fp8"), None)
    with pytest.raises(ConfigError, match="--group-size 64: the groups of NVFP4 are what they are"):
        check_group_size(checkpoint, format_of("nvfp4"), 64)


def test_names_in_any_case_and_no_others() -> None:
    assert format_of("NVFP4") is FORMATS["nvfp4"]
    with pytest.raises(ConfigError, match=r"--format 'int3' is not made; these are: fp8, fp8-st"):
        format_of("int3")


def test_a_python_without_the_library_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory; make an environment for it"):
        check_installed(tmp_path / "python")
    python = tmp_path / "bare"
    # Isolated, without the site's packages.
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    python.chmod(0o755)
    with pytest.raises(ConfigError, match=r"has none \(torch, transformers, llmcompressor missing"):
        check_installed(python)


def job_of(tmp_path: Path) -> Job:
    return Job(
        source=str(tmp_path), out=str(tmp_path / "out"), scheme="W8A8", method="nearest",
        group_size=0, ignore=[], windows=[], threads=1,
    )  # fmt: skip


def answering(tmp_path: Path, script: str) -> Path:
    """A program in the place of Python: JOB is $2, ANSWER is $3."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("stage", "kind", "words"),
    [
        ("load", UnsupportedModelError, "transformers cannot load this model.*it failed"),
        ("numbers", CheckpointError, "it failed"),
        ("compress", HeadraceError, "cannot make W8A8 of .*it failed"),
        ("write", CheckpointError, "cannot be written: it failed"),
    ],
)
def test_failures_say_where(
    stage: str, kind: type[HeadraceError], words: str, tmp_path: Path
) -> None:
    answer = json.dumps({"error": "it failed", "stage": stage})
    python = answering(tmp_path, f"echo '{answer}' > $3")
    with pytest.raises(kind, match=words):
        run_job(job_of(tmp_path), tmp_path, python)


def test_an_end_without_an_answer_shows_what_was_printed_last(tmp_path: Path) -> None:
    python = answering(tmp_path, "echo the last words >&2; exit 3")
    with pytest.raises(HeadraceError, match=r"ended \(status 3\): the last words"):
        run_job(job_of(tmp_path), tmp_path, python)
    python = answering(tmp_path, "kill -9 $$")
    with pytest.raises(HeadraceError, match="killed, as a process is that needs more memory"):
        run_job(job_of(tmp_path), tmp_path, python)


def test_an_answer_is_the_programs_name(tmp_path: Path) -> None:
    python = answering(tmp_path, f'[ "$1" = {WORKER} ] && echo \'{{"program": "it 1"}}\' > $3')
    assert run_job(job_of(tmp_path), tmp_path, python) == "it 1"
