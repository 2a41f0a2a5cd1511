"""From memory to blocks: the budget, control groups, and errors with values that fit."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.config.settings import EngineConfig
from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.memory import kv_memory
from headrace.engine.memory.available import available_memory_bytes
from headrace.engine.memory.kv_memory import plan_kv_cache
from headrace.engine.scheduling.scheduler import Scheduler
from headrace.errors import ConfigError
from headrace.ops.kv import KVCacheArrays, KVCacheSpec
from tests.engine.mock import MockModel, MockOps, make_core

MIB = 1 << 20
BLOCK_BYTES = 32 * 2 * 2 * 4
"""Of the mock's KV cache: 32 tokens, K and V, two f32 each."""


def test_the_default_is_a_quarter_of_the_memory_and_no_more_than_is_used() -> None:
    model = MockModel(max_positions=4096)
    plan = plan_kv_cache(model, EngineConfig(), 4 * 1000 * BLOCK_BYTES)
    assert (plan.num_blocks, plan.max_model_len) == (1000, 4096)
    enough = 64 * 4096 // 32
    plan = plan_kv_cache(model, EngineConfig(), 1 << 40)
    assert (plan.num_blocks, plan.max_model_len) == (enough, 4096)
    plan = plan_kv_cache(model, EngineConfig(max_num_seqs=2, max_model_len=65), 1 << 40)
    assert (plan.num_blocks, plan.max_model_len) == (2 * 3, 65)


def test_without_a_length_it_is_what_the_cache_holds() -> None:
    plan = plan_kv_cache(MockModel(), EngineConfig(), 4 * 10 * BLOCK_BYTES)
    assert (plan.num_blocks, plan.max_model_len) == (10, 320)
    plan = plan_kv_cache(MockModel(), EngineConfig(num_gpu_blocks_override=3), 1 << 30)
    assert (plan.num_blocks, plan.max_model_len) == (3, 96)


