"""Checks of devices and of speculation."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cli.plan.options import storage_of
from headrace.plan.lint import planned, speculation_checks
from headrace.plan.lint.subject import Subject
from headrace.plan.speed.replica import ReplicaChoice, replica_of
from headrace.plan.speed.speed import SpeedModel
from tests.plan.lint.subjects import (
    catalog,
    found,
    lacks,
    model,
    outcome,
    readings,
    request,
    run,
    subject,
    values,
)

VLLM = "vllm serve llama-3.1-8b"
BIG: dict[str, Any] = {"shape": "llama-3.1-70b"}
DRAFT = '--speculative-config {"method":"draft_model","model":"d","num_speculative_tokens":5}'


def test_tensor_parallelism_over_pcie() -> None:
    line = f"{VLLM} --tensor-parallel-size 4"
    one = found("L-tp-over-pcie", subject(line, hardware="l40s"))
    assert "PCIe 4.0" in values(one).values()
    assert outcome("L-tp-over-pcie", subject(line, hardware="h100-sxm")) == ()
    assert outcome("L-tp-over-pcie", subject(VLLM, hardware="l40s")) == ()
    assert "--hardware" in lacks("L-tp-over-pcie", subject(line))


def test_several_gpus_as_one_where_one_is_enough() -> None:
    line = f"{VLLM} --tensor-parallel-size 8 --max-num-seqs"
    fields = {"shape": "llama-3.1-8b", "hardware": "h100-sxm"}
    one = found("L-multi-gpu", subject(f"{line} 16", **fields))
    told = values(one)
    alone, together = told["one device with all requests"], told["8 devices together"]
    assert one.severity == "info" and float(together) < 4 * float(alone)
    # One device does not hold what 512 requests need.
    assert outcome("L-multi-gpu", subject(f"{line} 512", **fields)) == ()
    # At 16 bits it has 141 GB, which no H100 holds.
    assert outcome("L-multi-gpu", subject(f"{line} 64", hardware="h100-sxm", **BIG)) == ()
    assert "batch" in lacks("L-multi-gpu", subject(f"{VLLM} -tp 8", shape="llama-3.1-8b"))


class Stub:
    """A replica whose step takes what a test says, and that holds everything."""

    fits = True

    def __init__(self, seconds: float) -> None:
        self.model = self
        self.seconds = seconds

    def decode_step(self, batch: int, context_tokens: int) -> Stub:
        return self

    def memory(self, context_tokens: int, batch: int) -> Stub:
        return self


def test_replicas_are_faster_where_the_link_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    def replica(of: Subject, *, devices: int | None = None) -> Stub:
        return Stub(1.0 if devices == 1 else 1.5)

    monkeypatch.setattr(planned, "replica", replica)
    line = "vllm serve x --tensor-parallel-size 4 --max-num-seqs 64"
    one = found("L-multi-gpu", subject(line, shape="llama-3.2-1b"))
    told = values(one)
    assert one.severity is None and "--data-parallel-size 4" in one.remedy
    assert told["4 replicas of 16 requests each"] == 64 and told["4 devices together"] == 43


def test_a_model_too_large_for_its_one_device() -> None:
    one = found("L-tp-missing", subject(VLLM, hardware="h100-sxm", **BIG))
    assert "--tensor-parallel-size 2" in one.remedy
    assert outcome("L-tp-missing", subject(VLLM, hardware="h100-sxm", shape="llama-3.1-8b")) == ()
    assert outcome("L-tp-missing", subject(f"{VLLM} -tp 4", hardware="h100-sxm", **BIG)) == ()


def test_offload_where_fewer_bits_would_fit() -> None:
    line = "llama-server -m x -c 4096 -ngl 16"
    fields = {"shape": "llama-3.1-8b", "hardware": "rtx-4060-ti-16gb", "quantization": "bf16"}
    one = found("L-offload", subject(line, **fields))
    told = values(one)
    assert "Q8_0" in one.remedy
    # Half of 32 layers.
    assert float(told["kept outside the GPU"]) == float(told["weights"]) / 2
    assert outcome("L-offload", subject(line.replace("16", "99"), **fields)) == ()
    assert "shape" in lacks("L-offload", subject(line))


def test_flops_where_reading_takes_the_time() -> None:
    def made(moved: float) -> Any:
        limits = {"read_limit": 100.0, "compute_limit": 1000.0}
        first = {"bytes": 0.0, "operations": 0.0, "stepped": 0.0, **limits}
        last = {"bytes": moved, "operations": 100.0, "stepped": 1.0, **limits}
        return subject(run=run(readings=readings(first, last)))

    one = found("L-flops", made(80.0))
    assert values(one)["MBU"] == 0.8 and values(one)["MFU"] == 0.1
    assert outcome("L-flops", made(5.0)) == ()
    assert "run" in lacks("L-flops", subject())


def test_tuned_kernels_over_sixteen_bit_weights() -> None:
    line = f"{VLLM} -O3 --max-num-seqs 8"
    fields = {"shape": "llama-3.1-8b", "hardware": "h100-sxm"}
    assert "reading" in found("L-flops", subject(line, **fields)).says
    assert outcome("L-flops", subject(f"{line} --quantization fp8", **fields)) == ()


def test_sixteen_bits_on_a_device_with_fp8() -> None:
    one = found("L-quantization", subject(VLLM, shape="llama-3.1-8b", hardware="h100-sxm"))
    assert "fp8" in one.remedy
    assert outcome("L-quantization", subject(VLLM, shape="llama-3.1-8b",
                                             hardware="a100-sxm")) == ()  # fmt: skip
    assert outcome("L-quantization", subject(f"{VLLM} -q fp8")) == ()
    published = subject(VLLM, shape="deepseek-v3", hardware="h200-sxm")
    assert outcome("L-quantization", published) == ()


def test_weights_are_planned_in_the_kind_they_are_published_in() -> None:
    known = catalog()

    def kind(line: str, **fields: Any) -> str:
        row = planned.weight_kind(subject(line, **fields))
        assert row is not None
        return row.id

    assert kind(VLLM, shape="gpt-oss-120b") == "mxfp4"
    assert kind(VLLM, shape="deepseek-v3") == "fp8"
    assert kind(VLLM, shape="llama-3.1-8b") == "bf16"
    assert kind(f"{VLLM} -q awq", shape="deepseek-v3") == "awq"
    # A draft as well, whatever the kind of the model it drafts for.
    drafting = subject(f"{VLLM} {DRAFT}", draft_shape="gpt-oss-20b")
    replica = replica_of(
        known, model(), storage_of(known, model(), "fp8", "F16", 16),
        ReplicaChoice(hardware="h100-sxm"), None,
    )  # fmt: skip
    draft = speculation_checks._draft_model(drafting, replica)
    assert isinstance(draft, SpeedModel)
    total = draft.setup.shape.parameters.total
    assert draft.setup.storage.bytes_per_weight * total == pytest.approx(13.76e9, rel=0.005)


def drafts(accepted: float, running: float = 4.0) -> Any:
    told = readings(
        {"drafted": 0.0, "accepted": 0.0, "running": running},
        {"drafted": 1000.0, "accepted": accepted, "running": running},
    )
    return run([request(0)], told)


def test_speculation_by_its_acceptance() -> None:
    line = f"{VLLM} {DRAFT}"
    fields = {"shape": "llama-3.1-8b", "draft_shape": "llama-3.2-1b"}
    one = found("L-speculation", subject(line, run=drafts(80), **fields))
    told = values(one)
    assert told["acceptance"] == 0.08 and float(told["times as fast"]) < 1
    assert 0.08 < float(told["acceptance at which it starts to pay"]) < 0.5
    assert outcome("L-speculation", subject(line, run=drafts(800), **fields)) == ()
    assert outcome("L-speculation", subject(VLLM)) == ()
    assert "accepted" in lacks("L-speculation", subject(line))


def test_speculation_that_nobody_measures() -> None:
    quiet = run([request(0)], readings({"running": 1.0}, {"running": 1.0}))
    assert (
        "acceptance is not measured"
        in found("L-speculation", subject(f"{VLLM} {DRAFT}", run=quiet)).says
    )


def test_speculation_past_its_paying_batch() -> None:
    line = f"{VLLM} {DRAFT} --max-num-seqs "
    fields = {"shape": "llama-3.1-8b", "draft_shape": "llama-3.2-1b", "hardware": "h100-sxm"}
    assert outcome("L-speculation-batch", subject(f"{line}2", **fields)) == ()
    many = subject(f"{line}256", run=drafts(700, 256.0), **fields)
    assert outcome("L-speculation-batch", many) == ()
    one = found("L-speculation-batch", subject(f"{line}256", run=drafts(500, 256.0), **fields))
    told = values(one)
    assert told["acceptance of a token"] == 0.5 and float(told["times as fast at that batch"]) < 1
    assert float(told["stops paying at"]) <= 256
    assert "--max-num-seqs" in lacks("L-speculation-batch", subject(f"{VLLM} {DRAFT}"))
