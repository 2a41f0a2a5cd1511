"""The server that the tours of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.conftest import RunningServer, start_server, stop_server


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """The model that ships."""
    running = start_server(None)
    yield running
    stop_server(running)
