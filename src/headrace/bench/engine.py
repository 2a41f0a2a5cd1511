"""How fast the engine is on one model: prefill, decode and both, as llama-bench measures them.

A test is a prompt length, a number of new tokens, how many requests run at once and how much was
in the cache before (`depth`). Prompts are random token ids; ends of turn are ignored. The engine
runs in this process, without a server. Each test is run `repeats` times after one warm-up. Tests
that only decode have the same prompts in every run, so that `depth` is computed once. Bytes and
operations are the engine's own counters, times are those of its steps.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from headrace.bench.machine import Spread
from headrace.engine.core import EngineCore
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.engine.scheduling.scheduler import watermark_blocks
from headrace.errors import ConfigError, HeadraceError
from headrace.telemetry.work import Work


class Case(NamedTuple):
    """One test. `batch` requests of `prompt` tokens that each make `new` ones, after `depth`.

    prompt and new may be 0, not both: what is 0 is not timed. depth: tokens of each request that
    were computed before the clock starts.
    """

    prompt: int
    new: int
    batch: int
    depth: int

    @property
    def name(self) -> str:
        """As llama-bench writes it: pp512, tg128, pp512+tg128, with @ d4096."""
        parts = []
        if self.prompt:
            parts.append(f"pp{self.prompt}")
        if self.new:
            parts.append(f"tg{self.new}")
        return "+".join(parts) + (f" @ d{self.depth}" if self.depth else "")

    @property
    def tokens(self) -> int:
        """Tokens computed while the clock runs, of all requests."""
        return self.batch * (self.prompt + self.new)

    @property
    def positions(self) -> int:
        """Longest that each request may become; one without a prompt begins with a token too."""
        return self.depth + max(1, self.prompt) + self.new + 1


def combined(
    prompts: Sequence[int],
    new: Sequence[int],
    batches: Sequence[int],
    depths: Sequence[int],
    *,
    together: bool,
) -> list[Case]:
    """A test for every combination, prefill before decode; together: both in one test."""
    if together:
        pairs = [(p, n) for p in prompts for n in new if p or n]
    else:
        pairs = [(p, 0) for p in prompts if p] + [(0, n) for n in new if n]
    return [Case(p, n, b, d) for d in depths for b in batches if b for p, n in pairs]


def check_fits(core: EngineCore, case: Case) -> None:
    """Raise ConfigError where the requests of `case` cannot all be in the KV cache at once.

    They would be preempted or run one after another, and be timed as if they had not.
    """
    kv = core.kv
    needed = case.batch * kv.most_blocks(case.positions) + watermark_blocks(kv)
    if needed > kv.num_blocks:
        raise ConfigError(
            f"{case.name} with --batch {case.batch} needs {needed} blocks of {kv.block_size} "
            f"tokens in the KV cache; there is memory for {kv.num_blocks}. Use a smaller --batch, "
            "shorter --prompt, --new and --depth, or free some memory"
        )


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one test. Rates are tokens per second of all requests together."""

    test: str
    prompt: int
    new: int
    batch: int
    depth: int
    tokens_per_s: float
    least_tokens_per_s: float
    most_tokens_per_s: float
    repeats: int
    step_bytes: int
    step_operations: int
    step_attention_operations: int
    """Those of attention among `step_operations`."""
    bytes_per_s: float
    ops_per_s: float
    intensity: float
    """Operations per byte."""
    mbu: float | None
    mfu: float | None
    """With `mbu`: shares of the machine's measured limits over the whole test, operations of
    attention at their own rate; None where nothing was measured for this level and thread count."""


class _Run(NamedTuple):
    seconds: float
    moved_bytes: int
    operations: int
    attention_operations: int
    steps: int


