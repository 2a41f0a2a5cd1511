"""Many steps of a scheduler at once, while each of them only draws a token of whoever runs.

For simulations, which have no tokens to wait for. The state afterwards is the one that as many
single steps give: every block is taken and shared in the same order.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.request import Request
from headrace.engine.scheduler import Scheduler


def steps_alike(scheduler: Scheduler) -> int:
    """How many of the next steps draw one token of each running request and change nothing else.

    Nobody enters, ends, is preempted or still reads a prompt in them. 0 where that is not sure: the
    next step is then to be planned and completed as usual.
    """
    running, kv = scheduler.running, scheduler.kv
    if not running or kv.has_windows or len(running) > scheduler.max_num_batched_tokens:
        return 0
    steps = min(one.max_len - len(one.token_ids) for one in running) - 1
    if steps < 1 or not all(map(_only_decodes, running)) or not scheduler.admits_nobody():
        return 0
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


def fast_forward(scheduler: Scheduler, steps: int, made_up: Callable[[Request], int]) -> None:
    """Do so many of the `steps_alike`.

    made_up: the token that a request draws in all of them. It ends nobody, and no prompt and no
    other request has it, so that no block of it is one that somebody waits for.
    """
    running, kv = list(scheduler.running), scheduler.kv
    size = kv.block_size
    lengths = [len(request.token_ids) for request in running]
    tokens = [made_up(request) for request in running]
    # What happens to blocks, in the order of single steps: in each those that lack one take it,
    # then those that have filled one share it.
    events: list[tuple[int, bool, int]] = []
    alone = running[0] if len(running) == 1 and not kv.prefix_caching else None
    if alone is not None:
        # Nobody else takes blocks between its own, and none is shared: they can come together.
        alone.token_ids += [tokens[0]] * (steps - 1)
        grown = kv.grow(alone)
        assert grown, "steps_alike counts the blocks"
    for rank, (request, length) in enumerate(zip(running, lengths, strict=True)):
        lacking = len(request.tables[0].blocks) * size + 1 - length
        events += [(step, False, rank) for step in range(lacking, steps, size)]
        if kv.prefix_caching:
            events += [(step, True, rank) for step in range(-length % size, steps, size)]
    events.sort()
    for step, is_full, rank in events:
        request, reached = running[rank], lengths[rank] + step
        request.token_ids += [tokens[rank]] * (reached - len(request.token_ids))
        if is_full:
            request.num_computed = reached
            kv.commit(request)
        else:
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
    return sum(
        max(0, -(-(len(request.token_ids) + steps - 1) // size) - len(request.tables[0].blocks))
        * kv.num_tables
        for request in running
    )
