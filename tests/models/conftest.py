"""The backends a model is run on."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.ops import make_ops
from headrace.ops.interface import Ops


@pytest.fixture
def reference() -> Ops:
    return make_ops("reference")


@pytest.fixture(params=["reference", "cpu"])
def ops(request: Any) -> Ops:
    """Each backend in turn; the kernels' own where they are built."""
    if request.param == "cpu":
        try:
            return make_ops("cpu", threads=2)
        except ImportError as error:
            pytest.skip(f"the cpu backend is not built here ({error}); pip install . builds it")
    return make_ops("reference")
