"""The tiers: every test is in exactly one, and an unmarked test that is dear fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cpu_guard import CpuGuard, cpu_s, descendants_cpu_s
from tests.run_summary import RunSummary
from tests.tiers import MARKERS, SMOKE, Tiers, marked_as_a_whole
from tests.waiting import children

SUITE = """
import pytest

def test_plain(): pass

@pytest.mark.process
def test_dear(): pass

@pytest.mark.process
@pytest.mark.smoke
def test_smoke(): pass
"""

WHOLE = """
import pytest

pytestmark = [
    pytest.mark.matrix,
]

def test_every_shape(): pass
"""

BURN = """
import time

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
"""


class Headrace:
    """The plugins of this suite's conftest, for a suite inside a test."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        parser.addoption("--tier", default="all")

    def pytest_configure(self, config: pytest.Config) -> None:
        for name in (*MARKERS, SMOKE):
            config.addinivalue_line("markers", f"{name}: x")
        config.pluginmanager.register(Tiers(config))
        config.pluginmanager.register(CpuGuard(self._limit_s))
        config.pluginmanager.register(RunSummary())


def run(pytester: pytest.Pytester, *arguments: str, limit_s: float = 0) -> pytest.RunResult:
    without = [f"-pno:{name}" for name in ("xdist", "asyncio", "anyio", "hypothesispytest")]
    return pytester.runpytest_inprocess(*without, "-v", *arguments, plugins=[Headrace(limit_s)])


def names(result: pytest.RunResult) -> set[str]:
    return {
        line.partition("::")[2].split()[0]
        for line in result.outlines
        if "PASSED" in line or "FAILED" in line
    }


@pytest.mark.parametrize(
    ("tier", "ran"),
    [
        ("quick", {"test_plain", "test_smoke"}),
        ("rest", {"test_dear", "test_every_shape"}),
        ("all", {"test_plain", "test_smoke", "test_dear", "test_every_shape"}),
    ],
)
def test_quick_and_rest_are_the_whole_and_share_nothing(
    pytester: pytest.Pytester, tier: str, ran: set[str]
) -> None:
    pytester.makepyfile(test_suite=SUITE, test_whole=WHOLE)
    assert names(run(pytester, f"--tier={tier}")) == ran


def test_a_module_that_is_marked_as_a_whole_is_not_imported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_suite=SUITE, test_whole=WHOLE + "\nraise RuntimeError\n")
    assert names(run(pytester, "--tier=quick")) == {"test_plain", "test_smoke"}


def test_a_module_without_a_marker_is_not_imported_by_the_rest(pytester: pytest.Pytester) -> None:
    plain = "def test_plain(): pass\nraise RuntimeError\n"
    pytester.makepyfile(test_suite=SUITE, test_plain=plain)
    assert names(run(pytester, "--tier=rest")) == {"test_dear"}


@pytest.mark.parametrize("tier", ["quick", "all"])
def test_a_marker_of_another_module_has_to_be_named(pytester: pytest.Pytester, tier: str) -> None:
    """The rest would leave the test out, and quick does not run it either."""
    pytester.makepyfile(
        elsewhere="import pytest\ndear = pytest.mark.process\n",
        test_it="from elsewhere import dear\n@dear\ndef test_it(): pass\n",
    )
    result = run(pytester, f"--tier={tier}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*name no marker of their tests: *test_it.py::test_it*"])


@pytest.mark.parametrize(
    ("source", "whole"),
    [
        ("pytestmark = pytest.mark.torch\n", True),
        ("pytestmark = [pytest.mark.skipif(True, reason=''), pytest.mark.soak]\n", True),
        ("pytestmark = pytest.mark.torch\n@pytest.mark.smoke\ndef test(): ...\n", False),
        ("pytestmark = pytest.mark.asyncio\n\n@pytest.mark.torch\ndef test(): ...\n", False),
        ("@pytest.mark.torch\ndef test(): ...\n", False),
    ],
)
def test_what_marks_a_whole_module(source: str, whole: bool) -> None:
    assert marked_as_a_whole(source) is whole


