"""Layers for further tokens against slow twins, and such as are not of the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headrace.errors import CheckpointError, ConfigError, UnsupportedModelError
from headrace.models import load_model, read_config
from headrace.models.config import of_layers
from headrace.models.families import FAMILIES
from headrace.models.families.step3p7 import StepDecoderConfig
from headrace.models.heads import load_mtp
from headrace.models.heads.mtp import mtp_checkpoint, mtp_config
from headrace.ops.interface import Ops
from headrace.ops.kv import RaggedBatch
from headrace.weights.checkpoint import Checkpoint
from tests.models.cases import prompt
from tests.models.heads import Floats, Values, cache, rms, whole
from tests.tiny import tiny_checkpoint, to_tensor
from tests.tiny_families.mimo_v2_flash import FULL, WINDOWED
from tests.tiny_heads import AROUND, Around
from tests.tiny_heads import mtp_checkpoint as tiny_mtp

ALONE: dict[str, dict[str, Any]] = {
    "mimo": {},
    "glm4_moe": {"first_k_dense_replace": 0},
    "deepseek_v3": {"first_k_dense_replace": 0},
    "deepseek_v32": {"first_k_dense_replace": 0, "mlp_layer_types": ["sparse"]},
    "glm_moe_dsa": {"first_k_dense_replace": 0, "mlp_layer_types": ["sparse"]},
    "mimo_v2_flash": {"layer_types": [WINDOWED], "mlp_layer_types": ["dense"]},
    "step3p7": {"layer_types": [FULL], "mlp_layer_types": ["dense"], "swiglu_limits": [0.0]},
    "ernie4_5_moe": {},
    "qwen3": {},
}
"""What a config says of a model with one layer like those for further tokens, and no other."""


class SlowMtp:
    """Layers for further tokens as models of one layer, whose token i is what was joined at i."""

    def __init__(self, family: str, checkpoint: Checkpoint, opened: Checkpoint, ops: Ops) -> None:
        self.target = load_model(checkpoint, ops)
        self.ops = ops
        self.checkpoint, self.opened = checkpoint, opened
        parts = self.target.draft_parts
        assert parts is not None
        self.parts = parts
        self.count = mtp_config(opened, self.target.config).num_layers
        stated = dict(checkpoint.config)
        limits = stated.get("swiglu_limits_shared")
        key = AROUND.get(family, Around()).key
        no_drafts = {} if key is None else {key: 0}
        self.configs = [
            stated | {"num_hidden_layers": 1} | no_drafts | ALONE[family]
            | ({} if limits is None else {"swiglu_limits_shared": limits[3 + index :][:1]})
            for index in range(self.count)
        ]  # fmt: skip

    def norm(self, x: Any, name: str | None, index: int) -> Floats:
        stored = self.checkpoint.tensors["model.norm.weight"]
        if name is not None:
            stored = self.opened.tensors[f"model.layers.{index}.{name}.weight"]
        weight = stored.to_f32() + self.checkpoint.conventions.norm_offset
        return rms(np.asarray(x, np.float64), weight, self.target.config.norm_eps)

    def layer(self, index: int, token_ids: list[int], read: Any) -> Floats:
        """What layer `index` gives of every token, of what it reads beside its embedding."""
        parts, at = self.parts, f"model.layers.{index}."
        embeddings = self.target.embed_tokens(np.array(token_ids, np.int32))
        both = (
            self.norm(embeddings, parts.token_norm, index),
            self.norm(read, parts.feature_norm, index),
        )
        joined = np.concatenate(both if parts.token_first else both[::-1], -1)
        joined = joined @ self.opened.tensors[f"{at}{parts.join}.weight"].to_f32().T
        table = np.zeros((self.target.vocab_size, joined.shape[1]), np.float32)
        table[: len(joined)] = joined
        name = "model.embed_tokens.weight"
        around = (parts.join, parts.token_norm, parts.feature_norm, parts.final_norm, parts.head)
        own = {
            f"model.layers.0.{key.removeprefix(at)}": tensor
            for key, tensor in self.opened.tensors.items()
            if key.startswith(at)
            and not any(part and key.startswith(f"{at}{part}.") for part in around)
        }
        tensors = {
            **own,
            **{key: self.checkpoint.tensors[key] for key in self.checkpoint.tensors
               if key in ("model.norm.weight", "lm_head.weight")},
            name: to_tensor(name, table, "F32"),
        }  # fmt: skip
        named = {key: tensor.renamed(key) for key, tensor in tensors.items()}
        one = load_model(
            replace(self.checkpoint, config=self.configs[index], tensors=named), self.ops
        )
        batch = whole(one, list(range(len(token_ids))))
        features = one.forward_with_features(batch, cache(one, self.ops), (1,))[1]
        assert features is not None
        return features.astype(np.float64)

    def given(self, index: int, y: Floats) -> Floats:
        return self.norm(y, self.parts.final_norm, index) if self.parts.carries_normed else y

    def logits(self, index: int, y: Floats) -> Floats:
        tensors = self.checkpoint.tensors
        head = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
        if self.parts.head is not None:
            head = self.opened.tensors[f"model.layers.{index}.{self.parts.head}.weight"]
        return self.norm(y, self.parts.final_norm, index) @ head.to_f32().T

    def places(self, token_ids: list[int], features: Values, drafts: list[int]) -> list[Floats]:
        """Logits at each place: of all tokens at the first one, then behind each draft."""
        reads = [np.asarray(features, np.float64)]
        last, found = self.count - 1, list[Floats]()
        passed: dict[int, Floats] = {}
        given: dict[int, Floats] = {}
        for place in range(len(drafts) + 1):
            tokens, first = token_ids + drafts[:place], min(place, last)
            before, own = dict(passed), dict(given)
            for index in range(first, self.count):
                if place:
                    came = own[last] if place > last else before[index - 1]
                    reads[index] = np.concatenate([reads[index], came[-1:]])
                elif index:
                    reads.append(np.concatenate([features[:1], passed[index - 1][:-1]]))
                y = self.layer(index, tokens, reads[index])
                given[index] = self.given(index, y)
                passed[index] = given[index] if self.parts.chained else reads[index]
                if index == first:
                    found.append(self.logits(index, y))
        return found


@pytest.mark.parametrize(
    ("family", "count"),
    [
        ("mimo", 1), ("glm4_moe", 1), ("deepseek_v3", 1), ("ernie4_5_moe", 1), ("mimo", 2),
        ("mimo_v2_flash", 1), ("mimo_v2_flash", 3), ("step3p7", 1), ("step3p7", 3),
        ("glm_moe_dsa", 1), ("deepseek_v32", 1), ("qwen3", 1), ("qwen3", 2),
    ],
)  # fmt: skip
def test_layers_for_further_tokens_are_models_of_one_layer_over_what_is_joined(
    family: str, count: int, reference: Ops
) -> None:
    checkpoint = tiny_mtp(family, count=count)
    opened = mtp_checkpoint(checkpoint, read_config(checkpoint))
    slow = SlowMtp(family, checkpoint, opened, reference)
    target = slow.target
    head = load_mtp(opened, target, reference)
    assert head.num_kept + 1 == slow.count == count
    ids, drafts = prompt(5)[:28], [7, 200, 31, 99]
    features = target.forward_with_features(
        whole(target, ids), cache(target, reference), head.feature_layers
    )[1]
    assert features is not None
    features = features[:-1]
    expected = slow.places(ids[1:], features, drafts)
    kv, before = cache(head, reference), [features[:1]] * head.num_kept
    batch = whole(head, ids[1:])
    logits, carried = head.begin(batch, kv, features, before)
    np.testing.assert_allclose(logits, expected[0], atol=5e-4)
    for place, draft in enumerate(drafts, 1):
        next_one = replace(
            batch, token_ids=np.array([draft], np.int32),
            positions=np.array([len(ids) - 2 + place], np.int32),
            query_start=np.array([0, 1], np.int32), logit_rows=np.array([0], np.int32),
        )  # fmt: skip
        logits, carried = head.go_on(next_one, kv, carried, place)
        np.testing.assert_allclose(logits, expected[place][-1:], atol=5e-4)


def test_layers_go_on_from_what_was_kept(reference: Ops) -> None:
    """A text that is read in two parts and beside another one is the same text."""
    checkpoint = tiny_mtp("step3p7", count=3)
    target = load_model(checkpoint, reference)
    opened = mtp_checkpoint(checkpoint, read_config(checkpoint))
    head = load_mtp(opened, target, reference)
    ids = prompt(2)[:12]
    features = np.random.default_rng(1).standard_normal((24, 64)).astype(np.float32)
    tables = head.cache_layout.tables(np.array([[1], [2]], np.int32))

    def part(tables: Any, *spans: tuple[int, int]) -> RaggedBatch:
        counts = [stop - start for start, stop in spans]
        ends = np.cumsum(counts).astype(np.int32)
        return RaggedBatch(
            token_ids=np.array([each for span in spans for each in ids[slice(*span)]], np.int32),
            positions=np.concatenate([np.arange(*span) for span in spans]).astype(np.int32),
            query_start=np.concatenate([[0], ends]).astype(np.int32),
            block_tables=tables,
            logit_rows=ends - np.int32(1),
        )

    kv = cache(head, reference)
    alone, both = part(tuple(table[:1] for table in tables), (0, 12)), part(tables, (0, 5), (3, 9))
    whole_one, carried = head.begin(alone, kv, features[:12], [features[:1]] * 2)
    kv = cache(head, reference)
    stood_in = [features[[0, 15]]] * 2
    _, kept = head.begin(both, kv, features[[*range(5), *range(15, 21)]], stood_in)
    rest = part(tuple(table[:1] for table in tables), (5, 12))
    logits, again = head.begin(rest, kv, features[5:12], [each[:1] for each in kept[:2]])
    np.testing.assert_allclose(logits, whole_one, atol=1e-4)
    for each, other in zip(carried, again, strict=True):
        np.testing.assert_allclose(each, other, atol=1e-4)


def test_only_so_many_layers_are_read_as_there_may_be_drafts() -> None:
    checkpoint = tiny_mtp("mimo_v2_flash", count=3)
    config = read_config(checkpoint)
    opened = mtp_checkpoint(checkpoint, config, most=2)
    assert mtp_config(opened, config).num_layers == 2
    assert 0 < opened.nbytes < mtp_checkpoint(checkpoint, config).nbytes


def test_layers_of_step_have_the_kinds_and_limits_that_its_config_says() -> None:
    stated = {
        "num_nextn_predict_layers": 3, "mtp_layer_types": [WINDOWED, FULL, WINDOWED],
        "swiglu_limits_shared": [1.0, 0.0, 1.5, 0.5, 0.0, 2.0],
    }  # fmt: skip
    config = read_config(tiny_checkpoint("step3p7", **stated))
    drafts = FAMILIES["step3p7"].draft_config(config, 3)
    assert isinstance(drafts, StepDecoderConfig)
    assert drafts.windows == (24, 0, 24) and drafts.shared_limits == (0.5, 0.0, 2.0)
    assert [drafts.attention_of(layer).num_heads for layer in range(3)] == [8, 4, 8]
    assert drafts.experts is not None and not any(drafts.experts.layers)


@pytest.mark.parametrize(
    ("family", "name", "values", "words"),
    [
        ("step3p7", "model.layers.4.transformer.shared_head.output.weight", (9, 64), "has shape"),
        ("mimo_v2_flash", "model.mtp.layers.1.eh_proj.weight", (64, 64), "has shape"),
        ("mimo_v2_flash", "model.mtp.layers.2.self_attn.v_proj.weight", None, "v_proj"),
        ("ernie4_5_moe", "model.mtp_hidden_norm.0.weight", None, "mtp_hidden_norm.weight is miss"),
        ("ernie4_5_moe", "model.mtp_linear_proj.0.weight", (64, 96), "has shape"),
        ("mimo_v2_flash", "model.mtp.layers.0.mystery.weight", (4, 4), "mystery"),
    ],
)
def test_layers_that_are_not_of_the_model_are_refused_by_name(
    family: str, name: str, values: tuple[int, int] | None, words: str, reference: Ops
) -> None:
    whole_one = tiny_mtp(family, count=1 if family == "ernie4_5_moe" else 3)
    target = load_model(whole_one, reference)
    tensors = dict(whole_one.tensors)
    tensors.pop(name, None)
    if values is not None:
        tensors[name] = to_tensor(name, np.ones(values, np.float32), "F32")
    opened = mtp_checkpoint(replace(whole_one, tensors=tensors), read_config(whole_one))
    with pytest.raises((CheckpointError, UnsupportedModelError), match=words):
        load_mtp(opened, target, reference)


def test_a_layer_of_many_has_the_kind_of_the_last() -> None:
    config = read_config(tiny_checkpoint("gemma2", num_hidden_layers=4, sliding_window=24))
    alone = of_layers(config, [3])
    assert alone.num_layers == 1 and alone.windows == config.windows[-1:]
    assert len(alone.layer_caches) == 1


@pytest.mark.parametrize(
    ("family", "words"),
    [("llama", "of llama for further tokens are not run"), ("mimo", "has no tensors of")],
)
def test_a_model_without_such_a_layer_is_refused(family: str, words: str) -> None:
    checkpoint = tiny_checkpoint(family)
    with pytest.raises(ConfigError, match=words):
        mtp_checkpoint(checkpoint, read_config(checkpoint))


def test_a_tensor_that_no_such_layer_has_stops_the_load(reference: Ops) -> None:
    checkpoint = tiny_mtp("mimo")
    target = load_model(checkpoint, reference)
    opened = mtp_checkpoint(checkpoint, read_config(checkpoint))
    strange = to_tensor("model.layers.0.self_attn.q_norm.weight", np.ones(16, np.float32), "F32")
    other = replace(opened, tensors={**opened.tensors, strange.name: strange})
    with pytest.raises(UnsupportedModelError, match="q_norm"):
        load_mtp(other, target, reference)
