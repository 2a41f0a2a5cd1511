"""The engine on the torch backend, on a processor: streams together are what each alone is, and
greedy tokens are those of the kernels.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace import LLM, SamplingParams
from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.load import load_engine
from headrace.engine.memory.device_memory import step_bytes
from headrace.engine.memory.kv_memory import REST_BYTES
from headrace.engine.memory.report import memory_report
from headrace.errors import ConfigError
from headrace.models import load_model, read_config
from headrace.ops.device import DeviceMemory
from headrace.ops.placement import with_experts
from headrace.weights.open import open_checkpoint
from tests.engine.mock import drain, real_ops, submit
from tests.engine.model_with_head import check_head
from tests.engine.streams import (
    GROUPS,
    KINDS,
    TINY,
    Case,
    Kinds,
    cases,
    check_streams,
    check_together_is_what_alone_is,
)
from tests.engine.test_planned_ahead import answers, check_same, mixed
from tests.models.shipped_moe import GREEDY, SHIPPED, greedy_of_headrace, write_f32
from tests.tiny import EOS, NUM_TOKENS, tiny_checkpoint, write_tiny_gguf

pytest.importorskip("torch", reason="the torch backend needs PyTorch")

from headrace.ops.torch import TorchOps

pytestmark = pytest.mark.torch


def few_streams() -> list[Case]:
    """Enough that some are computed together, some preempted and some cancelled."""
    return cases(12, most_tokens=24)


@pytest.mark.parametrize(
    ("family", "codec", "kinds"),
    [
        ("llama", "F32", {}),
        ("qwen3", "Q8_0", {"kv_cache_dtype": "bf16"}),
        ("gemma2", "BF16", KINDS["full"]),
        ("deepseek_v3", "Q8_0", KINDS["latents"]),
        pytest.param("llama4_text", "F32", {}, marks=pytest.mark.load),
        pytest.param("gpt_oss", "Q8_0", KINDS["sliding"], marks=pytest.mark.load),
        pytest.param("llama", "Q4_0", KINDS["near"], marks=pytest.mark.load),
    ],
)
def test_together_is_bit_for_bit_what_alone_is(family: str, codec: str, kinds: Kinds) -> None:
    shape = (GROUPS | TINY).get(family, {})
    check_together_is_what_alone_is(family, shape, "torch", codec, few_streams(), kinds)


@pytest.mark.parametrize(
    ("family", "codec", "kv"),
    [
        ("mimo", "Q8_0", "auto"),
        pytest.param("eagle3", "F32", "auto", marks=pytest.mark.load),
        pytest.param("dflash", "BF16", "auto", marks=pytest.mark.load),
        pytest.param("medusa", "F32", "q4_0", marks=pytest.mark.load),
    ],
)
def test_a_head_changes_no_bit(family: str, codec: str, kv: str, tmp_path: Path) -> None:
    check_head("torch", family, codec, kv, tmp_path, few_streams(), short=(False,))


FEW_TOKENS = 8
"""Of each answer of headrace-moe: experts are computed one after another here."""


@pytest.fixture(scope="module")
def moe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """headrace-moe as a folder of F32."""
    if not SHIPPED.exists():
        pytest.skip("models/ is in the repository, in no sdist and no wheel")
    return write_f32(tmp_path_factory.mktemp("moe") / "moe")


@pytest.mark.parametrize("placed", [{}, {"cpu_moe": True}, {"n_cpu_moe": 3}])
def test_greedy_tokens_of_headrace_moe_are_those_of_transformers(
    placed: dict[str, Any], moe: Path
) -> None:
    """As they are on the kernels (tests/models/test_shipped_moe.py), at F32; two prompts of all
    layers, and one with the experts of all or some of them on the kernels."""
    entries = json.loads(GREEDY.read_text(encoding="utf-8"))[: 1 if placed else 2]
    given = [entry["prompt"] for entry in entries]
    settings = {"backend": "torch", "device": "cpu", **placed}
    greedy = greedy_of_headrace(moe, given, FEW_TOKENS, **settings)
    assert greedy == [entry["greedy"][:FEW_TOKENS] for entry in entries]


def test_greedy_tokens_of_a_small_model_are_those_of_the_kernels(shared_assets: Path) -> None:
    model = shared_assets / "models" / "stories260K" / "stories260K.gguf"
    params = SamplingParams(temperature=0, max_tokens=16, logprobs=2)
    given = ["Once upon a time", "The little dog", "A"]
    answers = []
    for backend in ("cpu", "torch"):
        llm = LLM(model, backend=backend, device="cpu")
        answers.append([each.choices[0] for each in llm.generate(given, params, progress=False)])
    for answer, other in zip(*answers, strict=True):
        assert answer.token_ids == other.token_ids
        assert answer.text == other.text


@pytest.mark.parametrize(
    "records",
    [True, pytest.param(False, marks=pytest.mark.load)],
)
def test_steps_planned_ahead_change_no_bit(records: bool) -> None:
    """As on a device, computed anew or repeated: ids go from a draw to the next step in tensors."""
    requests, results = mixed(10, 5), []
    for ahead in (True, False):
        ops = TorchOps("cpu", 1)
        ops.records, ops.overlaps = records and ahead, ahead
        model = load_model(tiny_checkpoint("llama", "F32", logit_scale=2.0), ops)
        config = EngineConfig(
            num_gpu_blocks_override=12, block_size=16, max_num_batched_tokens=48,
            max_num_seqs=4, speculative_config="none",
        )  # fmt: skip
        core = EngineCore(model, ops, config, num_tokens=NUM_TOKENS, eos_token_ids=(EOS,))
        core.warm_up()
        results.append(answers(core, requests))
        assert core.stats().num_preemptions > 0
    check_same(requests, *results)


def test_a_device_that_is_not_there_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--device is cuda:99"):
        LLM(tmp_path / "no-such-model.gguf", device="cuda:99")


def test_streams_of_two_backends_are_what_each_alone_is() -> None:
    ops = with_experts(real_ops("torch"), real_ops("cpu"), 1)
    model = load_model(tiny_checkpoint("qwen3_moe", "Q8_0", logit_scale=2.0), ops)
    check_streams(model, ops, few_streams(), {"kv_cache_dtype": "bf16"})


def test_what_is_not_reproducible_says_so_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_tiny_gguf(tmp_path, "llama", "F32")
    settings: dict[str, Any] = {"model": str(path), "backend": "torch", "device": "cpu"}
    for reproducible in (True, False):
        core, _ = load_engine(
            EngineConfig(**settings, num_gpu_blocks_override=16, reproducible=reproducible)
        )
        warned = "answers may depend on what else is computed beside them (--no-reproducible)"
        assert (warned in caplog.text) is not reproducible
        core.submit(submit("a", [1, 2, 3], temperature=0, max_tokens=4))
        assert len(drain(core)["a"].token_ids) == 4


def test_a_device_too_small_for_all_experts_has_some_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The start chooses, says so, and serves; what the device has is made up."""
    from headrace.ops.torch.backend import TorchOps

    path = write_tiny_gguf(tmp_path, "qwen3_moe", "Q8_0", layers=4, num_experts=64,
                           moe_intermediate_size=256)  # fmt: skip
    settings: dict[str, Any] = {
        "model": str(path), "backend": "torch", "device": "cpu", "num_gpu_blocks_override": 16,
        "max_num_batched_tokens": 32, "max_num_seqs": 2, "gpu_memory_utilization": 1.0,
    }  # fmt: skip
    checkpoint = open_checkpoint(path)
    experts = sum(t.nbytes for name, t in checkpoint.tensors.items() if ".experts." in name)
    steps = step_bytes(read_config(checkpoint), 288, EngineConfig(**settings), recorded_tables=1)
    room = checkpoint.nbytes - experts // 2 + steps + REST_BYTES + (1 << 20)
    device = DeviceMemory(room, room)
    monkeypatch.setattr("headrace.engine.load.device_memory", lambda choice: device)
    monkeypatch.setattr(TorchOps, "memory", lambda ops: DeviceMemory(1 << 30, 1 << 30))
    core, _ = load_engine(EngineConfig(**settings))
    assert core.info().cpu_expert_layers == 2
    assert "the experts of the first 2 layers are computed on the CPU" in caplog.text
    report = memory_report(core.info())
    assert any("experts of the first 2 layers are computed on the CPU" in line for line in report)
    core.submit(submit("a", [1, 2, 3], temperature=0, max_tokens=4))
    assert len(drain(core)["a"].token_ids) == 4
