"""K and V of a draft model: a pool of blocks of its own, in which each request has a twin.

A twin has the request's tokens, and behind them those that were drafted last. What the draft has of
it is found out when it is wanted:

    num_computed = min(tokens both have in common, tokens whose K and V were computed, all but one)

so that drafts which came are read already, those that did not are written over, and what the draft
has not seen at all (a prompt, what came while it was not used) is computed later, as much at a time
as there is room for. Blocks are shared by a prefix tree of their own, whose nodes hold what the
draft itself computed: that the target has a prefix in its own cache does not matter here. A twin
that is not wanted in a step may lose its blocks to one that is; nothing of the target is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from headrace.engine.kv.copies import Copy
from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request, State


class Twin:
    """A request as the draft has it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        """With the draft's own tables and slot; its tokens end with the last drafts."""
        self.num_known = 0
        """Of its tokens, those that the target's request has; drafts stand behind them."""
        self.num_written = 0
        """Of its tokens, those whose K and V are computed, drafts among them."""

    @property
    def drafts(self) -> list[int]:
        """The tokens that were drafted last."""
        return self.request.token_ids[self.num_known :]

    @property
    def token_ids(self) -> list[int]:
        """The target's tokens."""
        return self.request.token_ids[: self.num_known]

    def follow(self, token_ids: Sequence[int]) -> None:
        """Take over the tokens that the target's request has now."""
        mine = self.request.token_ids
        same, most = self.num_known, min(len(mine), len(token_ids))
        while same < most and mine[same] == token_ids[same]:
            same += 1
        mine[same:] = token_ids[same:]
        self.num_known = len(mine)
        written = min(same, self.num_written, len(mine) - 1)
        self.num_written = self.request.num_computed = written


class DraftCache:
    """The twins of requests, and their blocks."""

    def __init__(self, kv: KVCache, params_of: Callable[[SamplingParams], SamplingParams]) -> None:
        """params_of: what drafts of a request with these parameters are drawn with."""
        self.kv = kv
        self._params_of = params_of
        self._twins: dict[Request, Twin] = {}
        """Those with blocks, the one that was wanted last at the end."""
        self._free_slots: list[int] = []
        self._num_slots = 0

    def __contains__(self, request: Request) -> bool:
        """Whether a request has blocks."""
        return request in self._twins

    def lag(self, request: Request) -> int:
        """Tokens of a request that are to be computed, at most."""
        twin = self._twins.get(request)
        known = 0 if twin is None else min(twin.num_known, twin.num_written)
        return len(request.token_ids) - known

    def cover(self, request: Request, num_drafts: int, wanted: Collection[Request]) -> Twin | None:
        """The twin of a request with blocks for all of its tokens and so many drafts; None where
        there are too few. wanted: whose blocks are not taken for it."""
        twin = self._twins.pop(request, None)
        while True:
            found = self._covered(request, twin, num_drafts)
            if found is not None:
                self._twins[request] = found
                return found
            idle = next((other for other in self._twins if other not in wanted), None)
            if idle is None:
                if twin is not None:
                    self._twins[request] = twin
                return None
            self.release(idle)

    def take_copies(self) -> list[Copy]:
        """The copies to be made before anything else is computed."""
        return self.kv.take_copies()

    def release(self, request: Request, *, keep: bool = True) -> None:
        """Take a request's blocks back, if it has any. Computed ones stay cached; not `keep`: none
        of its own do."""
        twin = self._twins.pop(request, None)
        if twin is None:
            return
        if keep:
            twin.follow(request.token_ids)
            self.kv.commit(twin.request)
        self.kv.release(twin.request, keep=keep)
        self._free_slots.append(twin.request.slot)

    def check(self) -> None:
        """AssertionError where blocks do not add up; for tests."""
        for request, twin in self._twins.items():
            assert request.state is not State.FINISHED, "blocks of one that has ended"
            assert twin.request.num_computed <= twin.num_written
            assert request.token_ids[: twin.num_known] == twin.token_ids
        slots = {twin.request.slot for twin in self._twins.values()}
        assert len(slots) == len(self._twins) == self._num_slots - len(self._free_slots)
        self.kv.check([twin.request for twin in self._twins.values()])

    def _covered(self, request: Request, twin: Twin | None, num_drafts: int) -> Twin | None:
        if twin is None:
            return self._begun(request, num_drafts)
        twin.follow(request.token_ids)
        self.kv.commit(twin.request)
        return twin if self.kv.grow(twin.request, num_drafts) else None

    def _begun(self, request: Request, num_drafts: int) -> Twin | None:
        own = Request(
            request_id=request.request_id,
            token_ids=list(request.token_ids),
            num_prompt=request.num_prompt,
            params=self._params_of(request.params),
            max_len=request.max_len,
            end_ids=request.end_ids,
            cache_salt=request.cache_salt,
            seed=request.seed,
            state=State.RUNNING,
            thinking=request.thinking,
        )
        match = self.kv.find(own, own.num_wanted + num_drafts)
        # What another twin computes next may never come: nobody waits for it.
        match = match._replace(waits_for=None)
        if self.kv.admit(own, match, own.num_wanted + num_drafts, 0) is None:
            return None
        own.slot = self._take_slot()
        twin = Twin(own)
        twin.num_known = own.num_wanted
        twin.num_written = own.num_computed
        return twin

    def _take_slot(self) -> int:
        if self._free_slots:
            return self._free_slots.pop()
        self._num_slots += 1
        return self._num_slots - 1
