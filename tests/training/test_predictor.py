"""What is measured: greedy continuations, and models read from every place they are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="measuring models needs PyTorch")

from tests.training.toy_models import (  # noqa: E402
    STORED_VOCABULARY,
    VOCABULARY,
    random_model,
    write_checkpoint,
)
from training.measure import predictor  # noqa: E402
from training.models import lora  # noqa: E402


@pytest.mark.parametrize("bfloat16", [False, True])
def test_kept_keys_and_values_change_nothing(bfloat16: bool) -> None:
    model = predictor.ModulePredictor(random_model(seed=5), bfloat16)
    prefixes = torch.randint(VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(1))
    found = predictor.continued(model, prefixes, 12)
    assert len(found.unique()) > 3
    ids = torch.cat((prefixes, found), dim=1)
    logits = model.logits(ids[:, :-1])[:, -12:]
    best = logits.max(dim=-1).values
    own = logits.gather(2, found[:, :, None])[:, :, 0]
    # In bfloat16 sums differ in their last places with the shape, and so may near ties.
    assert (best - own).max() <= (0.05 * best.abs().max() if bfloat16 else 1e-4)


@pytest.mark.parametrize("experts", [False, True])
def test_folders_and_adapters_are_opened(tmp_path: Path, experts: bool) -> None:
    path = tmp_path / "model.safetensors"
    model = write_checkpoint(path, seed=3, experts=experts)
    config = model.moe_config if experts else model.config
    (tmp_path / "config.json").write_text(json.dumps(config.to_hugging_face()))
    ids = torch.randint(STORED_VOCABULARY, (2, 9))
    expected = model(ids)
    for place in (path, tmp_path):
        opened = predictor.open_predictor(place, bfloat16=False)
        assert torch.allclose(opened.logits(ids), expected, atol=1e-5)
    adapter = lora.LoraConfig(targets=("q_proj", "o_proj"))
    lora.add_lora(model, adapter)
    for module in model.modules():
        if isinstance(module, lora.LoraLinear):
            torch.nn.init.normal_(module.lora_B.weight)
    lora.save_adapter(tmp_path / "adapter", lora.lora_tensors(model), adapter, "base")
    folded = predictor.open_predictor(path, tmp_path / "adapter", bfloat16=False).logits(ids)
    # The folder's adapter was rounded to BF16.
    assert torch.allclose(folded, model(ids), atol=1e-2)
    assert not torch.allclose(folded, expected, atol=1e-2)


def test_other_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(ValueError, match="model_type 'llama'"):
        predictor.open_predictor(tmp_path)
