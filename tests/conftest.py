"""Fixtures every test may use, the plugins of tiers and summary, and `--no-skips`."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.computations import MARK as COMPUTES
from tests.cpu_guard import LIMIT_S, CpuGuard
from tests.proofs import MARK
from tests.run_summary import RunSummary
from tests.tiers import MARKERS, SMOKE, Tiers

# Torch would start as many threads as there are cores in each of the processes that the tests are
# spread over, and its threads spin while they wait: three quarters of the time of its tests.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What an example takes, and drawing it, says nothing on a machine that is busy with others.
hypothesis.settings.register_profile(
    "headrace", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("headrace")

# The files that take longest; each runs in one process, which the others should not wait for.
START_FIRST = (
    "tests/weights/compress/test_llm_compressor.py",
    "tests/engine/test_torch_backend.py",
    "tests/clients/test_tours.py",
    "tests/training/test_family.py",
    "tests/engine/test_exactness.py",
    "tests/models/test_parity.py",
    "tests/system/test_limited_memory.py",
    "tests/ops/torch/test_kernels.py",
    "tests/system/test_exact_under_load.py",
    "tests/gateway/admin/browser/test_page.py",
    "tests/engine/drafts/test_switching.py",
    "tests/structured/tools/test_tool_grammar.py",
    "tests/server/browser/test_chat_playgrounds.py",
    "tests/tools/test_count_models.py",
    "tests/models/test_containers.py",
    "tests/gateway/cassettes/test_every_cut.py",
    "tests/training/test_train.py",
    "tests/system/test_soak.py",
)

REPOSITORY = Path(__file__).resolve().parent.parent


def _assets() -> Path:
    named = os.environ.get("HEADRACE_ASSETS")
    return Path(named) if named else REPOSITORY.parent / "shared" / "assets"


def pytest_addoption(parser: pytest.Parser) -> None:
    """--tier, --cpu-limit and --no-skips."""
    parser.addoption(
        "--tier",
        choices=("quick", "rest", "all"),
        default="all",
        help="quick: unmarked tests and smoke tests; rest: what quick leaves out (default: all)",
    )
    parser.addoption(
        "--cpu-limit",
        type=float,
        default=LIMIT_S,
        metavar="SECONDS",
        help=f"CPU seconds that the call of an unmarked test may take (default: {LIMIT_S}; 0: any)",
    )
    parser.addoption(
        "--no-skips",
        action="store_true",
        help="fail where a test would be skipped, but for the shared assets on a machine without",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first, which xdist keeps with --no-loadscope-reorder."""
    ranks = {REPOSITORY / path: rank for rank, path in enumerate(START_FIRST)}
    if missing := sorted(str(path) for path in ranks if not path.is_file()):
        raise pytest.UsageError(f"START_FIRST names what is not there: {', '.join(missing)}")
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


def pytest_configure(config: pytest.Config) -> None:
    """Register markers and plugins, and hear SIGINT.

    A shell's background jobs inherit SIGINT ignored and Python leaves it so; tests of Ctrl-C, in
    what they start too, would wait for ever.
    """
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    config.addinivalue_line("markers", f"{SMOKE}: the test of its marker that `make test` runs too")
    config.addinivalue_line(
        "markers", f"{MARK}(column, against): what a test shows of kinds of weights"
    )
    config.addinivalue_line(
        "markers", f"{COMPUTES}(subject, backend, measure): what a test shows of a backend's kinds"
    )
    config.pluginmanager.register(Tiers(config), "headrace-tiers")
    config.pluginmanager.register(CpuGuard(config.getoption("--cpu-limit")), "headrace-cpu-guard")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(RunSummary(), "headrace-summary")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Take what collecting made out of the collector's sight: it lives until the end anyway.

    And let Hypothesis make what it makes once in a clone (a table of characters, the constants in
    our sources): a second or more that would be charged to the first test that draws a text.
    """
    _draw_a_text()
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After the last test of a module do the same with what it left: parsed sources, recordings.

    Otherwise every full collection of a later test walks through all of it, a second at the end.
    """
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    """Give the collector back what it was kept from, for its last run when Python ends.

    The traceback of a failed test holds the test's objects in a cycle. Native ones that are never
    collected are reported as leaked.
    """
    gc.unfreeze()


@hypothesis.settings(max_examples=10, database=None)
@hypothesis.given(hypothesis.strategies.text())
def _draw_a_text(text: str) -> None:
    assert isinstance(text, str)


def _forbid_skip(report: Any, config: pytest.Config) -> None:
    if not report.skipped or not config.getoption("--no-skips"):
        return
    reason = report.longrepr
    text = reason[2] if isinstance(reason, tuple) else str(reason)
    if "shared test assets" not in text or _assets().is_dir():
        report.outcome = "failed"
        report.longrepr = f"--no-skips: {text}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """A skipped test becomes a failed one that tells what was missing."""
    report = yield
    _forbid_skip(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """The same for a module that is skipped as a whole."""
    report = yield
    _forbid_skip(report, collector.config)
    return report


@pytest.fixture(scope="session")
def shared_assets() -> Path:
    """Folder of real models, tokenizers and traces; a test that needs it skips where it is absent.

    HEADRACE_ASSETS names it; otherwise `../shared/assets` beside the repository is looked at.
    """
    folder = _assets()
    if not folder.is_dir():
        pytest.skip(f"needs the shared test assets (HEADRACE_ASSETS, looked at {folder})")
    return folder
