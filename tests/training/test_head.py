"""The head's run: what it learns from, and that the engine computes what it was trained as."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from headrace.models import load_model
from headrace.models.heads import load_eagle3
from headrace.ops import make_ops
from headrace.ops.kv import RaggedBatch
from headrace.weights.hugging_face.head_folder import open_head_folder
from headrace.weights.open import open_checkpoint

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="training needs PyTorch")

from safetensors.torch import save_file  # noqa: E402

from tests.training.toy_models import SHAPE, random_model  # noqa: E402
from training.data.packing import Sampler  # noqa: E402
from training.export import export, write_json  # noqa: E402
from training.head import HeadObjective, commonest, export_head  # noqa: E402
from training.loop import checkpoint  # noqa: E402
from training.models.config import read_note  # noqa: E402
from training.models.head_config import HeadConfig  # noqa: E402
from training.models.head_model import Head, features_of, moved  # noqa: E402

CONFIG = HeadConfig(
    feature_layers=(0, 1, 2), vocab_size=12, intermediate_size=24, num_attention_heads=2,
    num_key_value_heads=1,
)  # fmt: skip
TOKEN_IDS = list(range(3, 27, 2))


def head_of(base: object, seed: int = 4) -> Head:
    torch.manual_seed(seed)
    head = Head(CONFIG, base, TOKEN_IDS)  # type: ignore[arg-type]
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            parameter.mul_(8.0 if parameter.dim() == 2 else 1.0).add_(0.01 * ("norm" in name))
    return head


def test_later_depths_see_what_a_chain_of_the_head_sees() -> None:
    """Entry i at depth n is the last of a chain of n guesses behind the features of i - n."""
    base = random_model(1)
    head = head_of(base)
    ids = torch.randint(SHAPE.vocab_size, (1, 12), generator=torch.Generator().manual_seed(2))
    features, _ = features_of(base, ids, CONFIG.feature_layers)
    embedded = base.model.embed_tokens(ids[:, 1:])
    logits = head(embedded, features[:, :-1], 3)
    layer, model = head.model.layers[0], head.model
    for end in (4, 9):
        for depth in (1, 2):
            known = end - depth  # entries with features
            states = model.fc(features[:, : known + 1])
            chain = states
            for _ in range(depth):
                length = chain.shape[1]
                cos, sin = model.cos[:length], model.sin[:length]
                out = layer(embedded[:, :length], chain, cos, sin, [])
                chain = torch.cat((chain, out[:, -1:]), dim=1)
            length = chain.shape[1]
            last = layer(embedded[:, :length], chain, model.cos[:length], model.sin[:length], [])
            alone = head.lm_head(model.norm(last[:, -1]))
            torch.testing.assert_close(logits[depth][:, end], alone, atol=1e-4, rtol=1e-4)


def test_the_loss_is_against_the_base_where_it_says_a_token_that_is_known() -> None:
    base = random_model(1)
    objective = HeadObjective(head_of(base), base, TOKEN_IDS)
    ids = torch.randint(SHAPE.vocab_size, (2, 16), generator=torch.Generator().manual_seed(3))
    targets = torch.roll(ids, -1, 1)
    value = objective(ids, targets)
    value.backward()
    assert value > 0 and all(p.grad is not None for p in objective.head.parameters())
    assert all(p.grad is None for p in base.parameters())
    read_only = torch.full_like(targets, -100)
    assert objective(ids, read_only).item() == 0


def test_the_commonest_tokens_of_each_source_are_known() -> None:
    code = Sampler(torch.tensor([1] * 50 + [2] * 30 + [3] * 5, dtype=torch.int32), 0)
    turns = Sampler(torch.tensor([-1 - 7] * 20 + [2] * 10, dtype=torch.int32), 0)
    assert commonest({"code": code, "turns": turns}, 3) == [1, 2, 7]


def test_what_was_at_a_place_is_moved() -> None:
    x = torch.arange(6.0).view(1, 1, 6)
    assert moved(x, 2)[0, 0].tolist() == [0, 0, 0, 1, 2, 3]
    assert moved(x, 0) is x


def write_run(path: Path, head: Head) -> None:
    """The checkpoint of a run of `head`."""
    shape = {
        "head": {**asdict(CONFIG), "feature_layers": list(CONFIG.feature_layers)},
        "base": asdict(SHAPE), "token_ids": TOKEN_IDS,
    }  # fmt: skip
    checkpoint.save(path, head, [], checkpoint.Progress(), {}, shape)


def test_the_export_of_a_run_is_a_folder_that_says_how_it_was_made(tmp_path: Path) -> None:
    run, out = tmp_path / "head", tmp_path / "headrace-head"
    run.mkdir()
    write_run(run / "checkpoint.safetensors", head_of(random_model(1)))
    with pytest.raises(ValueError, match="is the run of a head: leave out --gguf"):
        export(run, tmp_path, out, tmp_path / "head.gguf", "headrace-head", "A head.")
    export(run, tmp_path, out, None, "headrace-head", "A head.")
    assert {path.name for path in out.iterdir()} == {"config.json", "model.safetensors"}
    assert read_note(out / "model.safetensors") == read_note(run / "checkpoint.safetensors")
    weights = open_head_folder(out).tensors
    assert {tensor.codec.name for tensor in weights.values()} == {"BF16"}


def test_the_engine_computes_what_was_trained(tmp_path: Path) -> None:
    base = random_model(1)
    head = head_of(base)
    run = tmp_path / "checkpoint.safetensors"
    write_run(run, head)
    size = export_head(run, tmp_path / "head", torch.float32)
    assert size == (tmp_path / "head" / "model.safetensors").stat().st_size
    folder = tmp_path / "base"
    folder.mkdir()
    write_json(folder / "config.json", SHAPE.to_hugging_face())
    save_file(dict(base.named_parameters()), folder / "model.safetensors")
    ops = make_ops("reference")
    target = load_model(open_checkpoint(folder), ops)
    served = load_eagle3(open_head_folder(tmp_path / "head"), target, ops)
    with torch.no_grad():
        ids = torch.randint(SHAPE.vocab_size, (1, 12), generator=torch.Generator().manual_seed(2))
        features, _ = features_of(base, ids, CONFIG.feature_layers)
        expected = head(base.model.embed_tokens(ids[:, 1:]), features[:, :-1], 1)[0][0].numpy()
    layout = served.cache_layout
    count = ids.shape[1] - 1
    batch = RaggedBatch(
        token_ids=ids[0, 1:].numpy().astype(np.int32),
        positions=np.arange(count, dtype=np.int32),
        query_start=np.array([0, count], np.int32),
        block_tables=layout.tables(np.array([[1]], np.int32)),
        logit_rows=np.arange(count, dtype=np.int32),
    )
    kv = ops.kv_cache(layout.spec(16, 2, "f32", "f32"))
    logits, _ = served.begin(batch, kv, features[0, :-1].numpy(), ())
    np.testing.assert_allclose(logits[:, TOKEN_IDS], expected, atol=1e-4, rtol=1e-4)
