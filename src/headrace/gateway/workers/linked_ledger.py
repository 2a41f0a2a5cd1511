"""Ledger lines on their way to the parent, which alone writes them.

A line is sent at the end of the loop's turn in which its request ended, so that a worker that is
killed loses hardly any, and a single writer never meets a lock. A line under way when the parent
itself is killed is lost.
"""

from __future__ import annotations

import logging

from headrace.gateway.serving.entry import Entry
from headrace.gateway.workers import messages
from headrace.gateway.workers.link import Link

logger = logging.getLogger(__name__)


class LinkedLedger:
    """The ledger of one worker. `lost` counts lines that did not fit while the parent was busy."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.lost = 0

    def take(self, entry: Entry) -> None:
        """Send a line. Never waits and never raises."""
        if self._link.tell(messages.Lines((entry,))):
            return
        if self.lost == 0:
            logger.error(
                "the process that writes the ledger has stopped reading; requests are answered, "
                "but missing from it (/health counts them)"
            )
        self.lost += 1