@pytest.mark.parametrize(
    ("asked", "weights", "codec", "block_bytes"),
    [
        ("auto", "F32", "f32", BLOCK_BYTES),
        ("auto", "BF16", "bf16", BLOCK_BYTES // 2),
        ("auto", "Q8_0", "bf16", BLOCK_BYTES // 2),
        ("bf16", "F32", "bf16", BLOCK_BYTES // 2),
        ("f32", "Q8_0", "f32", BLOCK_BYTES),
        ("fp8", "Q8_0", "fp8", BLOCK_BYTES // 4),
    ],
)
def test_the_type_of_the_cache(asked: str, weights: str, codec: str, block_bytes: int) -> None:
    config = EngineConfig(kv_cache_dtype=asked)  # type: ignore[arg-type]
    plan = plan_kv_cache(MockModel(weight_codec=weights), config, 1 << 30)
    assert (plan.kinds.full.k, plan.block_bytes) == (codec, block_bytes)


def test_v_may_have_a_type_of_its_own() -> None:
    config = EngineConfig(kv_cache_dtype="q4_0", kv_cache_dtype_v="int8")
    plan = plan_kv_cache(MockModel(), config, 1 << 30)
    assert (plan.kinds.full.k, plan.kinds.full.v, plan.types) == ("q4_0", "int8", "q4_0,int8+near")
    assert plan.block_bytes == 32 * ((1 + 4) + (2 + 4)), "with a scale for each token of a head"
    plan = plan_kv_cache(MockModel(), EngineConfig(kv_cache_dtype_v="fp8"), 1 << 30)
    assert (plan.kinds.full.k, plan.kinds.full.v) == ("f32", "fp8")
    assert plan_kv_cache(MockModel(), EngineConfig(), 1 << 30).types == "f32"


def test_layers_with_a_window_may_have_a_type_of_their_own() -> None:
    model = MockModel(windows=(0, 64))
    plan = plan_kv_cache(
        model, EngineConfig(kv_cache_dtype="int8", kv_cache_dtype_sliding="bf16"), 1 << 30
    )
    assert plan.types == "int8;bf16"
    assert [plan.spec.codecs(place) for place in plan.spec.places if place is not None] == [
        ("int8", "int8"), ("bf16", "bf16"),
    ]  # fmt: skip
    # One table each, of two values of a head: 2 * (2 + 4) and 2 * 2 * 2 bytes a token.
    assert plan.block_bytes == 32 * max(2 * (2 + 4), 2 * 2 * 2)
    v = EngineConfig(kv_cache_dtype_v="fp8", kv_cache_dtype_sliding_v="int8")
    assert plan_kv_cache(model, v, 1 << 30).types == "f32,fp8;f32,int8"
    for flag in ("kv_cache_dtype_sliding", "kv_cache_dtype_sliding_v"):
        config, named = EngineConfig(**{flag: "fp8"}), flag.replace("_", "-")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=f"--{named} fp8 is for .* and this model has none"):
            plan_kv_cache(MockModel(), config, 1 << 30)
        # What is near has a span of 64, and is no window.
        with pytest.raises(ConfigError, match=f"--{named} fp8 is for"):
            plan_kv_cache(MockModel(), replace(config, kv_cache_dtype="q4_0"), 1 << 30)


def test_what_is_near_is_in_bf16_beside_q4_0_and_where_it_is_asked_for() -> None:
    def types(**settings: str) -> str:
        return plan_kv_cache(MockModel(), EngineConfig(**settings), 1 << 30).types  # type: ignore[arg-type]

    assert types(kv_cache_dtype="q4_0") == "q4_0+near"
    assert types(kv_cache_dtype="q4_0", kv_cache_near="none") == "q4_0"
    assert types(kv_cache_dtype="q8_0", kv_cache_dtype_v="q4_0") == "q8_0,q4_0+near"
    assert types(kv_cache_dtype="bf16", kv_cache_dtype_v="q4_0") == "bf16,q4_0"
    assert types(kv_cache_dtype="fp8", kv_cache_near="bf16") == "fp8+near"
    with pytest.raises(ConfigError, match=r"--kv-cache-near bf16 is for .* they are f32.*none"):
        types(kv_cache_near="bf16")
    with pytest.raises(ConfigError, match=r"both of 8 or 4 bits, and they are bf16,q4_0"):
        types(kv_cache_dtype="bf16", kv_cache_dtype_v="q4_0", kv_cache_near="bf16")
    plan = plan_kv_cache(MockModel(), EngineConfig(kv_cache_dtype="q4_0"), 1 << 30)
    stored, near = plan.layout.groups
    assert (stored.near, near.near, near.window) == (False, True, 64)


def test_an_explicit_size_is_taken_whole_and_checked_against_memory() -> None:
    config = EngineConfig(kv_cache_memory_bytes=100 * BLOCK_BYTES)
    assert plan_kv_cache(MockModel(), config, 1 << 30).num_blocks == 100
    with pytest.raises(ConfigError) as caught:
        plan_kv_cache(MockModel(), config, 90 * BLOCK_BYTES)
    assert str(100 * BLOCK_BYTES) in str(caught.value)
    flag = re.search(r"--kv-cache-memory-bytes (\d+) or less", str(caught.value))
    assert flag is not None
    fitting = EngineConfig(kv_cache_memory_bytes=int(flag.group(1)))
    assert plan_kv_cache(MockModel(), fitting, 90 * BLOCK_BYTES).num_blocks == 90


@pytest.mark.parametrize("remedy", ["--max-model-len", "--kv-cache-memory-bytes"])
def test_a_length_that_does_not_fit_is_refused_with_values_that_do(remedy: str) -> None:
    available = 4 * 10 * BLOCK_BYTES
    with pytest.raises(ConfigError) as caught:
        plan_kv_cache(MockModel(), EngineConfig(max_model_len=1000), available)
    text = str(caught.value)
    assert f"32 x {BLOCK_BYTES} = {32 * BLOCK_BYTES} bytes" in text
    assert "(a quarter of 0 MiB available)" in text
    value = re.search(rf"{remedy} (\d+)", text)
    assert value is not None
    field = remedy.removeprefix("--").replace("-", "_")
    fitting = {"max_model_len": 1000, field: int(value.group(1))}
    plan = plan_kv_cache(MockModel(), EngineConfig(**fitting), available)  # type: ignore[arg-type]
    assert plan.max_model_len == fitting["max_model_len"]


def test_the_override_names_itself_as_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"--max-model-len 96 or --num-gpu-blocks-override 32"):
        plan_kv_cache(
            MockModel(), EngineConfig(max_model_len=1000, num_gpu_blocks_override=3), 1 << 30
        )


@pytest.mark.parametrize("asked", [91, 10**8, 10**12, 2**70])
def test_a_number_of_blocks_is_checked_against_memory(asked: int) -> None:
    available = 90 * BLOCK_BYTES + 1
    with pytest.raises(ConfigError) as caught:
        plan_kv_cache(MockModel(), EngineConfig(num_gpu_blocks_override=asked), available)
    text = str(caught.value)
    assert text.startswith(f"--num-gpu-blocks-override is {asked}:")
    assert f"{asked} x {BLOCK_BYTES} = {asked * BLOCK_BYTES} bytes" in text
    assert f"only {available} bytes" in text
    flag = re.search(r"--num-gpu-blocks-override (\d+) or less", text)
    assert flag is not None
    fitting = EngineConfig(num_gpu_blocks_override=int(flag.group(1)))
    assert plan_kv_cache(MockModel(), fitting, available).num_blocks == 90


def test_block_numbers_have_32_bits() -> None:
    huge = 1 << 60
    with pytest.raises(ConfigError, match=r"32 bits.*--num-gpu-blocks-override 2147483647 or less"):
        plan_kv_cache(MockModel(), EngineConfig(num_gpu_blocks_override=2**31), huge)
    most = EngineConfig(num_gpu_blocks_override=2**31 - 1)
    assert plan_kv_cache(MockModel(), most, huge).num_blocks == 2**31 - 1
    bytes_ = EngineConfig(kv_cache_memory_bytes=2**55)
    assert plan_kv_cache(MockModel(), bytes_, huge).num_blocks == 2**31 - 1


def test_fewer_blocks_than_the_tables_of_a_model_are_refused() -> None:
    model = MockModel(windows=(0, 40, 40))
    config = EngineConfig(block_size=16, num_gpu_blocks_override=2)
    with pytest.raises(
        ConfigError, match=r"a request of 16 tokens does not fit .* 3 blocks .*override 3\."
    ):
        plan_kv_cache(model, config, 1 << 30)


def test_not_even_one_block_is_said() -> None:
    with pytest.raises(ConfigError, match=r"only 5 bytes .* available\. Free some memory, "):
        plan_kv_cache(MockModel(), EngineConfig(num_gpu_blocks_override=1), 5)


def test_memory_that_is_gone_since_the_plan_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: MockOps, spec: KVCacheSpec) -> KVCacheArrays:
        raise MemoryError

    monkeypatch.setattr(MockOps, "kv_cache", refuse)
    with pytest.raises(
        ConfigError, match=r"64 blocks of 256 bytes are 16384 bytes.*override 32 or"
    ):
        make_core()


def test_blocks_and_slots_cost_nothing_until_they_are_used() -> None:
    config = EngineConfig(max_num_seqs=10**9, num_gpu_blocks_override=2**31 - 1)
    tracemalloc.start()
    try:
        kv = KVCache(2**31 - 1, config.block_size)
        scheduler = Scheduler(kv, max_num_batched_tokens=512, max_num_seqs=config.max_num_seqs)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()
    assert kv.num_free == 2**31 - 1
    kv.check(scheduler.running)


def test_a_length_beyond_the_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"5000.*4096.*--max-model-len 4096"):
        plan_kv_cache(MockModel(), EngineConfig(max_model_len=5000), 1 << 30)


