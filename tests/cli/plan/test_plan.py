"""`headrace plan fit` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.plan.group import plan
from headrace.errors import HeadraceError
from headrace.weights.codecs import F32
from headrace.weights.safetensors.file import read_safetensors
from tests.models.fp8_folders import LAYOUTS, write_fp8


def run(*words: str) -> Result:
    return CliRunner().invoke(plan, ["fit", *words])


def test_the_table_has_verdict_components_and_the_most() -> None:
    done = run("llama-3.1-70b", "--hardware", "h100", "--quantization", "q4-k-m", "--users", "4")
    assert done.exit_code == 0, done.output
    assert "Llama 3.1 70B (catalog) on NVIDIA H100 SXM 80 GB: fits" in done.output
    for word in ("weights, Q4_K_M", "KV cache, F16", "10.74", "10.00", "free for KV", "exact"):
        assert word in done.output
    assert "most users, 8,192 tokens each: 12 (from 11 to 13)" in done.output


def test_what_does_not_fit_names_the_amount_and_the_options() -> None:
    done = run("llama-3.1-70b", "--hardware", "rtx-4090", "--quantization", "q4-k-m")
    assert "fits with a change" in done.output and "too much" in done.output
    assert "--count 4" in done.output and "--kv-type Q8_0" in done.output


def test_a_kind_of_layers_with_a_window_is_named_and_is_for_those() -> None:
    words = ("--hardware", "h100", "--kv-type", "Q8_0", "--kv-type-sliding", "BF16")
    done = run("gpt-oss-20b", *words, "--json")
    kv = next(one for one in json.loads(done.output)["quantities"] if one["id"] == "kv")
    assert kv["name"] == "KV cache, Q8_0, BF16 in layers with a window"
    named = {given["name"]: given["value"] for given in kv["inputs"]}
    assert named["bits of a key"] == 8.5 and named["bits of either in layers with a window"] == 16
    refused = run("qwen3-8b", *words)
    assert isinstance(refused.exception, HeadraceError)
    assert "--kv-type-sliding BF16 is for layers with a window, and qwen3-8b has none" in str(
        refused.exception
    )


def test_json_has_every_input() -> None:
    done = run("deepseek-v3", "--hardware", "8x-h100-sxm", "--quantization", "fp8", "--kv-type",
               "Q8_0,Q4_0", "--context", "4k", "--json")  # fmt: skip
    found = json.loads(done.output)
    assert found["devices"] == 8 and found["context_tokens"] == 4000
    kv = next(one for one in found["quantities"] if one["id"] == "kv")
    assert kv["formula_id"] == "F7" and kv["unit"] == "byte"
    assert {one["basis"] for one in kv["inputs"]} == {"exact", "given"}


def test_a_file_needs_no_quantization(shared_assets: Path) -> None:
    path = shared_assets / "models" / "stories260K" / "stories260K.gguf"
    done = run(str(path), "--json")
    found = json.loads(done.output)
    weights = next(one for one in found["quantities"] if one["id"] == "weights")
    assert found["model_source"] == "GGUF header" and weights["value"] == 292_800 * 4
    assert found["fits"] and found["context_tokens"] == 2048


@pytest.mark.parametrize("name", ["AutoFP8", "compressed channel", "block"])
def test_a_folder_of_fp8_counts_the_bytes_it_holds(name: str, tmp_path: Path) -> None:
    """One a weight, its scales, and what is not FP8 as it is; not two bytes a weight."""
    made = write_fp8(tmp_path, "qwen3", LAYOUTS[name], hidden=192, intermediate=320, layers=2)
    found = json.loads(run(str(made.fp8), "--json").output)
    weights = next(quantity for quantity in found["quantities"] if quantity["id"] == "weights")
    tensors = read_safetensors(made.fp8 / "model.safetensors").tensors
    stored = sum(
        tensor.nbytes for name, tensor in tensors.items() if not name.endswith("input_scale")
    )
    assert weights["value"] == stored
    twice = sum(2 * values.size for values in made.values.values())
    others = sum(tensor.nbytes for tensor in tensors.values() if tensor.codec is F32)
    assert stored < twice + others


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["llama-3.1-7b"], "did you mean"),
        (["gpt-5"], "does not publish"),
        (["qwen3-8b", "--hardware", "h101"], "did you mean"),
        (["qwen3-8b", "--users", "0"], "users is 0"),
        (["qwen3-8b", "--context", "0"], "context_tokens is 0"),
        (["qwen3-8b", "--count", "2"], "there is only one of this machine"),
        (["qwen3-8b", "--kv-type", "q3"], "KV type 'q3'"),
        (["qwen3-8b", "--quantization", "awqq"], "awq"),
        (["./nothing.json"], "cannot be read"),
    ],
)
def test_bad_input_is_told(words: list[str], told: str) -> None:
    done = run(*words)
    assert isinstance(done.exception, HeadraceError)
    assert told in str(done.exception)
