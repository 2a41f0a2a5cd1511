"""Scheduler and KV cache under random submit, cancel and step: blocks add up, answers are right."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from headrace.engine.messages import Submit
from headrace.engine.request import RESERVE_AFTER_PREEMPTIONS
from headrace.engine.scheduling.step_rows import PROMPT_LOGIT_ROWS
from tests.engine.expected import answer, prompt_scores
from tests.engine.mock import NUM_TOKENS, Collected, MockModel, collect, drain, make_core, submit

STEMS = [[(7 * stem + 3 * i) % NUM_TOKENS for i in range(80)] for stem in range(3)]
"""Beginnings that prompts share; the blocks of the mock hold 16 tokens."""


class Engine(RuleBasedStateMachine):
    """An engine whose pool is so small that requests evict, preempt and wait for one another."""

    requests = Bundle("requests")

    @initialize(
        num_entries=st.integers(4, 16),
        budget=st.sampled_from([1, 5, 16, 64]),
        max_num_seqs=st.integers(1, 8),
        caching=st.sampled_from([True, True, True, False]),
        windows=st.one_of(
            st.just((0,)),
            st.sampled_from([2, 5, 16, 17, 40, 70]).map(lambda window: (window,)),
            # Two groups; of three layers the second group has two tables.
            st.sampled_from([(0, 5), (17, 0), (40, 0, 40), (0, 70, 0), (5, 40), (16, 0, 40)]),
        ),
        policy=st.sampled_from(["fcfs", "priority"]),
    )
    def start(
        self,
        num_entries: int,
        budget: int,
        max_num_seqs: int,
        caching: bool,
        windows: tuple[int, ...],
        policy: str,
    ) -> None:
        self.policy = policy
        self.model = MockModel(windows=windows)
        self.budget = budget
        self.max_num_seqs = max_num_seqs
        self.core = make_core(
            self.model,
            num_gpu_blocks_override=num_entries * self.model.cache_layout.num_tables,
            max_num_batched_tokens=budget,
            max_num_seqs=max_num_seqs,
            enable_prefix_caching=caching,
            scheduling_policy=policy,
        )
        self.submitted: dict[str, Submit] = {}
        self.cancelled: set[str] = set()
        self.results: dict[str, Collected] = {}

    @rule(
        target=requests,
        stem=st.integers(0, len(STEMS) - 1),
        shared=st.one_of(st.integers(0, 20), st.integers(0, 80)),
        tail=st.lists(st.integers(0, NUM_TOKENS - 1), max_size=20),
        max_tokens=st.one_of(st.just(0), st.integers(1, 60)),
        temperature=st.sampled_from([0.0, 1.0]),
        salt=st.sampled_from(["", "", "other"]),
        copies=st.integers(1, 3),
        priority=st.integers(-2, 2),
        timeout_s=st.sampled_from([None, None, None, None, None, 0.002, 0.05, 0.3]),
        prompt_logprobs=st.sampled_from([None, None, 0, 2]),
    )
    def add(
        self,
        stem: int,
        shared: int,
        tail: list[int],
        max_tokens: int,
        temperature: float,
        salt: str,
        copies: int,
        priority: int,
        timeout_s: float | None,
        prompt_logprobs: int | None,
    ) -> object:
        names = []
        for _ in range(copies):
            longest = self.core.limits.max_model_len
            prompt = (STEMS[stem][:shared] + tail or [1])[: longest - 1]
            room = longest - len(prompt)
            name = f"r{len(self.submitted)}"
            one = submit(
                name,
                prompt,
                cache_salt=salt,
                max_tokens=min(max_tokens, room),
                temperature=temperature,
                seed=len(self.submitted) % 3,
                ignore_eos=len(self.submitted) % 4 != 0,
                priority=priority if self.policy == "priority" else 0,
                timeout_s=timeout_s,
                prompt_logprobs=prompt_logprobs,
            )
            self.core.submit(one)
            self.submitted[name] = one
            names.append(name)
        return multiple(*names)

    @rule(name=consumes(requests))
    def cancel(self, name: str) -> None:
        self.core.cancel(name)
        self.core.cancel(name)
        self.cancelled.add(name)

    @rule()
    def reset_prefix_cache(self) -> None:
        cached = self.core.stats().blocks_cached
        assert self.core.reset_prefix_cache() == cached
        assert self.core.stats().blocks_cached == 0

    @rule(times=st.integers(1, 12))
    def step(self, times: int) -> None:
        for _ in range(times):
            before = len(self.model.computed)
            collect(self.results, self.core.step())
            self.core.check()
            assert len(self.model.computed) - before <= self.budget
            running = self.core.scheduler.running
            assert len(running) <= self.max_num_seqs
            half = Counter(each.priority for each in running if each.lag > 1 and not each.unscored)
            assert all(count == 1 for count in half.values()), "two of a rank are half computed"
            if not any(self.model.windows):
                assert all(each.num_preemptions <= RESERVE_AFTER_PREEMPTIONS for each in running)
            if len(self.model.computed) > before:
                assert len(self.model.batches[-1].logit_rows) <= PROMPT_LOGIT_ROWS + len(running)

    @invariant()
    def blocks_add_up(self) -> None:
        self.core.check()
        stats = self.core.stats()
        assert stats.blocks_free + stats.blocks_cached + stats.blocks_owned == stats.blocks_total

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        # Every token of every request alone, a step each, and recomputing after preemptions.
        tokens = sum(len(each.prompt_token_ids) + 60 for each in self.submitted.values())
        drain(self.core, self.results, max_steps=200 + 8 * tokens)
        assert self.core.stats().blocks_owned == 0
        for name, each in self.submitted.items():
            expected, reason = answer(
                each, max_len=self.core.limits.max_model_len, windows=self.model.windows
            )
            got = self.results[name]
            if got.finish_reason in ("abort", "timeout"):
                if got.finish_reason == "abort":
                    assert name in self.cancelled
                else:
                    assert each.timeout_s is not None
                assert got.token_ids == expected[: len(got.token_ids)]
            else:
                assert (got.token_ids, got.finish_reason) == (expected, reason)
                assert all(output.error is None for output in got.outputs)
            if each.params.prompt_logprobs is None or not got.outputs[0].queue_s:
                assert got.prompt_logprobs is None
            else:
                assert got.prompt_logprobs == prompt_scores(each, windows=self.model.windows)


patient = partial(
    settings,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class TestEngine(Engine.TestCase):  # type: ignore[misc]
    settings = patient(max_examples=8, stateful_step_count=15)


@pytest.mark.load
class TestEngineThoroughly(Engine.TestCase):  # type: ignore[misc]
    settings = patient(max_examples=60, stateful_step_count=30)
