"""Lines of the ledger on their way to the parent, which alone writes them.

A line is handed to the system at the end of the turn of the loop in which its request ended, so a
worker that is killed loses hardly any; what one process writes is never locked by another. A line
that is under way when the parent itself is killed is lost.
"""

from __future__ import annotations

import logging

from headrace.gateway.serving.entry import Entry
from headrace.gateway.workers import messages
from headrace.gateway.workers.link import Link

logger = logging.getLogger(__name__)


class LinkedLedger:
    """Of one worker. lost: lines there was no room for, as the parent did not read."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.lost = 0

    def take(self, entry: Entry) -> None:
        """Send it. Never waits and never raises."""
        if self._link.tell(messages.Lines((entry,))):
            return
        if self.lost == 0:
            logger.error(
                "the process that writes the ledger reads no more; requests are answered, and "
                "missing in it (/health counts them)"
            )
        self.lost += 1