def test_no_memory_at_all_is_said() -> None:
    with pytest.raises(ConfigError, match=r"room for 0 tokens.*Use --kv-cache-memory-bytes 512\."):
        plan_kv_cache(MockModel(), EngineConfig(), 600)
    with pytest.raises(ConfigError, match=r"room for 0 tokens.*Free some memory, .*not even one"):
        plan_kv_cache(MockModel(), EngineConfig(), 100)


def test_the_plan_says_what_memory_there_was_and_where_its_size_is_from() -> None:
    def of(available: int, **settings: int) -> tuple[int, str]:
        plan = plan_kv_cache(MockModel(), EngineConfig(**settings), available)  # type: ignore[arg-type]
        return plan.available_bytes, plan.budget

    a_mib = 1 << 20
    assert of(a_mib) == (a_mib, "a quarter of 1 MiB available")
    assert of(1 << 40) == (1 << 40, "enough for --max-num-seqs 64 of 4096 tokens")
    assert of(a_mib, num_gpu_blocks_override=3) == (a_mib, "--num-gpu-blocks-override 3")
    assert of(a_mib, kv_cache_memory_bytes=a_mib) == (a_mib, f"--kv-cache-memory-bytes {a_mib}")
    assert of(kv_memory.UNKNOWN_BYTES, num_gpu_blocks_override=3)[0] == 0


