"""How many requests a replica decodes together where nobody says: as a service would be run."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.catalog import Catalog
from headrace.plan.machine.hardware_memory import constant_most
from headrace.plan.speed.replica import Replica

_TPOT_AIM = "slo-chat-itl"
_MOST_AT_ONCE = ("vllm", "max-num-seqs")


@dataclass(frozen=True)
class DefaultBatch:
    """The batch that is planned with by default, and why."""

    batch: int
    """The batch, at least 1."""
    said: str
    """Why it is that one, with its TPOT and what ended it."""


def default_batch(
    catalog: Catalog, replica: Replica, prompt_tokens: int, output_tokens: int
) -> DefaultBatch:
    """The largest batch that fits and keeps the TPOT that chat aims at; 1 where none does.

    The aim is the catalog's constant slo-chat-itl. No more are taken than a server lets in unless
    told otherwise (max-num-seqs of the vllm row).
    """
    aim_s = constant_most(catalog, _TPOT_AIM)
    whole, middle = prompt_tokens + output_tokens, prompt_tokens + output_tokens // 2
    fits = replica.most_batch(whole)
    runtime, figure = _MOST_AT_ONCE
    let_in = int(catalog.runtimes[runtime].figures[figure].high or 1)

    def tpot_s(batch: int) -> float:
        return replica.model.decode_step(batch, middle).seconds

    most = max(1, min(fits, let_in))
    low, high = 1, most + 1
    while high - low > 1:  # a step only takes longer with more requests
        batch = (low + high) // 2
        low, high = (batch, high) if tpot_s(batch) <= aim_s else (low, batch)
    took = f"TPOT {tpot_s(low) * 1e3:.3g} ms"
    aim = f"{aim_s * 1e3:g} ms TPOT target of chat ({_TPOT_AIM})"
    if tpot_s(low) > aim_s:
        ended = f"{took} is above the {aim} at every batch"
    elif low < most:
        ended = f"the largest that keeps TPOT within the {aim}; {took}"
    elif fits <= let_in:
        ended = f"the largest that fits; {took}, within the {aim}"
    else:
        ended = f"the default limit of {runtime}; {took}, within the {aim}"
    return DefaultBatch(low, f"batch {low:,}: {ended}; choose another with --batch")
