"""Draft heads against slow twins, and folders that are not of the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from headrace.errors import CheckpointError, ConfigError, UnsupportedModelError
from headrace.models import Model, load_model, read_config
from headrace.models.config import of_layers
from headrace.models.families import FAMILIES
from headrace.models.families.step3p7 import StepDecoderConfig
from headrace.models.heads import DraftHead, load_eagle3, load_mtp
from headrace.models.heads.mtp import mtp_checkpoint, mtp_config
from headrace.models.model import NORMED
from headrace.ops.interface import Ops
from headrace.ops.kv import RaggedBatch
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.hugging_face.head_folder import head_kind, open_head_folder
from tests.models.cases import prompt
from tests.tiny import tiny_checkpoint, tiny_config, to_tensor
from tests.tiny_families.mimo_v2_flash import FULL, WINDOWED
from tests.tiny_heads import eagle3_config, eagle3_weights, write_eagle3
from tests.tiny_heads import mtp_checkpoint as tiny_mtp

Floats = npt.NDArray[np.float64]
Values = npt.NDArray[np.float32]
TARGET = tiny_config("llama")


def whole(model: Model | DraftHead, token_ids: list[int]) -> RaggedBatch:
    """All tokens of one request, with logits of each."""
    count = len(token_ids)
    tables = model.cache_layout.tables(np.arange(4, 0, -1, dtype=np.int32)[None])
    return RaggedBatch(
        token_ids=np.array(token_ids, np.int32),
        positions=np.arange(count, dtype=np.int32),
        query_start=np.array([0, count], np.int32),
        block_tables=tables,
        logit_rows=np.arange(count, dtype=np.int32),
    )


def cache(model: Model | DraftHead, ops: Ops) -> Any:
    layout = model.cache_layout
    return ops.kv_cache(layout.spec(16, 5 * layout.num_tables, "f32", "f32"))


def run(head: DraftHead, ops: Ops, token_ids: list[int], features: Values) -> tuple[Any, Any]:
    return head.begin(whole(head, token_ids), cache(head, ops), features, ())


def rms(x: Floats, weight: Values, eps: float = 1e-5) -> Floats:
    return x * weight / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def rotated(x: Floats, theta: float = 10000.0) -> Floats:
    """Heads f64[N, heads, dim] turned by their positions."""
    half = x.shape[-1] // 2
    angles = np.arange(len(x))[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def slow_eagle3(
    config: dict[str, Any], weights: dict[str, Values], tokens: Floats, features: Floats
) -> tuple[Floats, Floats]:
    """Logits of the head's own vocabulary and the states behind, of embeddings f64[N, hidden]."""

    def matrix(name: str) -> Values:
        return weights[f"{name}.weight"]

    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    states = features @ matrix("fc").T
    normed = rms(states, matrix("midlayer.hidden_norm"))
    joined = np.concatenate([rms(tokens, matrix("midlayer.input_layernorm")), normed], -1)
    q, k, v = (
        (joined @ matrix(f"midlayer.self_attn.{letter}_proj").T).reshape(len(tokens), count, -1)
        for letter, count in zip("qkv", (heads, kv_heads, kv_heads), strict=True)
    )
    q, k = rotated(q), np.repeat(rotated(k), heads // kv_heads, 1)
    v = np.repeat(v, heads // kv_heads, 1)
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1])
    scores += np.triu(np.full(scores.shape[1:], -np.inf), 1)
    chances = np.exp(scores - scores.max(-1, keepdims=True))
    chances /= chances.sum(-1, keepdims=True)
    attended = np.einsum("hij,jhd->ihd", chances, v).reshape(len(tokens), -1)
    kept = normed if config.get("norm_before_residual") else states
    x = kept + attended @ matrix("midlayer.self_attn.o_proj").T
    inner = rms(x, matrix("midlayer.post_attention_layernorm"))
    gate = inner @ matrix("midlayer.mlp.gate_proj").T
    up = inner @ matrix("midlayer.mlp.up_proj").T
    y = x + (gate / (1 + np.exp(-gate)) * up) @ matrix("midlayer.mlp.down_proj").T
    return rms(y, matrix("norm")) @ matrix("lm_head").T, y


