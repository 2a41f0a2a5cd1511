"""Damaged files: every cut and many flips end in our errors, in bounded time and memory."""

from __future__ import annotations

import json
import resource
import struct
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from headrace.errors import CheckpointError, HeadraceError, UnsupportedModelError
from headrace.weights.gguf.file import read_gguf
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.file import read_safetensors
from tools.fuzz import gguf as gguf_fuzzer
from tools.fuzz import harness
from tools.fuzz import quantised_folders as quantised_folders_fuzzer
from tools.fuzz import safetensors as safetensors_fuzzer
from tools.fuzz import tokenizer_json as tokenizer_json_fuzzer

from .builders import hf_arrays, hf_config, write_gguf_with_library, write_hf

EXPECTED = (CheckpointError, UnsupportedModelError)


@pytest.fixture(scope="module")
def small_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    return write_gguf_with_library(path, hf_arrays(), extra={"llama.expert_count": 0})


def try_all(path: Path) -> str:
    """Open `path`, look at everything in it, and say how it ended."""
    try:
        checkpoint = open_checkpoint(path)
        for key in checkpoint.metadata:
            checkpoint.metadata[key]
        for tensor in checkpoint.tensors.values():
            assert tensor.data.nbytes <= path.stat().st_size
    except EXPECTED as error:
        assert len(str(error)) < 4000
        return type(error).__name__
    return "opened"


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.every_cut)])
def test_a_gguf_file_cut_at_every_byte_of_its_header(
    step: int, small_gguf: Path, tmp_path: Path
) -> None:
    raw = small_gguf.read_bytes()
    end = raw.find(read_gguf(small_gguf).tensors["token_embd.weight"].data.tobytes())
    assert end > 5_000
    path = tmp_path / "cut.gguf"
    path.write_bytes(raw)
    for n_bytes in range(end + 1, -1, -step):
        with path.open("r+b") as out:
            out.truncate(n_bytes)
        with pytest.raises(EXPECTED):
            read_gguf(path)


@pytest.mark.parametrize("n_flips", [400, pytest.param(1500, marks=pytest.mark.long)])
def test_flipped_bytes_in_a_gguf_header(n_flips: int, small_gguf: Path, tmp_path: Path) -> None:
    raw = bytearray(small_gguf.read_bytes())
    strings = raw.find(b"tokenizer.ggml.tokens")
    rng = np.random.default_rng(20240)
    path = tmp_path / "flipped.gguf"
    path.write_bytes(raw)
    outcomes: dict[str, int] = {}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Half of the flips among the model's own keys, half among the tensors' entries.
    tensors = raw.find(b"token_embd.weight")
    for flip in range(n_flips):
        low, high = (4, strings) if flip % 2 else (tensors - 8, tensors + 1200)
        places = rng.integers(low, high, 1 + flip % 3)
        values = rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))], len(places))
        with path.open("r+b") as out:
            for place, value in zip(places.tolist(), values.tolist(), strict=True):
                out.seek(place)
                out.write(bytes([value]))
        outcome = try_all(path)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        with path.open("r+b") as out:
            for place in places.tolist():
                out.seek(place)
                out.write(raw[place : place + 1])
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 64 * 1024
    assert set(outcomes) == {"opened", "CheckpointError", "UnsupportedModelError"}
    assert outcomes["CheckpointError"] > n_flips // 10


def test_a_safetensors_file_cut_at_every_byte(tmp_path: Path) -> None:
    folder = write_hf(tmp_path, {"a": np.ones((3, 4), np.float32)}, hf_config())
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    for n_bytes in range(len(raw)):
        path.write_bytes(raw[:n_bytes])
        with pytest.raises(CheckpointError):
            read_safetensors(path)


@pytest.mark.parametrize("n_flips", [200, pytest.param(400, marks=pytest.mark.long)])
def test_flipped_bytes_in_a_safetensors_header(n_flips: int, tmp_path: Path) -> None:
    folder = write_hf(tmp_path, hf_arrays(), hf_config())
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    header_end = 8 + int.from_bytes(raw[:8], "little")
    rng = np.random.default_rng(7)
    refused = 0
    for flip in range(n_flips):
        damaged = bytearray(raw)
        for place in rng.integers(0, header_end, 1 + flip % 3).tolist():
            damaged[place] = int(rng.integers(256))
        path.write_bytes(damaged)
        try:
            open_checkpoint(folder)
        except HeadraceError:
            refused += 1
    assert refused > n_flips // 2


