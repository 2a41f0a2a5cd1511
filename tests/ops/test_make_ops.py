"""Backends by name, and which of them settings mean."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import click
import pytest

import headrace.ops
from headrace.cli.device_options import device_options
from headrace.config.settings import EngineConfig
from headrace.errors import ConfigError
from headrace.ops import BACKENDS, choose_backend, make_ops


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headrace.ops, "find_spec", lambda name: None)


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """A root where the kernel has the driver of a device."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    return tmp_path


def test_reference_by_name() -> None:
    ops = make_ops("reference", cpu_level="avx512", threads=3)
    assert (ops.name, ops.level, ops.num_threads) == ("reference", "reference", 1)
    assert ops.memory() is None


def test_settings_and_commands_name_all_backends() -> None:
    """Each spells them out: settings import no backend, and --help imports neither."""
    names = {"auto", *BACKENDS}
    assert set(get_args(get_type_hints(EngineConfig)["backend"])) == names
    (of_commands,) = [
        each.type.choices
        for each in click.command()(device_options(lambda: None)).params
        if isinstance(each.type, click.Choice)
    ]
    assert set(of_commands) == names


def test_unknown_backends_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="'tpu' is unknown; choose one of auto, cpu, reference, torch"
    ):
        make_ops("tpu")


def test_without_a_device_the_kernels_compute(tmp_path: Path) -> None:
    """Whether torch is installed or not: it is not even looked for devices."""
    for device in ("auto", "cpu"):
        assert choose_backend("auto", device, tmp_path) == ("cpu", "cpu")
        assert choose_backend("cpu", device) == ("cpu", "cpu")
        assert choose_backend("reference", device) == ("reference", "cpu")


def test_without_torch_a_device_is_of_no_use(without_torch: None, driver: Path) -> None:
    assert choose_backend("auto", "auto", driver) == ("cpu", "cpu")
    for backend, device in (("torch", "auto"), ("torch", "cpu"), ("auto", "cuda")):
        with pytest.raises(ConfigError, match=r"PyTorch, which is not .* 'headrace\[torch\]'"):
            choose_backend(backend, device, driver)
    with pytest.raises(ConfigError, match="needs PyTorch"):
        make_ops("torch")


def test_a_device_is_named_in_the_log_and_not_taken(
    driver: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(headrace.ops, "find_spec", lambda name: object())
    caplog.set_level("INFO")
    assert choose_backend("auto", "cpu", driver) == ("cpu", "cpu")
    assert choose_backend("auto", "auto", tmp_path_factory.mktemp("none")) == ("cpu", "cpu")
    assert not caplog.records
    assert choose_backend("auto", "auto", driver) == ("cpu", "cpu")
    (note,) = caplog.records
    assert note.levelname == "WARNING", "the least that an engine's process logs"
    assert "--device cuda" in note.getMessage()


@pytest.mark.parametrize("device", ["cuda:x", "cuda:-1", "cpu:0", "tpu", ""])
def test_unknown_devices_are_refused(device: str) -> None:
    with pytest.raises(ConfigError, match=f"--device is '{device}'; choose auto, cpu, cuda or"):
        choose_backend("auto", device)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_other_backends_compute_on_no_device(backend: str) -> None:
    with pytest.raises(ConfigError, match=f"--device is cuda:1, and --backend {backend}"):
        choose_backend(backend, "cuda:1")


@pytest.mark.torch
def test_devices_by_name(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="finds the devices")
    from headrace.ops.torch.device import find_device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_backend("torch", "auto", driver) == ("torch", "cpu")
    assert choose_backend("torch", "cpu", driver) == ("torch", "cpu")
    with pytest.raises(ConfigError, match=r"--device is cuda, and .* Use --device cpu"):
        choose_backend("auto", "cuda", driver)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_backend("torch", "auto", driver) == ("torch", "cuda:0")
    assert choose_backend("auto", "auto", driver) == ("cpu", "cpu"), "none was asked for"
    assert choose_backend("auto", "cuda", driver) == ("torch", "cuda:0")
    assert choose_backend("torch", "cuda:1", driver) == ("torch", "cuda:1")
    assert choose_backend("auto", "cpu", driver) == ("cpu", "cpu")
    with pytest.raises(ConfigError, match="--device is cuda:2; this machine has cuda:0 to cuda:1"):
        find_device("cuda:2")


@pytest.mark.torch
def test_torch_by_name() -> None:
    pytest.importorskip("torch", reason="the torch backend needs PyTorch")
    ops = make_ops("torch", device="cpu", cpu_level="avx512", expert_cache_bytes=1)
    assert (ops.name, ops.level) == ("torch", "cpu")
    assert ops.num_threads >= 1 and ops.memory() is None


def test_importing_headrace_loads_no_backend_and_no_torch() -> None:
    check = (
        "import sys, headrace, headrace.ops, headrace.models, headrace.engine.load, headrace.llm;"
        "headrace.ops.choose_backend('auto', 'auto', __import__('pathlib').Path('/nowhere'));"
        "bad = [m for m in sys.modules if m.startswith(('torch', 'headrace.ops.cpu', "
        "'headrace.ops.reference', 'headrace.ops.torch'))];"
        "assert not bad, bad"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
