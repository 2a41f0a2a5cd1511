"""Files that are made: what is in them, interrupted runs, and sources and disks that fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import CheckpointError, ConfigError
from headrace.weights.codecs import BF16, F32, get_codec
from headrace.weights.gguf.file import read_gguf
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.open import open_checkpoint
from headrace.weights.quantize.importance import (
    ColumnSums,
    ImportanceFile,
    read_importance,
    write_importance,
)
from headrace.weights.quantize.make import QuantizeOptions, QuantizeResult, Step, make, plan
from headrace.weights.quantize.plan import mix_of, override_of
from headrace.weights.tensors.source import source_of_array
from tests.weights.quantize.models import FFN, METADATA, WIDTH, sources, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "model.gguf")


def made(model: Path, path: Path, mix: str = "Q4_K_M", **options: object) -> QuantizeResult:
    order = QuantizeOptions(mix_of(mix), **options)  # type: ignore[arg-type]
    return make(model, path, order, threads=2)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_tensors_are_what_their_codec_makes_of_the_source(model: Path, tmp_path: Path) -> None:
    result = made(model, tmp_path / "out.gguf")
    before, after = read_gguf(model), read_gguf(tmp_path / "out.gguf")
    assert list(before.tensors) == list(after.tensors)
    assert result.nbytes == (tmp_path / "out.gguf").stat().st_size
    for name, tensor in after.tensors.items():
        source = before.tensors[name]
        if tensor.codec is not source.codec:
            assert np.array_equal(tensor.data, tensor.codec.encode(source.to_f32())), name
        else:
            assert np.array_equal(tensor.data, source.data)
    assert after.tensors["output.weight"].codec.name == "Q6_K"
    assert after.metadata["general.file_type"] == 15
    assert after.metadata["general.quantization_version"] == 2
    others = {"general.file_type", "general.quantization_version"}
    assert {key: after.metadata[key] for key in set(after.metadata) - others} == {
        key: before.metadata[key] for key in before.metadata
    }
    assert names_in(tmp_path) == ["out.gguf"]


def test_a_plan_is_what_is_made_afterwards(model: Path, tmp_path: Path) -> None:
    order = QuantizeOptions(mix_of("Q5_K_M"), [override_of("attn_q=Q8_0")])
    steps: list[Step] = []
    result = make(model, tmp_path / "out.gguf", order, threads=1, progress=steps.append)
    assert steps == plan(model, order)
    assert steps[-1].done_values == steps[-1].total_values == result.num_values
    tensors = read_gguf(tmp_path / "out.gguf").tensors
    assert tensors["blk.2.attn_q.weight"].codec.name == "Q8_0"


def test_a_folder_becomes_a_file_that_opens(tmp_path: Path) -> None:
    from tests.weights.builders import hf_arrays, hf_config, write_hf

    folder = write_hf(tmp_path / "hf", hf_arrays(), hf_config())
    made(folder, tmp_path / "out.gguf", "Q8_0")
    opened, before = open_checkpoint(tmp_path / "out.gguf"), open_checkpoint(folder)
    assert opened.tensors.keys() == before.tensors.keys()
    assert {tensor.codec.name for tensor in opened.tensors.values()} == {"F32", "Q8_0"}


def test_the_number_of_threads_changes_nothing(model: Path, tmp_path: Path) -> None:
    order = QuantizeOptions(mix_of("Q3_K_M"))
    for threads in (1, 3):
        make(model, tmp_path / f"{threads}.gguf", order, threads=threads)
    assert (tmp_path / "1.gguf").read_bytes() == (tmp_path / "3.gguf").read_bytes()


def test_importance_weighs_the_columns_of_its_tensor_alone(model: Path, tmp_path: Path) -> None:
    columns = (np.random.default_rng(0).standard_normal((1, FFN)) ** 2).astype(np.float32)
    name = "blk.1.ffn_down.weight"
    sums = {name: ColumnSums(columns * 10, np.array([10], np.float32))}
    write_importance(tmp_path / "im.gguf", ImportanceFile(sums, ("text",), 3, 512))
    made(model, tmp_path / "a.gguf", importance=tmp_path / "im.gguf")
    made(model, tmp_path / "b.gguf")
    file, without = read_gguf(tmp_path / "a.gguf"), read_gguf(tmp_path / "b.gguf")
    source = read_gguf(model).tensors[name].to_f32()
    codec = file.tensors[name].codec
    assert np.array_equal(file.tensors[name].data, codec.encode(source, columns))
    for other in file.tensors.keys() - {name}:
        assert np.array_equal(file.tensors[other].data, without.tensors[other].data)
    assert file.metadata["quantize.imatrix.file"] == "im.gguf"
    assert file.metadata["quantize.imatrix.entries_count"] == 1
    assert file.metadata["quantize.imatrix.chunks_count"] == 3


@pytest.mark.parametrize(
    "mix", ["IQ3_XXS", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S"]
)
def test_kinds_of_few_bits_are_refused_without_importance(
    model: Path, tmp_path: Path, mix: str
) -> None:
    with pytest.raises(ConfigError, match="of no use without importance: measure it with headrace"):
        made(model, tmp_path / "out.gguf", mix)
    assert names_in(tmp_path) == []


def test_importance_without_a_tensor_of_few_bits_is_refused(model: Path, tmp_path: Path) -> None:
    name = "blk.0.ffn_down.weight"
    sums = {name: ColumnSums(np.ones((1, FFN), np.float32), np.array([4], np.float32))}
    write_importance(tmp_path / "im.gguf", ImportanceFile(sums, ("text",), 3, 512))
    with pytest.raises(ConfigError, match="which the file of --imatrix does not have"):
        made(model, tmp_path / "out.gguf", "IQ1_S", importance=tmp_path / "im.gguf")


def test_importance_of_experts_weighs_each_with_its_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    name, values = "blk.0.ffn_up_exps.weight", rng.standard_normal((3, 8, WIDTH)).astype(np.float32)
    write_gguf_file(tmp_path / "m.gguf", METADATA, [source_of_array(values, name, F32)])
    squares = (rng.standard_normal((3, WIDTH)) ** 2).astype(np.float32)
    counts = np.array([1, 4, 0], np.float32)
    sums = {name: ColumnSums(squares, counts)}
    write_importance(tmp_path / "im.gguf", ImportanceFile(sums))
    made(tmp_path / "m.gguf", tmp_path / "o.gguf", "Q4_K_S", importance=tmp_path / "im.gguf")
    stored = read_gguf(tmp_path / "o.gguf").tensors[name].data.reshape(3, 8, -1)
    means = [squares[0], squares[1] / 4, np.ones(WIDTH, np.float32)]
    for expert, mean in enumerate(means):
        assert np.array_equal(stored[expert], get_codec("Q4_K").encode(values[expert], mean))


def test_an_importance_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    sums = {
        name: ColumnSums(rng.random((rows, 32), np.float32), rng.random(rows, np.float32))
        for name, rows in (("a.weight", 1), ("b.weight", 4))
    }
    written = ImportanceFile(sums, ("one.txt", "two.txt"), 7, 512)
    write_importance(tmp_path / "im.gguf", written)
    read = read_importance(tmp_path / "im.gguf")
    assert (read.datasets, read.chunks, read.chunk_tokens) == (written.datasets, 7, 512)
    for name, of in written.sums.items():
        assert np.array_equal(read.sums[name].squares, of.squares)
        assert np.array_equal(read.sums[name].counts, of.counts)


def test_importance_of_another_model_is_refused(model: Path, tmp_path: Path) -> None:
    for name, columns, message in (
        ("blk.0.attn_q.weight", 64, "'blk.0.attn_q.weight' has 1 matrices of 256 columns"),
        ("blk.9.attn_q.weight", WIDTH, "names no tensor of this model"),
    ):
        sums = {name: ColumnSums(np.ones((1, columns), np.float32), np.ones(1, np.float32))}
        write_importance(tmp_path / "im.gguf", ImportanceFile(sums))
        with pytest.raises(CheckpointError, match=message):
            made(model, tmp_path / "o.gguf", importance=tmp_path / "im.gguf")
    with pytest.raises(CheckpointError, match=r"general\.type is ''; 'imatrix' is required"):
        read_importance(model)
    assert not (tmp_path / "o.gguf").exists()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("mix", ["Q4_K_M", "F16"])
def test_values_that_are_not_finite_are_named_by_tensor(
    tmp_path: Path, value: float, mix: str
) -> None:
    tensors = sources()
    bad = np.zeros((4, WIDTH), np.float32)
    bad[2, 7] = value
    tensors[5] = source_of_array(bad, tensors[5].name, BF16)
    write_gguf_file(tmp_path / "bad.gguf", METADATA, tensors)
    with pytest.raises(CheckpointError, match=f"{tensors[5].name}.*row 2 holds NaN or infinity"):
        made(tmp_path / "bad.gguf", tmp_path / "out.gguf", mix)
    assert names_in(tmp_path) == ["bad.gguf"]


def test_nothing_is_replaced_without_force(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.gguf"
    path.write_bytes(b"mine")
    with pytest.raises(ConfigError, match="exists already; --force replaces it"):
        made(model, path)
    assert path.read_bytes() == b"mine"
    make(model, path, QuantizeOptions(mix_of("Q8_0")), threads=1, force=True)
    assert read_gguf(path).metadata["general.file_type"] == 7
    with pytest.raises(ConfigError, match="is the source itself"):
        make(path, path, QuantizeOptions(mix_of("Q8_0")), threads=1, force=True)


def test_what_is_quantised_already_is_not_quantised_again_unasked(
    model: Path, tmp_path: Path
) -> None:
    made(model, tmp_path / "q8.gguf", "Q8_0")
    with pytest.raises(ConfigError, match="is Q8_0 already"):
        made(tmp_path / "q8.gguf", tmp_path / "q4.gguf")
    made(tmp_path / "q8.gguf", tmp_path / "q4.gguf", allow_requantize=True)


def interrupted(model: Path, path: Path, after: int, mix: str = "Q4_K_M") -> None:
    """A run that ends after some tensors, as Ctrl-C ends it."""

    def progress(step: Step) -> None:
        if step.number == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(model, path, QuantizeOptions(mix_of(mix)), threads=2, progress=progress)


def test_an_interrupted_run_is_taken_up_and_gives_the_same_file(
    model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "out.gguf"
    interrupted(model, path, 9)
    assert names_in(tmp_path) == [".out.gguf.part", ".out.gguf.part.json"]
    assert (tmp_path / ".out.gguf.part").read_bytes()[:4] != b"GGUF"
    result = made(model, path)
    # The ninth was on the disk when its report was interrupted.
    assert result.resumed == 9
    whole = tmp_path / "whole.gguf"
    assert made(model, whole).resumed == 0
    assert path.read_bytes() == whole.read_bytes()
    assert names_in(tmp_path) == ["out.gguf", "whole.gguf"]


def test_other_work_does_not_go_on_from_what_is_there(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.gguf"
    interrupted(model, path, 9)
    assert made(model, path, "Q5_K_M").resumed == 0
    path.unlink()
    source = write_model(tmp_path / "other.gguf")
    interrupted(source, path, 9)
    os.utime(source, ns=(1, 1))
    assert made(source, path).resumed == 0


def test_a_part_that_is_damaged_is_begun_again(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.gguf"
    for damage in ("note", "part"):
        interrupted(model, path, 9)
        if damage == "note":
            (tmp_path / ".out.gguf.part.json").write_text('{"key": 3', encoding="utf-8")
        else:
            os.truncate(tmp_path / ".out.gguf.part", 100)
        assert made(model, path).resumed == 0
        path.unlink()


SCRIPT = """
import sys, time
from pathlib import Path
from headrace.weights.quantize.make import QuantizeOptions, make
from headrace.weights.quantize.plan import mix_of
def slow(step):
    print(step.number, flush=True)
    time.sleep(0.05)
