"""What a wheel has to hold and its tag to promise; CI builds a real one and serves with it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from headrace.ops.cpu import _native
from tests.docs.pages import ROOT
from tools import check_wheel, repair_wheel

MODULE = "headrace/ops/cpu/_native.cpython-311-x86_64-linux-gnu.so"
ENCODERS = "headrace/weights/codecs/_search.cpython-311-x86_64-linux-gnu.so"
LOOKUPS = "headrace/engine/drafts/lookup/_lookup.cpython-311-x86_64-linux-gnu.so"
STRINGS = "headrace/weights/gguf/_strings.cpython-311-x86_64-linux-gnu.so"
MODULES = {MODULE, ENCODERS, LOOKUPS, STRINGS}
FILES = {"headrace/__init__.py", "headrace/embedded/model.gguf"}
INFO = "headrace-0.1.0.dist-info/METADATA"


def test_every_file_of_the_sources_is_expected() -> None:
    expected = repair_wheel.expected_files(repair_wheel.PACKAGE)
    assert {
        "headrace/__init__.py",
        "headrace/py.typed",
        "headrace/server/pages/docs/app.js",
    } <= expected
    assert any(name.startswith("headrace/embedded/") and ".py" not in name for name in expected)
    assert not [name for name in expected if "__pycache__" in name or name.endswith(".so")]


@pytest.mark.parametrize(
    ("names", "faults"),
    [
        ({*FILES, *MODULES, INFO}, []),
        ({*MODULES, "headrace/__init__.py"}, ["headrace/embedded/model.gguf is missing"]),
        ({*FILES, *MODULES, "headrace/x.o"}, ["headrace/x.o is not a source file"]),
        ({*FILES, *MODULES, "native/level.h"}, ["native/level.h lies outside the package"]),
        ({*FILES, *MODULES} - {MODULE}, ["native modules: 1 is expected, not 0: "]),
        ({*FILES, *MODULES} - {ENCODERS}, ["modules of encoders: 1 is expected, not 0: "]),
        ({*FILES, *MODULES} - {LOOKUPS}, ["modules of lookups: 1 is expected, not 0: "]),
        ({*FILES, *MODULES} - {STRINGS}, ["modules of strings: 1 is expected, not 0: "]),
        (
            {*FILES, *MODULES, MODULE.replace("311", "312")},
            [f"native modules: 1 is expected, not 2: {MODULE}, {MODULE.replace('311', '312')}"],
        ),
    ],
)
def test_a_wheel_has_the_sources_and_its_modules_and_nothing_else(
    names: set[str], faults: list[str]
) -> None:
    assert repair_wheel.content_faults(names, FILES) == faults


@pytest.mark.skipif(os.uname().machine not in repair_wheel.LEVELS, reason="levels of x86-64 or arm")
def test_the_module_that_is_installed_here_has_every_level() -> None:
    module = Path(_native.__file__).read_bytes()
    assert repair_wheel.missing_levels(module, os.uname().machine) == []
    without = module.replace(b"16portable_kernels", b"16________________")
    assert repair_wheel.missing_levels(without, os.uname().machine) == ["portable"]


def test_levels_are_those_of_the_build() -> None:
    cmake = (ROOT / "native" / "CMakeLists.txt").read_text(encoding="utf-8")
    built = {*re.findall(r"headrace_level\((\w+)", cmake), "portable"} - {"name"}
    assert built == {level for levels in repair_wheel.LEVELS.values() for level in levels}


def test_what_any_module_needs_decides() -> None:
    kernels, encoders = {"GLIBC_2.4": ["x", "w"]}, {"GLIBC_2.38": ["strtol"], "GLIBC_2.4": ["x"]}
    symbols = repair_wheel.merged([kernels, encoders])
    assert symbols == {"GLIBC_2.4": ["w", "x"], "GLIBC_2.38": ["strtol"]}
    assert repair_wheel.oldest_glibc(symbols) == (2, 38)


def test_the_oldest_glibc_is_the_newest_version_that_a_symbol_needs() -> None:
    symbols = {
        "GLIBC_2.2.5": ["free"], "GLIBC_2.34": ["pthread_join", "pthread_create"],
        "GLIBC_2.4": ["x"], "GCC_4.2.0": ["y"], "CXXABI_1.3": ["z"],
    }  # fmt: skip
    assert repair_wheel.oldest_glibc(symbols) == (2, 34)
    lines = repair_wheel.explained(symbols)
    assert lines[0] == "oldest glibc with all that is needed: 2.34"
    assert lines[1] == "  GLIBC_2.34, which decides: pthread_create, pthread_join"
    assert lines[2:4] == ["  GLIBC_2.4", "  GLIBC_2.2.5"]


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("headrace-0.1.0-cp311-cp311-manylinux_2_34_x86_64.whl", (2, 34)),
        ("headrace-0.1.0-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl", (2, 27)),
        ("headrace-0.1.0-cp312-cp312-manylinux_2_28_aarch64.whl", (2, 28)),
    ],
)
def test_the_glibc_a_tag_promises(name: str, version: tuple[int, int]) -> None:
    assert repair_wheel.tagged_glibc(name) == version


def test_a_wheel_without_a_manylinux_tag_promises_no_glibc() -> None:
    with pytest.raises(ValueError, match="no manylinux tag"):
        repair_wheel.tagged_glibc("headrace-0.1.0-cp311-cp311-linux_x86_64.whl")


def test_a_wheel_that_lacks_something_gets_no_tag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "headrace-0.1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in repair_wheel.expected_files(repair_wheel.PACKAGE):
            archive.writestr(name, "")
        archive.writestr(MODULE, b"_ZN8headrace16portable_kernelsEv\0")
        archive.writestr(ENCODERS, b"")
        archive.writestr(LOOKUPS, b"")
        archive.writestr(STRINGS, b"")
    monkeypatch.setattr(sys, "argv", ["x", str(wheel), "--into", str(tmp_path / "dist")])
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("", "", "", "", "x86_64")))
    assert repair_wheel.main() == 1
    missing = capsys.readouterr().out.splitlines()
    assert missing == [
        f"level {level} is missing"
        for level in ("avx2", "avx_vnni", "avx512", "avx512_vbmi", "avx512_bf16", "amx")
    ]
    assert not (tmp_path / "dist").exists()


def test_nothing_can_be_compiled_where_a_wheel_is_checked(tmp_path: Path) -> None:
    environ = {
        "PATH": "/usr/bin", "HOME": "/root", "CC": "gcc", "PYTHONPATH": "/src",
        "PIP_INDEX_URL": "u", "HEADRACE_ASSETS": "/a", "https_proxy": "p", "LC_ALL": "C",
    }  # fmt: skip
    programs = tmp_path / "bin"
    assert check_wheel.bare_environment(environ, programs, tmp_path) == {
        "PATH": str(programs), "HOME": str(tmp_path), "CC": check_wheel.NOWHERE,
        "CXX": check_wheel.NOWHERE, "PIP_INDEX_URL": "u", "https_proxy": "p", "LC_ALL": "C",
    }  # fmt: skip


def test_only_a_completion_with_text_counts() -> None:
    good = {"choices": [{"text": " main"}], "usage": {"completion_tokens": 1}}
    assert check_wheel.completion_text(good) == " main"
    for bad in ({}, {"error": {}}, good | {"choices": []}, good | {"choices": [{"text": ""}]}):
        with pytest.raises(check_wheel.WheelError):
            check_wheel.completion_text(bad)


def test_a_command_that_fails_is_shown_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(check_wheel.WheelError, match=r"exited 3:\nout"):
        code = "import sys; print('out'); sys.exit(3)"
        check_wheel.output_of([sys.executable, "-S", "-c", code], os.environ, tmp_path)


def test_the_build_file_of_other_systems_says_what_was_never_run() -> None:
    text = (ROOT / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8")
    runners = yaml.safe_load(text)["jobs"]["wheels"]["strategy"]["matrix"]["runner"]
    assert [runner for runner in runners if f"#   never run: {runner} " not in text] == []
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    settings = config["tool"]["cibuildwheel"]
    oldest = config["project"]["requires-python"].removeprefix(">=").replace(".", "")
    assert settings["build"].split()[0] == f"cp{oldest}-*"
    define = "cmake.define.HEADRACE_STATIC_LIBSTDCXX"
    assert settings["linux"]["config-settings"] == {define: "ON"}
    assert f"-C{define}=ON" in (ROOT / "Makefile").read_text(encoding="utf-8")
    cmake = (ROOT / "native" / "CMakeLists.txt").read_text(encoding="utf-8")
    assert f"option({define.removeprefix('cmake.define.')} " in cmake


@pytest.mark.parametrize(
    ("program", "line", "code"),
    [
        ("print('ready', flush=True); input()", "ready\n", 0),
        ("raise SystemExit(3)", "", 3),
        ("import time; time.sleep(600)", "", -signal.SIGKILL),
    ],
    ids=["it serves", "it ends", "it hangs"],
)
def test_a_server_that_prints_nothing_is_killed(program: str, line: str, code: int) -> None:
    within_s = 0.2 if code == -signal.SIGKILL else 60.0
    with subprocess.Popen(
        [sys.executable, "-S", "-c", program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        assert check_wheel.first_line(server, within_s) == line
        server.communicate("\n", timeout=60)
    assert server.returncode == code
