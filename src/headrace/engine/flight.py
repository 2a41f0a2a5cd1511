"""Steps in flight: a step is planned and begun while a device computes the one before it.

The host plans step n + 1 as if each request of step n went on, and begins it; then it reads what
step n gave. A token that the host does not know yet is read on the device, where step n left it.
What may end a request is therefore seen a step late, but for its length: its row of step n + 1 is
computed in vain, writes behind all that anybody reads, and is dropped. Blocks that are given back
meanwhile are written by later steps alone, and a device computes steps in their order.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.config.settings import EngineConfig
from headrace.engine.drafts.speculative_config import read_speculative_config
from headrace.engine.runner import StepHandle
from headrace.engine.scheduling.plan import StepPlan
from headrace.errors import ConfigError


class Flight(NamedTuple):
    """A step that was begun and whose results nobody has read."""

    plan: StepPlan
    step: StepHandle
    begun_s: float
    """When it was planned."""


def plans_ahead(config: EngineConfig, *, is_asynchronous: bool) -> bool:
    """Whether steps are planned ahead. is_asynchronous: of the backend.

    Raises ConfigError where the settings ask for that and for drafts, which follow from tokens.
    """
    sources = config.speculative_config
    drafts = sources is not None and read_speculative_config(sources).sources != "none"
    if config.async_scheduling and drafts:
        raise ConfigError(
            "--async-scheduling plans a step before the tokens of the last one are known, and "
            f"--speculative-config is {sources!r}, which drafts from them; omit one of them"
        )
    return is_asynchronous and not drafts and config.async_scheduling is not False
