"""What a worker reports about all workers: the parent's view, or its own if that is silent."""

from __future__ import annotations

from headrace.gateway.accounts.errors import StoresDownError
from headrace.gateway.telemetry.standing import Standing
from headrace.gateway.telemetry.telemetry import Telemetry
from headrace.gateway.workers import messages
from headrace.gateway.workers.link import Link, LinkLostError

# The parent first queries every worker, which takes a second if one of them hangs.
_TIMEOUT_S = 3.0


class FromParent:
    """An Everywhere that asks the parent."""

    def __init__(self, link: Link, telemetry: Telemetry) -> None:
        self._link = link
        self._telemetry = telemetry

    async def health(self) -> tuple[Standing, dict[str, object]]:
        """See Everywhere."""
        try:
            answer = await self._link.ask(messages.AskHealth(), _TIMEOUT_S)
        except LinkLostError as error:
            return self._telemetry.standing(), {"workers": f"of this worker alone: {error}"}
        assert isinstance(answer, messages.Health)
        return answer.standing, answer.parts

    async def metrics(self) -> tuple[str, bytes]:
        """See Everywhere. Raises StoresDownError: figures of this worker alone would make
        counters go backwards."""
        try:
            answer = await self._link.ask(messages.AskMetrics(), _TIMEOUT_S)
        except LinkLostError as error:
            raise StoresDownError(
                f"the figures of all workers cannot be added up: {error}", retry_after_s=1.0
            ) from error
        assert isinstance(answer, messages.Metrics)
        return answer.kind, answer.text
