"""Many steps of a scheduler at once, while each of them only draws a token of whoever runs.

For simulations, which have no tokens to wait for. The state afterwards is the one that as many
single steps give: every block is taken, shared and let go of (where layers have a window) in the
same order. When that happens follows from the lengths alone, so the steps between are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.request import Request
from headrace.engine.scheduling.scheduler import Scheduler


def steps_alike(scheduler: Scheduler) -> int:
    """How many of the next steps draw one token of each running request and change nothing else.

    Nobody enters, ends, is preempted or still reads a prompt in them. 0 where that is not sure: the
    next step is then to be planned and completed as usual.
    """
    running, kv = scheduler.running, scheduler.kv
    if scheduler.drafter is not None:
        return 0  # how many tokens each request draws is known only when it has drawn them
    if not running or len(running) > scheduler.max_num_batched_tokens:
        return 0
    steps = min(each.max_len - len(each.token_ids) for each in running) - 1
    if steps < 1 or not all(map(_only_decodes, running)) or not scheduler.admits_nobody():
        return 0
    missing = scheduler.missing_blocks() if kv.has_windows else 0
    if missing:
        steps = steps_until_released(scheduler, missing, steps)
    # What windows let go of meanwhile is not counted: fewer steps are sure then, and no others.
    available = kv.num_free + kv.num_cached
    if _blocks_taken(running, kv, steps) <= available:
        return steps
    enough, too_many = 0, steps
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        if _blocks_taken(running, kv, middle) <= available:
            enough = middle
        else:
            too_many = middle
    return enough


def steps_until_released(scheduler: Scheduler, num_blocks: int, most: int) -> int:
    """How many of `most` steps that only decode end before windows may have let go of so many
    blocks that somebody who waits for them is let in.
    """
    releases = [
        _Releases.of(request, number, scheduler.kv)
        for request in scheduler.running
        for number, group in enumerate(scheduler.kv.groups)
        if group.window
    ]

    def released(steps: int) -> int:
        return sum(release.blocks_in(steps) for release in releases)

    # The last of the steps may release them: they are of use from the next one on.
    if released(most - 1) < num_blocks:
        return most
    too_few, enough = 0, most - 1
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if released(middle) < num_blocks:
            too_few = middle
        else:
            enough = middle
    return enough


def fast_forward(scheduler: Scheduler, steps: int, made_up: Callable[[Request], int]) -> None:
    """Do so many of the `steps_alike`.

    made_up: the token that a request draws in all of them. It ends nobody, and no prompt and no
    other request has it, so that no block of it is one that somebody waits for.
    """
    running, kv = list(scheduler.running), scheduler.kv
    size = kv.block_size
    windows = {group.window for group in kv.groups if group.window}
    lengths = [len(request.token_ids) for request in running]
    tokens = [made_up(request) for request in running]
    # What happens to blocks, in the order of single steps: in each those that lack one take it,
    # then those that have filled one share it, and those whose window has left one let go of it.
    events: list[tuple[int, bool, int]] = []
    only_grows = not kv.prefix_caching and not kv.has_windows
    alone = running[0] if len(running) == 1 and only_grows else None
    if alone is not None:
        # Nobody else takes blocks between its own, and none is shared: they can come together.
        alone.token_ids += [tokens[0]] * (steps - 1)
        grown = kv.grow(alone)
        assert grown, "steps_alike counts the blocks"
    for rank, (request, length) in enumerate(zip(running, lengths, strict=True)):
        lacking = request.num_covered + 1 - length
        events += [(step, False, rank) for step in range(lacking, steps, size)]
        # Tokens computed, of a block that is full or of those before a window.
        phases = {(window - 1 - length) % size for window in windows}
        if kv.prefix_caching:
            phases.add(-length % size)
        for phase in phases:
            events += [(step, True, rank) for step in range(phase, steps, size)]
    events.sort()
    for step, is_computed, rank in events:
        request, reached = running[rank], lengths[rank] + step
        request.token_ids += [tokens[rank]] * (reached - len(request.token_ids))
        if is_computed:
            request.num_computed = reached
            kv.commit(request)
        else:
            request.num_computed = reached - 1
            grown = kv.grow(request)
            assert grown, "steps_alike counts the blocks"
    for request, length, token in zip(running, lengths, tokens, strict=True):
        request.num_computed = length + steps - 1
        request.token_ids += [token] * (length + steps - len(request.token_ids))
    totals = scheduler.totals
    totals.steps += steps
    totals.computed_tokens += steps * len(running)
    totals.generation_tokens += steps * len(running)


def _only_decodes(request: Request) -> bool:
    return (
        len(request.token_ids) - request.num_computed == 1
        and request.first_token_s is not None
        and request.promise is None
        and not request.unscored
    )


def _blocks_taken(running: list[Request], kv: KVCache, steps: int) -> int:
    """By all of them in so many steps, the last token of which is drawn and not yet computed."""
    size = kv.block_size
    taken = 0
    for request in running:
        entries = -(-(len(request.token_ids) + steps - 1) // size)
        for group, table in zip(kv.groups, request.tables, strict=True):
            taken += max(0, entries - len(table.blocks)) * group.num_tables
    return taken


class _Releases(NamedTuple):
    """The blocks that a request lets go of in a group with a window, at the earliest."""

    first_step: int
    """The step at whose end the first are let go of; then every `block_size` steps as many."""
    block_size: int
    num_blocks: int

    @classmethod
    def of(cls, request: Request, number: int, kv: KVCache) -> _Releases:
        size, group = kv.block_size, kv.groups[number]
        dropped = request.tables[number].num_dropped
        computed = (dropped + 1) * size + group.window - 1
        if kv.prefix_caching:
            # The last of the shared blocks is always held.
            computed = max(computed, (dropped + 2) * size)
        return cls(max(0, computed - len(request.token_ids)), size, group.num_tables)

    def blocks_in(self, steps: int) -> int:
        """At most, in so many steps."""
        if steps <= self.first_step:
            return 0
        return (1 + (steps - 1 - self.first_step) // self.block_size) * self.num_blocks
