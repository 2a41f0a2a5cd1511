"""The tables of docs/gpu.md are what tests show, and have no gap that they could not have."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from headrace.ops.kv import KV_CODECS
from headrace.weights.codecs import CODECS, F8_E4M3, OF_FOLDERS

pytest.importorskip("torch", reason="tests of torch are read")
pytest.importorskip("triton", reason="tests of kernels in Triton are read")

from tests.computations import Computation, computations, computations_of
from tools import backend_kinds

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def found() -> list[Computation]:
    return list(computations())


def test_the_page_has_the_tables_of_the_tests(found: list[Computation]) -> None:
    text = backend_kinds.PAGE.read_text(encoding="utf-8")
    made = backend_kinds.page_with(text, backend_kinds.tables(found))
    assert text == made, "docs/gpu.md is old: python -m tools.backend_kinds"


def test_every_kind_is_computed_by_every_backend(found: list[Computation]) -> None:
    shown = {(one.subject, one.backend, one.kind) for one in found}
    for backend in ("reference", "cpu", "torch"):
        for kind in (*CODECS, F8_E4M3.name, *OF_FOLDERS):
            assert ("products", backend, kind) in shown
        for kind in KV_CODECS:
            assert ("K and V", backend, kind) in shown
    from headrace.ops.torch.triton.kinds import KINDS

    of_kernels = {
        kind for subject, backend, kind in shown if (subject, backend) == ("experts", "triton")
    }
    assert of_kernels == set(KINDS)


def test_a_mark_that_means_nothing_is_refused() -> None:
    def test_it() -> None:
        """Marked below."""

    module = ModuleType("tests.marked")
    test_it.__module__ = module.__name__
    vars(module)["test_it"] = pytest.mark.computes("products", "cpu", "bits", kinds=("A",))(test_it)
    place = Path("tests/test_marked.py")
    (one,) = computations_of(module, place)
    assert one == ("products", "cpu", "bits", "A", "tests/test_marked.py::test_it")
    assert "| Q8_0 | — |" in backend_kinds.tables([one])
    del vars(test_it)["pytestmark"]
    vars(module)["test_it"] = pytest.mark.computes("products", "gpu", "bits", kinds=("A",))(test_it)
    with pytest.raises(ValueError, match="test_it computes 'gpu', none of"):
        list(computations_of(module, place))