@pytest.mark.parametrize(
    ("header", "pattern"),
    [
        (b'{"a":' * 5000, "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"a":1}', "an object of dtype, shape and data_offsets"),
        (b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}}', "an object of dtype"),
        (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', "so 8 bytes, but .* hold 4"),
        (b'{"a":{"dtype":"F16","shape":[1],"data_offsets":[0,4]}}', "so 2 bytes, but .* hold 4"),
        (b'{"a":{"dtype":"Q8_0","shape":[1],"data_offsets":[0,4]}}', "'Q8_0' is not supported"),
        (b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', "a list of at most 8 sizes"),
        (b'{"a":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}}', "a list of at most 8"),
        (b'{"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}}', "a list of at most 8"),
        (b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}', "begin <= end"),
        (b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}', "begin <= end"),
        (b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', "begins at byte 4"),
        (b'{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}}', "hold 4"),
        (
            b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
            b'"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
            "'b' begins at byte 0 .* 4 is required",
        ),
        (
            b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
            b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
            "'a' appears twice",
        ),
        (b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}', "ends at byte 36"),
        (b"{}", "bytes that belong to no tensor"),
        (b'{"__metadata__":{"a":1}}', "map strings to strings"),
        (b'{"a":{"dtype":"F32","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,4]}}', "JSON"),
    ],
)
def test_hostile_safetensors_headers(tmp_path: Path, header: bytes, pattern: str) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    with pytest.raises(CheckpointError, match=pattern) as caught:
        read_safetensors(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 100_000_001, 5])
def test_hostile_safetensors_header_lengths(tmp_path: Path, length: int) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", length) + b"{}")
    with pytest.raises(CheckpointError, match=f"claims to be {length} bytes long; the limit"):
        read_safetensors(path)


def test_damaged_json_beside_the_weights(tmp_path: Path) -> None:
    folder = write_hf(tmp_path, {"a": np.ones(4, np.float32)}, hf_config())
    for content in (b"", b"{", b"[]", b"\xff", b"[" * 100_000):
        for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
            good = json.dumps(hf_config()).encode()
            (folder / name).write_bytes(content)
            with pytest.raises(CheckpointError, match=name):
                open_checkpoint(folder)
            (folder / name).write_bytes(good)


@pytest.mark.parametrize(
    ("fuzzer", "iterations"),
    [
        pytest.param(gguf_fuzzer, 100, id="gguf"),
        pytest.param(safetensors_fuzzer, 250, id="hf"),
        pytest.param(quantised_folders_fuzzer, 90, id="quantised"),
        pytest.param(tokenizer_json_fuzzer, 14, id="tokenizer"),
        pytest.param(gguf_fuzzer, 1200, id="gguf-longer", marks=pytest.mark.long),
        pytest.param(safetensors_fuzzer, 500, id="hf-longer", marks=pytest.mark.long),
        pytest.param(quantised_folders_fuzzer, 1500, id="quantised-longer", marks=pytest.mark.long),
        pytest.param(tokenizer_json_fuzzer, 200, id="tokenizer-longer", marks=pytest.mark.long),
    ],
)
def test_a_short_run_of_the_fuzzer_finds_nothing(fuzzer: ModuleType, iterations: int) -> None:
    target = fuzzer.make_target()
    report = harness.run(target, seed=20261, iterations=iterations, limit_s=20.0)
    assert not report.findings, next(iter(report.findings.values())).text
    assert report.iterations == iterations
    # Neither so gentle that all is opened nor so wild that nothing gets past the first check.
    assert report.outcomes["opened"] > iterations // 20
    assert report.outcomes["CheckpointError"] > iterations // 5


def test_the_fuzzer_reports_and_reproduces_what_it_finds() -> None:
    def attempt(data: bytes) -> str:
        if data[0] == 7:
            raise KeyError("seven")
        return "fine"

    target = harness.Target([b"x"], lambda seeds, rng: bytes([rng.randrange(16)]), attempt)
    report = harness.run(target, seed=1, iterations=200)
    ((name, finding),) = report.findings.items()
    assert name.startswith("FINDING KeyError at test_fuzz.py:")
    assert report.outcomes["fine"] + report.outcomes[name] == 200
    again = harness.run(target, seed=1, first=finding.number, iterations=1)
    assert again.findings[name].data == finding.data == bytes([7])


def test_an_input_that_takes_too_long_is_a_finding() -> None:
    def attempt(data: bytes) -> str:
        time.sleep(30)
        return "fine"

    target = harness.Target([b""], lambda seeds, rng: b"", attempt)
    report = harness.run(target, seed=1, iterations=1, limit_s=0.05)
    assert next(iter(report.findings)).startswith("FINDING TooSlowError")


@pytest.mark.parametrize("size", [2**40, 2**62])
def test_an_empty_tensor_of_impossible_shape_is_refused(tmp_path: Path, size: int) -> None:
    shape = [size, 0, size]
    header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(CheckpointError, match="zeros left out, multiply to more than memory has"):
        read_safetensors(path)


@pytest.mark.parametrize("name", ["x" * 300, "a\x00b", "\ud800", "a\n"])
def test_names_no_file_can_have_are_refused(tmp_path: Path, name: str) -> None:
    folder = write_hf(tmp_path, {"a": np.ones(4, np.float32)}, hf_config())
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    index = {"weight_map": {"a": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(
        CheckpointError, match=r"a plain file name is required|surrogates not allowed"
    ):
        open_checkpoint(folder)


def test_errors_stay_short_whatever_a_file_holds(tmp_path: Path) -> None:
    long = "9" * 60_000
    path = tmp_path / "m.gguf"
    keys = ("general.architecture", "general.alignment", "general.type")
    for key in (*keys, "tokenizer.chat_template.x"):
        value = [long] if key.startswith("tok") else long
        write_gguf_with_library(path, hf_arrays(), extra={key: value})
        with pytest.raises(EXPECTED) as caught:
            open_checkpoint(path)
        assert len(str(caught.value)) < 1000