def run_case(
    core: EngineCore,
    case: Case,
    *,
    repeats: int,
    seed: int = 0,
    warm_up: bool = True,
    first: int = 0,
    clock: Callable[[], float] = time.perf_counter,
    on_run: Callable[[], None] | None = None,
) -> Result:
    """Measure one test on an idle engine with prefix caching.

    depth must be a multiple of its block size, so that all of it is found in the cache. warm_up: a
    run before that is not counted, which long tests on a warm engine can do without. first: runs of
    this test that were made on this engine before, by other calls. Raises ConfigError for more than
    the KV cache holds, HeadraceError where a request fails.
    """
    check_fits(core, case)
    runs = []
    for index in range(0 if warm_up else 1, repeats + 1):
        # Other prompts each time where those are timed, also than those of other tests: one with
        # the same beginning, be it a token, would be found in the cache.
        own = f"{seed} {case.name} {case.batch} {first + index}" if case.prompt else str(seed)
        run = _run_once(core, case, own, clock)
        if index:
            runs.append(run)
        if on_run is not None:
            on_run()
    rates = Spread.of([case.tokens / run.seconds for run in runs])
    middle = sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]
    info = core.info()
    bytes_per_s = middle.moved_bytes / middle.seconds
    ops_per_s = middle.operations / middle.seconds
    read, compute = info.read_limit_bytes_per_s, info.compute_limit_ops_per_s
    attention = info.attention_limit_ops_per_s
    work = Work(middle.moved_bytes, middle.operations, middle.attention_operations)
    return Result(
        test=case.name,
        prompt=case.prompt,
        new=case.new,
        batch=case.batch,
        depth=case.depth,
        tokens_per_s=rates.median,
        least_tokens_per_s=rates.least,
        most_tokens_per_s=rates.most,
        repeats=repeats,
        step_bytes=middle.moved_bytes // middle.steps,
        step_operations=middle.operations // middle.steps,
        step_attention_operations=middle.attention_operations // middle.steps,
        bytes_per_s=bytes_per_s,
        ops_per_s=ops_per_s,
        intensity=work.intensity,
        mbu=bytes_per_s / read if read else None,
        mfu=work.computing_s(compute, attention) / middle.seconds if compute else None,
    )


def _run_once(core: EngineCore, case: Case, seed: str, clock: Callable[[], float]) -> _Run:
    """One run of steps; what comes before the clock starts is computed first.

    seed: of the prompts; only runs of equal seeds share what is cached. The tokens of `depth` are
    put into the prefix cache by requests that end there. A test without a prompt then computes one
    token more of each request, in one step, which gives its first new token: the clock starts after
    it, and `new` steps of `batch` tokens follow.
    """
    draw = random.Random(seed)
    vocab = core.info().vocab_size
    length = case.depth + max(1, case.prompt)
    prompts = [[draw.randrange(vocab) for _ in range(length)] for _ in range(case.batch)]
    if case.depth:
        _submit(core, "depth", seed, [ids[: case.depth] for ids in prompts], 1)
        _step_until(core, lambda: not core.has_work)
    requests = _submit(core, "bench", seed, prompts, case.new + 1)
    if not case.prompt:
        _step_until(core, lambda: _computed(core, length))
        running = core.scheduler.running
        if [one.num_computed for one in running] != [length] * case.batch:
            raise HeadraceError(
                f"{case.name}: a step does not compute a token of each of {case.batch} requests, "
                "so their decoding cannot be timed alone. Use a smaller --batch, or --together"
            )
    before, start_s = core.stats(), clock()
    _step_until(core, lambda: _computed(core, length + case.new))
    seconds, after = clock() - start_s, core.stats()
    for name in requests:
        core.cancel(name)
    core.step()
    return _Run(
        seconds,
        after.moved_bytes - before.moved_bytes,
        after.operations - before.operations,
        after.attention_operations - before.attention_operations,
        after.steps - before.steps,
    )


def _submit(
    core: EngineCore, kind: str, seed: str, prompts: list[list[int]], new: int
) -> list[str]:
    # Every step is to compute a token of each, whatever the texts are.
    params = SamplingParams(temperature=0.0, max_tokens=new, ignore_eos=True, speculation=False)
    names = [f"{kind}-{index}" for index in range(len(prompts))]
    for index, (name, ids) in enumerate(zip(names, prompts, strict=True)):
        core.submit(Submit(name, ids, params, cache_salt=f"{seed} {index}"))
    return names


def _computed(core: EngineCore, tokens: int) -> bool:
    """Whether every request has computed so many tokens, or has ended."""
    scheduler = core.scheduler
    behind = [one for one in scheduler.running if one.num_computed < tokens]
    return not behind and not scheduler.waiting


def _step_until(core: EngineCore, reached: Callable[[], bool]) -> None:
    """Bounded: every step computes a token of a bounded number of them.

    Raises HeadraceError where a request fails: what would be timed is not what was asked.
    """
    while core.has_work and not reached():
        for output in core.step():
            if output.error is not None:
                raise HeadraceError(f"{output.request_id} failed: {output.error}")
