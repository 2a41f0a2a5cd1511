"""The backends a model is run on."""

from __future__ import annotations

import pytest

from headrace.ops import make_ops
from headrace.ops.interface import Ops


@pytest.fixture
def reference() -> Ops:
    return make_ops("reference")


@pytest.fixture
def kernels() -> Ops:
    """The cpu backend, where it is built."""
    try:
        return make_ops("cpu", threads=2)
    except ImportError as error:
        pytest.skip(f"the cpu backend is not built here ({error}); pip install . builds it")


@pytest.fixture
def every_ops(reference: Ops) -> list[Ops]:
    """The backends there are, for tests whose other half is dear: the kernels where built."""
    try:
        return [reference, make_ops("cpu", threads=2)]
    except ImportError:
        return [reference]


@pytest.fixture(params=["reference", "cpu"])
def ops(request: pytest.FixtureRequest) -> Ops:
    """Each backend in turn; the kernels' own where they are built."""
    fixture = "kernels" if request.param == "cpu" else "reference"
    chosen: Ops = request.getfixturevalue(fixture)
    return chosen