any_sizes = given(
    available=st.integers(0, 200 * BLOCK_BYTES),
    max_model_len=st.none() | st.integers(1, 4096),
    size=st.one_of(
        st.just({}),
        st.builds(lambda n: {"num_gpu_blocks_override": n}, st.integers(1, 300)),
        st.builds(
            lambda n: {"kv_cache_memory_bytes": n},
            st.integers(1, 300 * BLOCK_BYTES) | st.integers(1, 3 * BLOCK_BYTES),
        ),
    ),
    windows=st.sampled_from([(0,), (0,), (40,), (700,), (0, 40), (40, 0, 40), (40, 700)]),
    block_size=st.sampled_from([16, 32, 64]),
    max_num_batched_tokens=st.sampled_from([16, 512]),
    max_num_seqs=st.sampled_from([1, 64]),
)


@settings(max_examples=100)
@any_sizes
def test_every_flag_value_that_an_error_suggests_works(**drawn: Any) -> None:
    check_suggestion(**drawn)


@pytest.mark.long
@settings(max_examples=400)
@any_sizes
def test_many_flag_values_that_errors_suggest_work(**drawn: Any) -> None:
    check_suggestion(**drawn)


def check_suggestion(
    available: int,
    max_model_len: int | None,
    size: dict[str, int],
    windows: tuple[int, ...],
    **others: int,
) -> None:
    model = MockModel(windows=windows)
    given_settings: dict[str, Any] = {"max_model_len": max_model_len, **size, **others}
    try:
        plan = plan_kv_cache(model, EngineConfig(**given_settings), available)
    except ConfigError as error:
        text = str(error)
    else:
        assert plan.num_blocks * plan.block_bytes <= available
        assert plan.max_model_len == (max_model_len or min(4096, plan.pool_tokens))
        return
    if "Free some memory" in text:
        layout, size_tokens = model.cache_layout, others["block_size"]
        block_bytes = layout.spec(size_tokens, 1, "f32", "f32").block_bytes
        assert available < layout.num_tables * block_bytes
        assert "--" not in text.partition("Free some memory")[2]
        return
    match = re.search(r"Use (--.*?)( or less)?\.$", text)
    assert match is not None, text
    for remedy in match[1].split(" or "):
        words = remedy.split()
        flags = {
            flag.removeprefix("--").replace("-", "_"): int(value)
            for flag, value in zip(words[::2], words[1::2], strict=True)
        }
        plan = plan_kv_cache(model, EngineConfig(**{**given_settings, **flags}), available)
        length = flags.get("max_model_len", max_model_len)
        assert plan.max_model_len == (length or min(4096, plan.pool_tokens)), remedy


def machine(root: Path, available_mib: int, cgroup: str, files: dict[str, str]) -> Path:
    """A made-up / with the files that are read."""
    for name, text in {
        "proc/meminfo": f"MemTotal: 99 kB\nMemAvailable:   {available_mib * 1024} kB\n",
        "proc/self/cgroup": cgroup,
        **files,
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def v2(folder: str, limit: str, usage: int, droppable: int = 0) -> dict[str, str]:
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{usage}\n",
        f"{folder}/memory.stat": f"anon 5\ninactive_file {droppable}\nactive_file 7\n",
    }


