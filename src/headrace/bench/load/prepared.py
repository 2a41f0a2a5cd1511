"""Requests made before the run, so that no JSON is written while others are timed."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.bench.client.endpoints import Endpoint, HttpRequest, build_request
from headrace.bench.load.conversations import Conversation, waits_for_answers
from headrace.bench.workload import WorkItem
from headrace.errors import ConfigError

# Of one client; what is beyond it is made when it is sent.
PREPARED_BYTES = 256 * 2**20


class Prepared:
    """Requests of an endpoint, made before they are sent. A turn that holds answers to earlier ones
    is made when it is sent."""

    def __init__(self, endpoint: Endpoint, most_bytes: int = PREPARED_BYTES) -> None:
        self._endpoint = endpoint
        self._left_bytes = most_bytes
        # By identity: items are compared by their contents, which may be long. Kept beside the
        # request, so that no other item gets the number.
        self._made: dict[int, tuple[WorkItem, HttpRequest]] = {}

    def make(self, conversations: Iterable[Conversation]) -> None:
        """As many as there is room for; one that cannot be made says so when it is sent."""
        for item in (item for turns in conversations for item in turns):
            if id(item) in self._made or waits_for_answers(item):
                continue
            try:
                request = build_request(self._endpoint, item.prompt)
            except ConfigError:
                continue
            self._left_bytes -= len(request.data)
            if self._left_bytes < 0:
                return
            self._made[id(item)] = (item, request)

    def of(self, item: WorkItem) -> HttpRequest:
        """The request of an item. Raises ConfigError for a prompt that the endpoint cannot take."""
        found = self._made.get(id(item))
        return build_request(self._endpoint, item.prompt) if found is None else found[1]
