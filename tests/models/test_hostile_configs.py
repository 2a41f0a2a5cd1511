"""Hostile numbers in a config end with our errors before anything of their size is made."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.models import load_model, read_config
from headrace.ops.interface import Ops
from tests.tiny import tiny_checkpoint, tiny_config
from tests.tiny_families import tiny_family_names
from tools.counts.tiny_model import checkpoint_of
from tools.fuzz import harness, model_configs

HOSTILE = (2**31 - 1, 2**31, 2**62, 4097, -1, 0)
MOST_GROWTH_KIB = 64 * 1024
COUNTS_OF_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")


pytestmark = pytest.mark.usefixtures("bounded_memory")


@pytest.fixture(scope="module")
def bounded_memory() -> Iterator[None]:
    """What a test takes beyond this ends in a MemoryError, and not in the machine's memory."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + (1 << 30)
    # The hard limit stays, which not everyone may raise again.
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def numbers(config: dict[str, Any]) -> Iterator[str]:
    """Keys of whole numbers."""
    for key, value in config.items():
        if isinstance(value, int) and not isinstance(value, bool):
            yield key


@pytest.mark.parametrize("family", tiny_family_names())
def test_a_hostile_count_ends_with_an_error_and_not_with_memory(
    family: str, reference: Ops
) -> None:
    """Each whole number of a config in turn, with the weights of the true one."""
    config, tensors = tiny_config(family), dict(tiny_checkpoint(family).tensors)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for key in numbers(config):
        for value in HOSTILE:
            checkpoint = checkpoint_of({**config, key: value}, tensors)
            try:
                read_config(checkpoint)
                if value > 4096:
                    load_model(checkpoint, reference, max_positions=64)
            except HeadraceError as error:
                assert len(str(error)) < 4000, key
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < MOST_GROWTH_KIB


@pytest.mark.parametrize("family", tiny_family_names())
def test_a_hostile_count_of_experts_is_refused_by_its_name(family: str) -> None:
    config = tiny_config(family)
    if read_config(checkpoint_of(config, {})).experts is None:
        return
    for key in COUNTS_OF_EXPERTS:
        if key not in config:
            continue
        for value in (4097, 2**31 - 1, 2**62, -1, 2.5, "8", [8]):
            with pytest.raises(HeadraceError, match=key) as refused:
                read_config(checkpoint_of({**config, key: value}, {}))
            if value == 2**62 and key in ("num_experts", "num_local_experts"):
                assert "4096" in str(refused.value)


@pytest.mark.parametrize(
    "change", [{"head_dim": 2**31 - 2}, {"head_dim": 2**62}, {"hidden_size": 2**31 - 8}]
)
def test_a_hostile_width_of_heads_is_refused_before_tables_are_made(change: dict[str, int]) -> None:
    config = {**tiny_config("llama"), **change}
    if "hidden_size" in change:
        del config["head_dim"]
    with pytest.raises(HeadraceError, match=r"head_dim = .* supported: 1 to 8192"):
        read_config(checkpoint_of(config, {}))


def test_an_error_about_unknown_keys_stays_short() -> None:
    many = {f"key_{number}": number for number in range(5000)}
    for unknown in (many, {"x" * 100_000: 1}):
        with pytest.raises(HeadraceError, match="does not know for this family") as caught:
            read_config(checkpoint_of({**tiny_config("llama"), **unknown}, {}))
        assert len(str(caught.value)) < 4000


@pytest.mark.long
def test_the_fuzzer_of_configs_finds_nothing_in_a_short_run() -> None:
    report = harness.run(model_configs.make_target(), seed=21, iterations=40, limit_s=20)
    assert not report.findings, next(iter(report.findings.values())).text
    assert {"UnsupportedModelError", "loaded"} <= set(report.outcomes)