def test_memory_is_the_least_of_machine_and_control_groups(tmp_path: Path) -> None:
    base = "sys/fs/cgroup"
    free = machine(tmp_path / "free", 1000, "0::/\n", {})
    assert available_memory_bytes(free) == 1000 * MIB
    unlimited = machine(tmp_path / "max", 1000, "0::/a\n", v2(f"{base}/a", "max", 5))
    assert available_memory_bytes(unlimited) == 1000 * MIB
    inner = v2(f"{base}/a/b", str(700 * MIB), 100 * MIB, 50 * MIB)
    limited = machine(tmp_path / "b", 1000, "0::/a/b\n", inner)
    assert available_memory_bytes(limited) == 650 * MIB
    outer = {**inner, **v2(f"{base}/a", str(500 * MIB), 300 * MIB)}
    assert available_memory_bytes(machine(tmp_path / "c", 1000, "0::/a/b\n", outer)) == 200 * MIB
    assert available_memory_bytes(machine(tmp_path / "d", 150, "0::/a/b\n", outer)) == 150 * MIB
    over = v2(f"{base}/a", str(MIB), 2 * MIB)
    assert available_memory_bytes(machine(tmp_path / "e", 150, "0::/a\n", over)) == 0


def test_control_groups_of_the_first_version_and_containers(tmp_path: Path) -> None:
    base = "sys/fs/cgroup/memory"
    files = {
        "memory.limit_in_bytes": str(300 * MIB),
        "memory.usage_in_bytes": str(100 * MIB),
        "memory.stat": f"inactive_file 1\ntotal_inactive_file {20 * MIB}\n",
    }
    lines = "8:pids:/\n4:cpu,memory:/group\n0::/\n"
    at_group = {f"{base}/group/{name}": text for name, text in files.items()}
    assert available_memory_bytes(machine(tmp_path / "a", 1000, lines, at_group)) == 220 * MIB
    # In a container the group's own files are at the top, whatever the path says.
    at_top = {f"{base}/{name}": text for name, text in files.items()}
    assert available_memory_bytes(machine(tmp_path / "b", 1000, lines, at_top)) == 220 * MIB
    outside = lines.replace("/group", "/../../elsewhere")
    assert available_memory_bytes(machine(tmp_path / "c", 1000, outside, at_top)) == 220 * MIB


def test_limits_of_the_process_count_as_memory(tmp_path: Path) -> None:
    def limited(name: str, space: str, data: str) -> int:
        limits = (
            "Limit                     Soft Limit           Hard Limit           Units     \n"
            f"Max data size             {data:20} unlimited            bytes     \n"
            f"Max address space         {space:20} unlimited            bytes     \n"
        )
        status = f"Name:\tpython\nVmSize:\t  {100 * 1024} kB\nVmData:\t {30 * 1024} kB\n"
        files = {"proc/self/limits": limits, "proc/self/status": status}
        return available_memory_bytes(machine(tmp_path / name, 1000, "0::/\n", files))

    assert limited("none", "unlimited", "unlimited") == 1000 * MIB
    assert limited("space", str(300 * MIB), "unlimited") == 200 * MIB
    assert limited("data", str(300 * MIB), str(50 * MIB)) == 20 * MIB


def test_sizes_that_were_asked_for_do_not_need_to_know_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreadable() -> int:
        raise ConfigError("cannot read how much memory is available")

    monkeypatch.setattr(kv_memory, "available_memory_bytes", unreadable)
    with pytest.raises(ConfigError, match="cannot read"):
        plan_kv_cache(MockModel(), EngineConfig())
    blocks = EngineConfig(num_gpu_blocks_override=7)
    assert plan_kv_cache(MockModel(), blocks).num_blocks == 7
    size = EngineConfig(kv_cache_memory_bytes=7 * BLOCK_BYTES)
    assert plan_kv_cache(MockModel(), size).num_blocks == 7


def test_a_machine_that_does_not_tell_is_an_error_with_the_flags(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--kv-cache-memory-bytes or --num-gpu-blocks-override"):
        available_memory_bytes(tmp_path)
    assert available_memory_bytes() > MIB
