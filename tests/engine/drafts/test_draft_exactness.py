"""On real arithmetic: drafts of a model or a head change no bit of what a request gets alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.drafts.heads.head_drafts import HeadDrafts
from headrace.engine.memory.kv_memory import plan_kv_cache
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.models import load_model, read_config
from headrace.models.heads import load_mtp
from headrace.models.heads.mtp import mtp_checkpoint
from tests.engine.mock import drain, real_ops
from tests.engine.model_with_head import check_head
from tests.engine.streams import GROUPS, TINY, cases, check_streams
from tests.tiny import NUM_TOKENS, tiny_checkpoint, to_tensor
from tests.tiny_heads import mtp_checkpoint as tiny_mtp

BOTH = (False, True)
"""Ways to have streams together: with room for all, and short of blocks."""

DRAFTED = [
    ("qwen3", "Q8_0", "auto"), ("llama", "F32", "int8"), ("llama", "BF16", "q4_0"),
    ("qwen3", "Q4_K", "auto"), ("gemma2", "Q8_0", "auto"), ("gpt_oss", "BF16", "auto"),
    ("deepseek_v3", "Q8_0", "auto"), ("llama4_text", "F32", "q8_0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "codec", "kv"),
    [DRAFTED[0], *(pytest.param(*case, marks=pytest.mark.load) for case in DRAFTED[1:])],
)
def test_a_model_is_always_right_as_its_own_draft(family: str, codec: str, kv: str) -> None:
    """What it draws from its own K and V, in other passes and at other times, are the same bits."""
    ops = real_ops("cpu")
    shape: dict[str, int] = (GROUPS | TINY).get(family, {})
    if codec == "Q4_K":
        shape |= {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 8}
    model = load_model(tiny_checkpoint(family, codec, logit_scale=2.0, **shape), ops)  # type: ignore[arg-type]
    count = 12 if (family, codec, kv) == DRAFTED[0] else 32
    check_streams(model, ops, cases(count), {"kv_cache_dtype": kv}, model, short=BOTH)


@pytest.mark.load
@pytest.mark.parametrize(
    ("family", "of_draft", "codec", "seed"),
    [
        ("qwen3", "qwen3", "Q4_0", 0),
        ("llama", "gemma2", "BF16", 1),
        ("gemma2", "llama", "F32", 2),
        ("qwen3", "gpt_oss", "BF16", 3),
    ],
)
def test_a_draft_of_other_weights_and_layers_changes_no_bit(
    family: str, of_draft: str, codec: str, seed: int
) -> None:
    ops = real_ops("cpu")
    shapes: list[dict[str, int]] = [(GROUPS | TINY).get(name, {}) for name in (family, of_draft)]
    model = load_model(tiny_checkpoint(family, "Q8_0", logit_scale=2.0, **shapes[0]), ops)  # type: ignore[arg-type]
    other = tiny_checkpoint(of_draft, codec, seed, logit_scale=2.0, **shapes[1])  # type: ignore[arg-type]
    draft = load_model(other, ops)
    check_streams(model, ops, cases(32), {}, draft, short=BOTH)


def test_a_head_that_computes_what_the_model_does_is_right() -> None:
    """A model whose layers add nothing, so that the last token alone says what follows, and a layer
    for further tokens that takes the token alone: through features, places and blocks."""
    ops = real_ops("cpu")
    checkpoint = tiny_mtp("mimo", "F32", logit_scale=2.0)
    tensors = dict(checkpoint.tensors)
    hidden = checkpoint.config["hidden_size"]

    def put(name: str, values: npt.NDArray[np.float32]) -> None:
        tensors[name] = to_tensor(name, values, "F32")

    for name, tensor in checkpoint.tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            put(name, np.zeros(tensor.shape, np.float32))
    at = "model.mtp_layers.0"
    put(f"{at}.token_layernorm.weight", np.ones(hidden, np.float32))
    put(f"{at}.final_layernorm.weight", tensors["model.norm.weight"].to_f32())
    eye, nothing = np.eye(hidden, dtype=np.float32), np.zeros((hidden, hidden), np.float32)
    put(f"{at}.input_proj.weight", np.concatenate([nothing, eye], 1))
    checkpoint = replace(checkpoint, tensors=tensors)
    model = load_model(checkpoint, ops)
    head = load_mtp(mtp_checkpoint(checkpoint, read_config(checkpoint)), model, ops)
    config = EngineConfig(num_gpu_blocks_override=64, max_model_len=512)
    plan = plan_kv_cache(model, config)
    answers = []
    for speculation in ("none", '{"method": "mtp", "adaptive": false}', '{"method": "mtp"}'):
        drafts = HeadDrafts(head, ops, plan_kv_cache(head, config), num_tokens=NUM_TOKENS)
        core = EngineCore(
            model, ops, msgspec.structs.replace(config, speculative_config=speculation),
            num_tokens=NUM_TOKENS, plan=plan, draft=None if speculation == "none" else drafts,
        )  # fmt: skip
        for index, temperature in enumerate((0.0, 0.7, 1.0)):
            params = SamplingParams(temperature=temperature, seed=index, max_tokens=60, logprobs=1)
            core.submit(Submit(f"r{index}", list(range(index, 40)), params))
        got = drain(core)
        answers.append({name: (each.token_ids, each.logprobs) for name, each in got.items()})
        if "false" in speculation:
            stats = core.stats()
            assert stats.spec_accepted_tokens > 0.95 * stats.spec_draft_tokens > 50
    assert answers[0] == answers[1] == answers[2]


HEADS = [
    ("mimo", "Q8_0", "auto"), ("glm4_moe", "F32", "int8"), ("deepseek_v3", "BF16", "auto"),
    ("step3p7", "BF16", "int8"), ("ernie4_5_moe", "Q8_0", "auto"),
    ("dflash-window", "BF16", "q4_0"), ("eagle3", "F32", "q8_0"),
]  # fmt: skip
"""Those that `test_switching` does not have in every kind of weights, and one that it has."""


@pytest.mark.parametrize(
    ("family", "codec", "kv"),
    [HEADS[0], *(pytest.param(*case, marks=pytest.mark.load) for case in HEADS[1:])],
)
def test_a_head_changes_no_bit(family: str, codec: str, kv: str, tmp_path: Path) -> None:
    is_first = (family, codec, kv) == HEADS[0]
    count, short = (6, (False,)) if is_first else (64, BOTH)
    check_head("cpu", family, codec, kv, tmp_path, cases(count), short=short)
