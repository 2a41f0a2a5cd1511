"""The heads' runs: what they learn from, and that the engine computes what they were trained as."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.models import load_model
from headrace.models.heads import DraftHead, load_eagle3, load_mtp, open_mtp_folder
from headrace.ops import make_ops
from headrace.ops.interface import Ops
from headrace.ops.kv import KVCacheArrays, RaggedBatch
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
from training.models.head_config import NORMED, HeadConfig  # noqa: E402
from training.models.head_model import Head, features_of, moved  # noqa: E402
from training.models.heads import make_head, read_head  # noqa: E402

TOKEN_IDS = list(range(3, 27, 2))
CONFIGS = {
    kind: HeadConfig(
        kind=kind, feature_layers=layers, vocab_size=12, intermediate_size=32,
        num_attention_heads=2, num_key_value_heads=1,
    )
    for kind, layers in (("eagle3", (0, 1, 2)), ("mtp", (NORMED,)))
}  # fmt: skip
EVERY = pytest.mark.parametrize("kind", CONFIGS)


def head_of(kind: str, base: object, seed: int = 4) -> Head:
    torch.manual_seed(seed)
    head = make_head(CONFIGS[kind], base, TOKEN_IDS)  # type: ignore[arg-type]
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            parameter.mul_(8.0 if parameter.dim() == 2 else 1.0).add_(0.01 * ("norm" in name))
    return head


@EVERY
def test_later_depths_see_what_a_chain_of_the_head_sees(kind: str) -> None:
    """Entry i at depth n is the last of a chain of n guesses behind the features of i - n."""
    base = random_model(1)
    head = head_of(kind, base)
    ids = torch.randint(SHAPE.vocab_size, (1, 12), generator=torch.Generator().manual_seed(2))
    features, _ = features_of(base, ids, head.config.feature_layers)
    embedded = base.model.embed_tokens(ids[:, 1:])
    logits = head(embedded, features[:, :-1], 3)
    for end in (4, 9):
        for depth in (1, 2):
            known = end - depth  # entries with features
            chain = head.begin(features[:, : known + 1])
            for _ in range(depth + 1):
                length = chain.shape[1]
                cos, sin = head.cos[:length], head.sin[:length]
                alone, out = head.guess(embedded[:, :length], chain, cos, sin, [])
                chain = torch.cat((chain, out[:, -1:]), dim=1)
            torch.testing.assert_close(logits[depth][:, end], alone[:, -1], atol=1e-4, rtol=1e-4)


@EVERY
def test_the_loss_is_against_the_base_where_it_says_a_token_that_is_known(kind: str) -> None:
    base = random_model(1)
    objective = HeadObjective(head_of(kind, base), base, TOKEN_IDS)
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
        "head": {**asdict(head.config), "feature_layers": list(head.config.feature_layers)},
        "base": asdict(SHAPE), "token_ids": TOKEN_IDS,
    }  # fmt: skip
    checkpoint.save(path, head, [], checkpoint.Progress(), {}, shape)


@EVERY
def test_the_export_of_a_run_is_a_folder_that_says_how_it_was_made(
    kind: str, tmp_path: Path
) -> None:
    run, out = tmp_path / "head", tmp_path / "headrace-head"
    run.mkdir()
    head = head_of(kind, random_model(1))
    write_run(run / "checkpoint.safetensors", head)
    with pytest.raises(ValueError, match="is the run of a head: leave out --gguf"):
        export(run, tmp_path, out, tmp_path / "head.gguf", "headrace-head", "A head.")
    export(run, tmp_path, out, None, "headrace-head", "A head.")
    assert {path.name for path in out.iterdir()} == {"config.json", "model.safetensors"}
    assert read_note(out / "model.safetensors") == read_note(run / "checkpoint.safetensors")
    weights = open_head_folder(out).tensors
    assert {tensor.codec.name for tensor in weights.values()} == {"BF16", "I8_32"}
    for name, stored in read_head(out / "model.safetensors").items():
        weight = head.state_dict()[name]
        step = weight.abs().amax(dim=-1, keepdim=True) / 127  # and of bfloat16 as many
        assert ((stored - weight).abs() <= 0.51 * step).all(), name
        served = weights[name if name.startswith(("model.", "lm_head.")) else f"model.{name}"]
        np.testing.assert_allclose(served.to_f32(), stored.float().numpy(), rtol=1e-6)


@EVERY
def test_the_engine_computes_what_was_trained(kind: str, tmp_path: Path) -> None:
    base = random_model(1)
    head = head_of(kind, base)
    run = tmp_path / "checkpoint.safetensors"
    write_run(run, head)
    size = export_head(run, tmp_path / "head", eight_bits=False)
    assert size == (tmp_path / "head" / "model.safetensors").stat().st_size
    folder = tmp_path / "base"
    folder.mkdir()
    write_json(folder / "config.json", SHAPE.to_hugging_face())
    save_file(dict(base.named_parameters()), folder / "model.safetensors")
    ops = make_ops("reference")
    checkpoint = open_checkpoint(folder)
    target = load_model(checkpoint, ops)
    served: DraftHead
    if kind == "mtp":
        opened = open_mtp_folder(tmp_path / "head", checkpoint, target.config)
        served = load_mtp(opened.folder.checkpoint, target, ops, opened.config, opened.ids)
    else:
        served = load_eagle3(open_head_folder(tmp_path / "head"), target, ops)
    assert served.feature_layers == head.config.feature_layers
    with torch.no_grad():
        ids = torch.randint(SHAPE.vocab_size, (1, 12), generator=torch.Generator().manual_seed(2))
        features, _ = features_of(base, ids, head.config.feature_layers)
        embedded = base.model.embed_tokens(ids[:, 1:])
        expected, further = (found[0].numpy() for found in head(embedded, features[:, :-1], 2))
    read, count = features[0, :-1].numpy(), ids.shape[1] - 1
    logits, _ = served.begin(batch_of(served, ids, 0, count), kv_of(served, ops), read, ())
    np.testing.assert_allclose(logits[:, TOKEN_IDS], expected, atol=1e-4, rtol=1e-4)
    # The last token is now a draft, and the base has not been at the one before it.
    kv = kv_of(served, ops)
    _, carried = served.begin(batch_of(served, ids, 0, count - 1), kv, read[:-1], ())
    logits, _ = served.go_on(batch_of(served, ids, count - 1, count), kv, carried, 1)
    np.testing.assert_allclose(logits[0, TOKEN_IDS], further[-1], atol=1e-4, rtol=1e-4)


def batch_of(served: DraftHead, ids: Any, first: int, last: int) -> RaggedBatch:
    """Entries of the tokens behind places [first, last) of a text int64[1, T]."""
    count = last - first
    return RaggedBatch(
        token_ids=ids[0, first + 1 : last + 1].numpy().astype(np.int32),
        positions=np.arange(first, last, dtype=np.int32),
        query_start=np.array([0, count], np.int32),
        block_tables=served.cache_layout.tables(np.array([[1]], np.int32)),
        logit_rows=np.arange(count, dtype=np.int32),
    )


def kv_of(served: DraftHead, ops: Ops) -> KVCacheArrays:
    return ops.kv_cache(served.cache_layout.spec(16, 2, "f32", "f32"))