options = QuantizeOptions(mix_of("Q4_K_M"))
make(Path(sys.argv[1]), Path(sys.argv[2]), options, threads=1, progress=slow)
"""


@pytest.mark.process
def test_a_killed_run_leaves_nothing_under_the_name_and_the_next_makes_it(
    model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "out.gguf"
    arguments = [sys.executable, "-c", SCRIPT, str(model), str(path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == 5:
                process.send_signal(signal.SIGKILL)
                break
        process.wait(timeout=30)
    assert not path.exists()
    made(model, path)
    made(model, tmp_path / "whole.gguf")
    assert path.read_bytes() == (tmp_path / "whole.gguf").read_bytes()


@pytest.mark.process
def test_two_runs_of_one_file_exclude_each_other(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.gguf"
    arguments = [sys.executable, "-c", SCRIPT, str(model), str(path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "1\n"
        with pytest.raises(ConfigError, match="another process is writing"):
            made(model, path)
        assert process.wait(timeout=60) == 0
    assert read_gguf(path).metadata["general.file_type"] == 15


FULL = """
import resource, sys
from pathlib import Path
from headrace.errors import CheckpointError
from headrace.weights.quantize.make import QuantizeOptions, make
from headrace.weights.quantize.plan import mix_of
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
try:
    make(Path(sys.argv[1]), Path(sys.argv[2]), QuantizeOptions(mix_of("Q4_K_M")), threads=1)
except CheckpointError as error:
    print(error)
"""


@pytest.mark.process
def test_a_disk_without_room_is_an_error_that_names_the_tensor(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.gguf"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(model), str(path)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "cannot be written: File too large" in done.stdout
    assert "tensor 'blk.0." in done.stdout or "tensor 'blk.1." in done.stdout
    assert "make room and run the same command again" in done.stdout
    assert not path.exists()
    assert made(model, path).resumed > 0


def test_a_disk_with_too_little_room_is_noticed_before_work_begins(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.weights.quantize import partial_file

    monkeypatch.setattr(
        partial_file.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000})
    )
    with pytest.raises(CheckpointError, match="bytes more are needed, and 1,000 are free"):
        made(model, tmp_path / "out.gguf")
    assert names_in(tmp_path) == []