@pytest.mark.parametrize("change", [{}, {"norm_before_residual": True}, {"head_dim": 32}])
def test_an_eagle3_head_is_what_its_slow_twin_says(
    change: dict[str, Any], reference: Ops, tmp_path: Path
) -> None:
    target = load_model(tiny_checkpoint("llama"), reference)
    config = eagle3_config(TARGET, **change)
    head = load_eagle3(open_head_folder(write_eagle3(tmp_path, config)), target, reference)
    ids = prompt(3)[:20]
    features = target.forward_with_features(
        whole(target, ids), cache(target, reference), head.feature_layers
    )[1]
    assert features is not None and head.feature_width == features.shape[1] == 3 * 64
    logits, states = run(head, reference, ids[1:], features[:-1])
    tokens = target.embed_tokens(np.array(ids[1:], np.int32)).astype(np.float64)
    weights = eagle3_weights(config, TARGET["vocab_size"])
    expected, following = slow_eagle3(config, weights, tokens, features[:-1].astype(np.float64))
    assert logits.shape == (19, TARGET["vocab_size"])
    np.testing.assert_allclose(logits[:, ::2], expected, atol=2e-5)
    np.testing.assert_allclose(*states, following[-1:], atol=2e-5)
    assert (logits[:, 1::2] == -np.inf).all()


def test_features_are_those_of_each_layer(reference: Ops) -> None:
    target = load_model(tiny_checkpoint("llama"), reference)
    ids = prompt(1)[:9]
    batch, kv = whole(target, ids), cache(target, reference)
    logits, features = target.forward_with_features(batch, kv, (0, 1, 2, NORMED))
    assert features is not None
    first, one, two, normed = np.split(features, 4, axis=1)
    assert np.array_equal(first, target.embed_tokens(batch.token_ids))
    assert not np.array_equal(one, two)
    np.testing.assert_allclose(normed @ head_of(TARGET).T, logits, atol=1e-4)
    assert np.array_equal(logits, target.forward(batch, cache(target, reference)))


def head_of(config: dict[str, Any]) -> Values:
    checkpoint = tiny_checkpoint("llama")
    name = (
        "lm_head.weight" if "lm_head.weight" in checkpoint.tensors else "model.embed_tokens.weight"
    )
    assert config == checkpoint.config
    return checkpoint.tensors[name].to_f32()


ALONE: dict[str, dict[str, Any]] = {
    "mimo": {},
    "glm4_moe": {"first_k_dense_replace": 0},
    "deepseek_v3": {"first_k_dense_replace": 0},
    "deepseek_v32": {"first_k_dense_replace": 0, "mlp_layer_types": ["sparse"]},
    "glm_moe_dsa": {"first_k_dense_replace": 0, "mlp_layer_types": ["sparse"]},
    "mimo_v2_flash": {"layer_types": [WINDOWED], "mlp_layer_types": ["dense"]},
    "step3p7": {"layer_types": [FULL], "mlp_layer_types": ["dense"], "swiglu_limits": [0.0]},
    "ernie4_5_moe": {},
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
        self.configs = [
            stated | {"num_hidden_layers": 1, "num_nextn_predict_layers": 0} | ALONE[family]
            | ({} if limits is None else {"swiglu_limits_shared": limits[3 + index :][:1]})
            for index in range(self.count)
        ]  # fmt: skip
        if family == "mimo_v2_flash":
            for config in self.configs:
                del config["num_nextn_predict_layers"]

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
            if key.startswith(at) and not any(part and part in key for part in around)
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
        ("glm_moe_dsa", 1), ("deepseek_v32", 1),
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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target_hidden_size": 96}, "features of 96 values, and the model's have 64"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 9]}, "what the first 9 layers give"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2]}, "3 numbers of layers"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state: true"),
        ({"num_hidden_layers": 2}, "num_hidden_layers = 2"),
        ({"hidden_size": 96}, "embed_tokens.weight is missing"),
        ({"mystery": 3}, "mystery = 3"),
        ({"use_sliding_window": True, "sliding_window": 8}, "sliding_window = 8"),
        ({"draft_vocab_size": 100}, "d2t has shape|lm_head"),
        ({"head_dim": 2**40}, "head_dim"),
        ({"head_dim": 2**27}, "head_dim = 134217728"),
    ],
)
def test_a_head_of_another_model_is_refused_by_name(
    change: dict[str, Any], words: str, reference: Ops, tmp_path: Path
) -> None:
    target = load_model(tiny_checkpoint("llama"), reference)
    written = eagle3_config(TARGET)
    folder = write_eagle3(tmp_path, written)
    opened = replace(open_head_folder(folder), config={**written, **change})
    with pytest.raises((CheckpointError, UnsupportedModelError), match=words):
        load_eagle3(opened, target, reference)


