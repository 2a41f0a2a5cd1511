"""Fixtures of the tests of sources and pages."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.docs.words import parsed_sources


@pytest.fixture(scope="session")
def sources() -> Mapping[Path, ast.Module]:
    """Every source file of headrace, parsed once."""
    return parsed_sources()
