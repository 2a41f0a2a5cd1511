"""What tests of the scheduler look at: its plans, and prompts that share nothing."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.engine.core import EngineCore
from headrace.engine.request import Request
from headrace.engine.scheduling.plan import RowTokens, StepPlan


def request(core: EngineCore, name: str) -> Request:
    return core._requests[name]


def plans_of(core: EngineCore) -> list[StepPlan]:
    """Every plan the core's scheduler makes from now on."""
    plans: list[StepPlan] = []
    make = core.scheduler.schedule

    def schedule(now_s: float) -> StepPlan:
        plans.append(make(now_s))
        return plans[-1]

    core.scheduler.schedule = schedule  # type: ignore[method-assign]
    return plans


def prompt(length: int, start: int = 0) -> list[int]:
    """Prompts with different `start` share nothing."""
    return [(start * 11 + 5 * i + i // 7) % 40 for i in range(length)]


def names_of(plan: StepPlan) -> list[str]:
    return [row.request.request_id for row in plan.rows]


def sizes_of(plans: list[StepPlan]) -> list[list[tuple[str, int]]]:
    return [[(row.request.request_id, row.num_tokens) for row in plan.rows] for plan in plans]


def given(tokens: Iterable[int | None]) -> list[RowTokens]:
    """Of rows that each give a token, or None where none is due."""
    return [RowTokens() if token_id is None else RowTokens([token_id]) for token_id in tokens]