def test_a_smoke_test_without_a_marker_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.smoke\ndef test(): pass\n")
    result = run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*smoke tests without one of*"])


@pytest.mark.parametrize("tier", ["rest", "all"])
def test_a_marker_without_a_smoke_test_is_an_error_where_the_whole_suite_is_collected(
    pytester: pytest.Pytester, tier: str
) -> None:
    pytester.makeini("[pytest]\ntestpaths = .\n")
    pytester.makepyfile(test_suite=SUITE, test_whole=WHOLE)
    result = run(pytester, f"--tier={tier}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "markers without a smoke test: ['matrix']" in result.stderr.str()


def test_a_marker_without_a_smoke_test_is_no_error_where_one_file_is_collected(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeini("[pytest]\ntestpaths = .\n")
    pytester.makepyfile(test_whole=WHOLE)
    assert names(run(pytester, "--tier=rest", "test_whole.py")) == {"test_every_shape"}


def test_no_marker_lacks_a_smoke_test_where_each_has_one(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntestpaths = .\n")
    pytester.makepyfile(test_suite=SUITE)
    assert names(run(pytester, "--tier=rest")) == {"test_dear"}


def test_a_dear_test_fails_unless_it_is_marked(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        BURN + "import pytest\n"
        "def test_cheap(): pass\n"
        "def test_dear(): burn(0.06)\n"
        "@pytest.mark.long\ndef test_marked(): burn(0.06)\n"
        "@pytest.fixture\ndef made(): burn(0.06)\n"
        "def test_set_up_is_not_counted(made): pass\n"
    )
    result = run(pytester, limit_s=0.008)
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*test_dear*FAILED*", "*took 0.* s of CPU*mark it with one of*"])


def test_imports_are_not_counted(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(heavy=BURN + "burn(0.06)\n", test_it="def test_it():\n    import heavy\n")
    run(pytester, limit_s=0.008).assert_outcomes(passed=1)


def test_processes_are_counted_while_they_live_and_when_they_have_ended() -> None:
    burn = "import time\nwhile time.process_time() < 0.1: pass\nprint(flush=True)\ninput()"
    before_s = cpu_s()
    with subprocess.Popen(
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert descendants_cpu_s(os.getpid()) >= 0.08
        assert cpu_s() - before_s >= 0.08
    assert cpu_s() - before_s >= 0.08


@pytest.mark.parametrize("error", [FileNotFoundError, ProcessLookupError])
def test_a_thread_that_ends_hides_no_process(
    error: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise all that a server has used so far would be charged to the next test."""
    read, failures = Path.read_text, iter([error()])

    def racing(path: Path, *arguments: Any, **options: Any) -> str:
        if path.name == "children" and (failure := next(failures, None)):
            raise failure
        return read(path, *arguments, **options)

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        monkeypatch.setattr(Path, "read_text", racing)
        assert child.pid in children()
    assert next(failures, None) is None


def test_the_end_names_parts_and_reasons(pytester: pytest.Pytester) -> None:
    source = "import pytest\n@pytest.mark.parametrize('n', range(3))\ndef test(n): {}\n"
    for folder, body in (("a", "pass"), ("b", "pytest.skip(f'needs x (at {n})')")):
        path = Path(pytester.mkdir("tests") if folder == "a" else pytester.path / "tests")
        (path / folder).mkdir()
        (path / folder / f"test_{folder}.py").write_text(source.format(body))
    result = run(pytester)
    result.stdout.fnmatch_lines(["*by part*", "a *3 *", "*skipped, by reason*", "*3 needs x"])


def test_the_markers_are_documented() -> None:
    page = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [name for name in MARKERS if f"| `{name}` |" not in page] == []
