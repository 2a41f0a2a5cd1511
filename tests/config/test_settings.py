"""Settings: documented without exception, strict, and the same from flags and from a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from headrace.config import EngineConfig, ServerConfig, build, flags_of, parse_int, read_file
from headrace.config.text_file import read_text_file
from headrace.errors import ConfigError

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("config", [EngineConfig, ServerConfig])
def test_every_setting_is_documented_and_in_the_page(config: type[msgspec.Struct]) -> None:
    page = (REPOSITORY / "docs" / "flags.md").read_text(encoding="utf-8")
    flags = list(flags_of(config))
    assert [flag.name for flag in flags] == [f.name for f in msgspec.structs.fields(config)]
    for flag in flags:
        assert flag.help.strip()
        assert "MODEL" in page if flag.name == "model" else f"`{flag.flag}`" in page


def test_a_setting_without_a_description_cannot_exist() -> None:
    class Bare(msgspec.Struct):
        port: int = 1

    class Undescribed(msgspec.Struct):
        port: Annotated[int, msgspec.Meta(ge=1)] = 1

    for config in (Bare, Undescribed):
        with pytest.raises(TypeError, match="port has no description"):
            list(flags_of(config))


def test_names_do_not_clash_between_configs() -> None:
    names = [flag.name for config in (EngineConfig, ServerConfig) for flag in flags_of(config)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("text", "value"), [("7", 7), ("32k", 32_000), ("32K", 32_768), ("1.5k", 1500), ("2G", 2**31)]
)
def test_integers_with_a_suffix(text: str, value: int) -> None:
    assert parse_int(text) == value


@pytest.mark.parametrize("text", ["", "k", "1.5", "1x", "0.0001k", "ten"])
def test_what_is_no_integer(text: str) -> None:
    with pytest.raises(ValueError):
        parse_int(text)


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"port": 99_999}, ["--port", "99999", "65535"]),
        ({"port": "many"}, ["--port", "'many'", "int"]),
        ({"port": 70_000}, ["--port is 70000; expected an integer from 0 to 65535"]),
        ({"log_level": "loud"}, ["--log-level", "'loud'", "debug, info, warning, error"]),
    ],
)
def test_errors_name_flag_value_and_limit(values: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        build(ServerConfig, values, source="settings")
    for part in parts:
        assert part in str(caught.value)


def test_a_step_time_that_no_float_holds_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--max-step-ms is .* an integer from 0 to 86400000"):
        build(EngineConfig, {"max_step_ms": 10**400}, source="flags")


def test_choices_that_are_numbers() -> None:
    assert build(EngineConfig, {"block_size": "64"}, source="flags").block_size == 64
    with pytest.raises(ConfigError, match=r"--block-size is '48'; expected one of 16, 32, 64"):
        build(EngineConfig, {"block_size": "48"}, source="flags")


def test_a_file_may_use_dashes_suffixes_and_lone_values(tmp_path: Path) -> None:
    path = tmp_path / "headrace.yaml"
    path.write_text("max-model-len: 32k\nport: 9000\nserved_model_name: small\n")
    values = read_file(path, [EngineConfig, ServerConfig])
    engine = build(EngineConfig, {"max_model_len": values["max_model_len"]}, source="file")
    assert engine.max_model_len == 32_000
    served = {"served_model_name": values["served_model_name"]}
    assert build(ServerConfig, served, source="file").served_model_name == ("small",)


def test_a_file_may_use_the_flags_other_names(tmp_path: Path) -> None:
    path = tmp_path / "headrace.yaml"
    for name in ("kv-cache-memory", "kv_cache_memory", "kv-cache-memory-bytes"):
        path.write_text(f"{name}: 1g\n")
        values = read_file(path, [EngineConfig, ServerConfig])
        assert build(EngineConfig, values, source="file").kv_cache_memory_bytes == 10**9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot: 1", "unknown setting 'prot'; did you mean 'port'"),
        ("port: 1\nPort: 2", "unknown setting 'Port'"),
        ("port: 1\nhost: a\nport: 2", "setting 'port' is given twice, in lines 1 and 3"),
        ("{port: 1, 'port': 1}", "'port' is given twice, in lines 1 and 1"),
        ("[" * 800, "not usable YAML"),
        ("port: 2001-99-99", "not usable YAML: month"),
        ("? [a]\n: 1", "not valid YAML"),
        ("block-size: 16\nblock_size: 32", "given twice"),
        ("kv-cache-memory: 1g\nkv_cache_memory_bytes: 1g", "given twice"),
        ("kv-cache-memori: 1g", "did you mean 'kv_cache_memory'"),
        ("- a\n- b", "name: value"),
        ("{port", "not valid YAML"),
        ("a: !!python/object:os.system {}", "not valid YAML"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "headrace.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_file(path, [EngineConfig, ServerConfig])


@pytest.mark.parametrize(
    ("line", "length", "size"),
    [
        ("max-model-len: auto", None, None),
        ("max_model_len: null", None, None),
        ("max-model-len: 4K", 4096, None),
        ("kv-cache-memory-bytes: 64K", None, 65536),
    ],
)
def test_sizes_of_the_kv_cache_in_a_file(
    line: str, length: int | None, size: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "headrace.yaml"
    path.write_text(f"{line}\n")
    engine = build(EngineConfig, read_file(path, [EngineConfig]), source="file")
    assert (engine.max_model_len, engine.kv_cache_memory_bytes) == (length, size)


@pytest.mark.parametrize(
    ("line", "size"),
    [
        ("expert-cache-memory-bytes: auto", None),
        ("expert-cache-memory-bytes: null", None),
        ("expert-cache-memory: 2G", 2 << 30),
        ("expert_cache_memory_bytes: 7", 7),
    ],
)
def test_the_memory_of_experts(line: str, size: int | None, tmp_path: Path) -> None:
    path = tmp_path / "headrace.yaml"
    path.write_text(f"{line}\n")
    engine = build(EngineConfig, read_file(path, [EngineConfig]), source="file")
    assert engine.expert_cache_memory_bytes == size


@pytest.mark.parametrize("value", [0, -1, "some"])
def test_the_memory_of_experts_is_checked(value: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"--expert-cache-memory-bytes is .*; expected an integer ≥ 1, or auto"
    ):
        build(EngineConfig, {"expert_cache_memory_bytes": value}, source="settings")


def test_the_size_of_the_kv_cache_has_no_auto(tmp_path: Path) -> None:
    path = tmp_path / "headrace.yaml"
    path.write_text("kv-cache-memory-bytes: auto\n")
    with pytest.raises(ConfigError, match="kv"):
        build(EngineConfig, read_file(path, [EngineConfig]), source="file")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: No such file"):
        read_file(tmp_path / "absent.yaml", [EngineConfig])


@pytest.mark.parametrize("names", ["", ["a", ""]])
def test_a_model_has_no_empty_name(names: object) -> None:
    match = r"--served-model-name is .*; expected a text of 1 or more characters$"
    with pytest.raises(ConfigError, match=match):
        build(ServerConfig, {"served_model_name": names}, source="settings")


def test_only_regular_files_of_some_size_are_read(tmp_path: Path) -> None:
    pipe, large, binary = tmp_path / "pipe", tmp_path / "large", tmp_path / "binary"
    os.mkfifo(pipe)
    large.write_bytes(b"#" * 101)
    binary.write_bytes(b"a: \xff")
    for path, problem in (
        (Path("/dev/zero"), "not a regular file"),
        (pipe, "not a regular file"),
        (tmp_path, "directory"),
        (tmp_path / "absent", "No such file"),
        (large, "more than 100 bytes"),
        (binary, "not UTF-8 at byte 3"),
        (Path("a\0b"), "null"),
    ):
        with pytest.raises(ConfigError, match=problem) as caught:
            read_text_file(path, "--some-file", 100)
        assert "--some-file" in str(caught.value)
    large.write_bytes(b"#" * 100)
    (tmp_path / "link").symlink_to(large)
    assert read_text_file(tmp_path / "link", "--some-file", 100) == "#" * 100
    assert read_text_file(Path("/proc/self/comm"), "--some-file", 100).strip()
    with pytest.raises(ConfigError, match="--config /dev/zero"):
        read_file(Path("/dev/zero"), [EngineConfig])


def test_configs_are_frozen() -> None:
    config = EngineConfig()
    with pytest.raises(AttributeError):
        config.block_size = 16  # type: ignore[misc]
