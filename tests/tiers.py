"""Tiers of tests: what a person runs in five minutes, and all that this leaves out.

`--tier quick` is every unmarked test and one smoke test of each marker below; `--tier rest` is what
quick leaves out; `--tier all`, the default, is both. A test belongs to the quick tier by being
cheap, and a guard keeps that true by itself: an unmarked test whose own call takes more than
half a second of CPU fails (see tests/cpu_guard.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

MARKERS = {
    "process": "starts processes: a server, a gateway, workers, an engine, a command",
    "matrix": "runs kernels, codecs or families over many levels, shapes and cases",
    "every_cut": "cuts a stream at every byte",
    "browser": "drives a browser",
    "clients": "drives real client packages in an environment of their own",
    "soak": "keeps a load running to see what stays flat",
    "torch": "needs PyTorch or what imports it",
    "load": "puts load on a server or an engine",
    "long": "computes for long in the test's own process",
}
SMOKE = "smoke"
# Of the properties of a report: the tier markers of its test, with spaces between them.
MARKS = "marks"

# The part of a module that says it is marked as a whole, read without importing it.
_MODULE_MARK = re.compile(r"^pytestmark = (?P<marks>(?:.|\n )*)", re.MULTILINE)


def tier_marks(item: pytest.Item) -> set[str]:
    """The markers of an item that keep it out of the quick tier."""
    return {mark.name for mark in item.iter_markers() if mark.name in MARKERS}


def is_quick(item: pytest.Item) -> bool:
    """Whether an item is unmarked, or the smoke test of its marker."""
    return not tier_marks(item) or item.get_closest_marker(SMOKE) is not None


def marked_as_a_whole(source: str) -> bool:
    """Whether a module's `pytestmark` names a tier marker and none of its tests is a smoke test."""
    found = _MODULE_MARK.search(source)
    if found is None or f"mark.{SMOKE}" in source:
        return False
    return any(f"mark.{name}" in found["marks"] for name in MARKERS)


def names_a_marker(source: str) -> bool:
    """Whether a module's text has a tier marker; without one, all of its tests are quick."""
    return any(f"mark.{name}" in source for name in MARKERS)


class Tiers:
    """The pytest plugin that selects a tier."""

    def __init__(self, config: pytest.Config) -> None:
        self._tier: str = config.getoption("--tier")

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave modules unimported whose tests are all outside the tier."""
        if self._tier == "all" or not collection_path.name.startswith("test_"):
            return None
        if collection_path.suffix != ".py" or not collection_path.is_file():
            return None
        source = collection_path.read_text(encoding="utf-8")
        outside = marked_as_a_whole(source) if self._tier == "quick" else not names_a_marker(source)
        return outside or None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Deselect what belongs to the other tier; a smoke test without a marker is an error.

        So is a marker that comes to a test from another module alone: `--tier rest`, which goes by
        the text of a module, would leave it out.
        """
        marked: dict[Path, str] = {}
        for item in items:
            item.user_properties.append((MARKS, " ".join(sorted(tier_marks(item)))))
            if tier_marks(item):
                marked[item.path] = item.nodeid
        if hidden := [
            nodeid
            for path, nodeid in marked.items()
            if not names_a_marker(path.read_text(encoding="utf-8"))
        ]:
            raise pytest.UsageError(f"modules that name no marker of their tests: {hidden}")
        if stray := [item.nodeid for item in items if is_stray_smoke(item)]:
            raise pytest.UsageError(f"smoke tests without one of {sorted(MARKERS)}: {stray}")
        if self._tier != "quick" and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            have_smoke = smoke_tests(items)
            used = {mark for item in items for mark in tier_marks(item)}
            if without := sorted(used - have_smoke.keys()):
                raise pytest.UsageError(f"markers without a smoke test: {without}")
        if self._tier == "all":
            return
        wanted = self._tier == "quick"
        selected = [item for item in items if is_quick(item) is wanted]
        if deselected := [item for item in items if is_quick(item) is not wanted]:
            config.hook.pytest_deselected(items=deselected)
            items[:] = selected


def is_stray_smoke(item: pytest.Item) -> bool:
    """Whether an item is called a smoke test of nothing."""
    return item.get_closest_marker(SMOKE) is not None and not tier_marks(item)


def smoke_tests(items: Iterable[pytest.Item]) -> Counter[str]:
    """How many smoke tests each marker has among items."""
    return Counter(
        mark
        for item in items
        if item.get_closest_marker(SMOKE) is not None
        for mark in tier_marks(item)
    )
