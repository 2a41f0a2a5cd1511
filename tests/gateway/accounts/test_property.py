"""Random requests, endings and times over a hierarchy, against the model of machine.py."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.gateway.accounts.machine import AccountsMachine

pytestmark = pytest.mark.long

TestMemoryCounters = AccountsMachine.TestCase
TestMemoryCounters.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
