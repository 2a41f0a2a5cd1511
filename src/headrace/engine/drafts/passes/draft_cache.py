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

    def __init__(self, request: Request, drawn: Request, first: int = 0) -> None:
        self.request = request
        """With the draft's own tables and slot; its tokens end with the last drafts."""
        self.drawn = drawn
        """As which drafts are drawn: all tokens of the target's request, wherever the twin begins,
        since the random number of a place, penalties and the like depend on them; and the
        parameters of drafts."""
        self.first = first
        """The place in the target's tokens of its own first one."""
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
        """The target's tokens, from `first` on."""
        return self.request.token_ids[: self.num_known]

    def follow(self, token_ids: Sequence[int]) -> None:
        """Take over the tokens that the target's request has now."""
        mine, first = self.request.token_ids, self.first
        same, most = self.num_known, min(len(mine), len(token_ids) - first)
        while same < most and mine[same] == token_ids[first + same]:
            same += 1
        mine[same:] = token_ids[first + same :]
        self.num_known = len(mine)
        written = min(same, self.num_written, len(mine) - 1)
        self.num_written = self.request.num_computed = written


def _from_the_first(request: Request) -> int:
    del request
    return 0


class DraftCache:
    """The twins of requests, and their blocks."""

    def __init__(
        self,
        kv: KVCache,
        params_of: Callable[[SamplingParams], SamplingParams],
        *,
        skipped: int = 0,
        readable_from: Callable[[Request], int] = _from_the_first,
    ) -> None:
        """params_of: what drafts of a request with these parameters are drawn with. skipped: tokens
        in the beginning that are never read. readable_from: the first token of a request that can
        be read where those before it are not cached."""
        self.kv = kv
        self._params_of = params_of
        self.skipped = skipped
        self._readable_from = readable_from
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
        if twin is None:
            return len(request.token_ids) - max(self.skipped, self._readable_from(request))
        return len(request.token_ids) - twin.first - min(twin.num_known, twin.num_written)

    def num_at_hand(self, request: Request) -> int:
        """Tokens of a request that are computed."""
        twin = self._twins.get(request)
        return 0 if twin is None else min(twin.num_known, twin.num_written)

    def cover(
        self, request: Request, num_drafts: int, wanted: Collection[Request], start: int = 0
    ) -> Twin | None:
        """The twin of a request with blocks for all of its tokens and so many drafts; None where
        there are too few. wanted: whose blocks are not taken for it. start: what is not computed
        before this token is not to be: the twin begins there."""
        start = max(start, self._readable_from(request))
        twin = self._twins.pop(request, None)
        if twin is not None and twin.first + twin.num_written < start:
            self._twins[request] = twin
            self.release(request)
            twin = None  # the next one begins behind what can be read no more
        while True:
            found = self._covered(request, twin, num_drafts, start)
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
            first = twin.first
            assert request.token_ids[first : first + twin.num_known] == twin.token_ids
        slots = {twin.request.slot for twin in self._twins.values()}
        assert len(slots) == len(self._twins) == self._num_slots - len(self._free_slots)
        self.kv.check([twin.request for twin in self._twins.values()])

    def _covered(
        self, request: Request, twin: Twin | None, num_drafts: int, start: int
    ) -> Twin | None:
        if twin is None:
            return self._begun(request, num_drafts, start)
        twin.follow(request.token_ids)
        self.kv.commit(twin.request)
        return twin if self.kv.grow(twin.request, num_drafts) else None

    def _begun(self, request: Request, num_drafts: int, start: int) -> Twin | None:
        first = self.skipped
        own = self._own(request, first)
        match = self.kv.find(own, own.num_wanted + num_drafts)
        if first + match.num_tokens < start:  # what lies between is not to be had
            first = start
            own = self._own(request, first)
            match = self.kv.find(own, own.num_wanted + num_drafts)
        # What another twin computes next may never come: nobody waits for it.
        match = match._replace(waits_for=None)
        if self.kv.admit(own, match, own.num_wanted + num_drafts, 0) is None:
            return None
        own.slot = self._take_slot()
        twin = Twin(own, self._drawn(request, own.params), first)
        twin.num_known = own.num_wanted
        twin.num_written = own.num_computed
        return twin

    def _own(self, request: Request, first: int) -> Request:
        """The request of a twin, with the tokens from `first` on."""
        salt = request.cache_salt
        if first:
            # What a block holds depends on what was before: on one token, or on all of a text that
            # nobody else has here.
            begins = request.token_ids[0] if first == self.skipped else request.request_id
            salt = f"{salt}\0{first}\0{begins}"
        return Request(
            request_id=request.request_id,
            token_ids=request.token_ids[first:],
            num_prompt=max(0, request.num_prompt - first),
            params=self._params_of(request.params),
            max_len=request.max_len - first,
            end_ids=request.end_ids,
            cache_salt=salt,
            state=State.RUNNING,
        )

    def _drawn(self, request: Request, params: SamplingParams) -> Request:
        """The request as which drafts are drawn; its tokens are the target's own list."""
        return Request(
            request_id=request.request_id,
            token_ids=request.token_ids,
            num_prompt=request.num_prompt,
            params=params,
            max_len=request.max_len,
            end_ids=request.end_ids,
            seed=request.seed,
            state=State.RUNNING,
            thinking=request.thinking,
        )

    def _take_slot(self) -> int:
        if self._free_slots:
            return self._free_slots.pop()
        self._num_slots += 1
        return self._num_slots - 1