@pytest.mark.parametrize(
    ("offset", "words"), [(1 << 40, "names token"), (-5, "names token -5"), (2, "twice")]
)
def test_ids_that_the_target_does_not_have_are_refused(
    offset: int, words: str, reference: Ops, tmp_path: Path
) -> None:
    target = load_model(tiny_checkpoint("llama"), reference)
    config = eagle3_config(TARGET)
    offsets = np.arange(config["draft_vocab_size"])
    offsets[0] = offset
    folder = write_eagle3(tmp_path, config, offsets=offsets)
    with pytest.raises(CheckpointError, match=words):
        load_eagle3(open_head_folder(folder), target, reference)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("fc.weight", np.zeros((64, 192), np.int64), r"model.fc.weight' is I64"),
        ("norm.weight", np.zeros(64, np.int64), r"model.norm.weight' is I64"),
        ("embed_tokens.weight", np.zeros((10, 64), np.float32), r"embed_tokens.weight has shape"),
    ],
)
def test_weights_that_cannot_be_are_refused_by_name(
    name: str, values: Any, words: str, reference: Ops, tmp_path: Path
) -> None:
    target = load_model(tiny_checkpoint("llama"), reference)
    folder = write_eagle3(tmp_path, eagle3_config(TARGET), **{name: values})
    with pytest.raises(CheckpointError, match=words):
        load_eagle3(open_head_folder(folder), target, reference)


def test_a_tensor_that_no_such_layer_has_stops_the_load(reference: Ops) -> None:
    checkpoint = tiny_mtp("mimo")
    target = load_model(checkpoint, reference)
    opened = mtp_checkpoint(checkpoint, read_config(checkpoint))
    strange = to_tensor("model.layers.0.self_attn.q_norm.weight", np.ones(16, np.float32), "F32")
    other = replace(opened, tensors={**opened.tensors, strange.name: strange})
    with pytest.raises(UnsupportedModelError, match="q_norm"):
        load_mtp(other, target, reference)


def test_folders_of_speculators_are_read_alike(reference: Ops, tmp_path: Path) -> None:
    target = load_model(tiny_checkpoint("llama"), reference)
    config = eagle3_config(TARGET)
    eagle = open_head_folder(write_eagle3(tmp_path, config))
    own = {"draft_vocab_size", "architectures", "model_type"}
    layer = {key: value for key, value in config.items() if key not in own}
    stated = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.1.0",
        "speculators_config": {"algorithm": "eagle3"},
        "draft_vocab_size": config["draft_vocab_size"],
        "transformer_layer_config": {**layer, "model_type": "llama"},
    }
    other = replace(eagle, config=stated)
    ids, features = prompt(2)[:8], np.random.default_rng(0).standard_normal((8, 192))
    logits = [
        run(load_eagle3(each, target, reference), reference, ids, features.astype(np.float32))[0]
        for each in (eagle, other)
    ]
    assert np.array_equal(*logits)
    assert head_kind(tmp_path) == "eagle3"


def test_a_pickle_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    assert head_kind(tmp_path) is None
    with pytest.raises(CheckpointError, match="is a pickle and is not read; convert it"):
        open_head_folder(tmp_path)
