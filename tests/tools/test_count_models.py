"""Published configs: how many are read, how many run as tiny models, and why each other is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import UnsupportedModelError
from headrace.models import FAMILIES, read_config
from headrace.weights.open import open_checkpoint
from tests.tiny import tiny_config
from tests.tiny_families import tiny_family_names
from tools import count_models
from tools.count_models import as_json, count_catalog, published_configs, quantised_as, refusal
from tools.counts.shrink import shrunk
from tools.counts.tiny_model import NEW_TOKENS, run, write_folder

LEAST_CONFIGS_RUN, LEAST_CONFIGS_OPEN = 61, 61
LEAST_CATALOG_RUN, LEAST_CATALOG_OPEN = 46, 35


def configs(shared_assets: Path) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    return list(published_configs(shared_assets / "model-configs" / "hf-config"))


def test_every_config_that_is_not_quantised_opens_or_names_its_architecture(
    shared_assets: Path,
) -> None:
    found = configs(shared_assets)
    assert len(found) == 85
    opened = []
    for name, config, beside in found:
        stated = count_models.with_quantisation(config, beside)
        kind, reason = quantised_as(stated), refusal(stated)
        unknown = f"model_type {config['model_type']!r} is not implemented" in reason
        if not reason:
            opened.append(name)
            assert kind in ("", "fp8", "FP8", "mxfp4", "NVFP4", "compressed-tensors"), name
        elif kind:
            assert unknown or f"quantization_config = {kind!r}" in reason, name
        else:
            assert unknown, f"{name}: {reason}"
    assert len(opened) >= LEAST_CONFIGS_OPEN
    # Neither config.json nor its tensors' names would say so.
    assert sum("quantization_config" not in config and bool(beside)
               for _, config, beside in found) >= 11  # fmt: skip


def test_what_the_page_says_of_published_configs_is_so(shared_assets: Path) -> None:
    """Otherwise: `python -m tools.count_models --record`, then `make docs`."""
    found = count_models.recorded_configs(shared_assets / "model-configs" / "hf-config")
    assert found == json.loads(count_models.RECORD.read_text(encoding="utf-8"))


@pytest.mark.matrix
def test_architectures_of_published_configs_run_as_tiny_models(shared_assets: Path) -> None:
    outcomes = list(count_models.count_configs(shared_assets / "model-configs" / "hf-config"))
    counted = as_json(outcomes)
    assert counted["models"] == 85
    assert counted["architectures_run"] >= LEAST_CONFIGS_RUN
    for outcome in outcomes:
        if outcome.tiny:
            unknown = f"model_type {outcome.architecture!r} is not implemented"
            assert unknown in outcome.tiny or "config key " in outcome.tiny, outcome
    assert "does not run" in count_models.table("configs", outcomes)


def test_open_models_of_the_catalog() -> None:
    counted = as_json(count_catalog())
    assert counted["architectures_run"] >= LEAST_CATALOG_RUN
    assert counted["plain_open"] >= LEAST_CATALOG_OPEN
    for outcome in counted["outcomes"]:
        for reason in (outcome["tiny"], outcome["published"]):
            assert not reason or outcome["architecture"] in reason or "published in" in reason


@pytest.mark.parametrize("family", FAMILIES)
def test_a_config_shrinks_to_one_that_is_read(family: str) -> None:
    """Whatever the family, and a tiny config as well as a large one."""
    assert family in tiny_family_names()
    small = shrunk(tiny_config(family))
    assert small["model_type"] == family
    assert refusal(small) == ""


def test_what_decides_which_code_runs_is_kept() -> None:
    config = {
        "model_type": "x", "num_hidden_layers": 48, "num_attention_heads": 64,
        "num_key_value_heads": 8, "hidden_size": 4096, "intermediate_size": 16384,
        "moe_intermediate_size": 1024, "sliding_window": 128, "vocab_size": 200000,
        "layer_types": ["full_attention", "full_attention", "sliding_attention"] * 16,
        "head_dim": 128, "num_experts": 256, "num_experts_per_tok": 8, "n_group": 8,
        "topk_group": 4, "first_k_dense_replace": 3, "max_window_layers": 48,
        "mlp_only_layers": [0, 40], "quantization_config": {"quant_method": "fp8"},
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
    }  # fmt: skip
    expected = config | {
        "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 2,
        "hidden_size": 256, "intermediate_size": 1024, "moe_intermediate_size": 64,
        "vocab_size": 288, "layer_types": config["layer_types"][:4], "num_experts": 16,
        "max_window_layers": 4, "mlp_only_layers": [0], "bos_token_id": 256, "eos_token_id": 257,
        "pad_token_id": None,
    }  # fmt: skip
    del expected["quantization_config"]
    assert shrunk(config) == expected
    outer = {"model_type": "y", "text_config": config, "quantization_config": {}}
    assert shrunk(outer) == {"model_type": "y", "text_config": expected}


def test_a_folder_is_written_opened_and_run(tmp_path: Path) -> None:
    folder = write_folder(shrunk(tiny_config("gpt_oss")), tmp_path / "tiny")
    assert len(run(folder)) == NEW_TOKENS


def test_a_folder_that_modelopts_file_calls_quantised_is_refused(tmp_path: Path) -> None:
    folder = write_folder(shrunk(tiny_config("qwen3")), tmp_path / "tiny")
    assert refusal(open_checkpoint(folder).config) == ""
    stated = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "INT4_AWQ"}}
    (folder / "hf_quant_config.json").write_text(json.dumps(stated))
    with pytest.raises(UnsupportedModelError, match="quantization_config = 'INT4_AWQ'"):
        read_config(open_checkpoint(folder))
