"""Names, templates and fingerprints of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.config import EngineConfig, ServerConfig
from headrace.embedded import embedded_model
from headrace.errors import CheckpointError, ConfigError
from headrace.server.lifecycle.load import (
    default_name,
    default_names,
    fingerprint,
    load_text,
    weights_digest,
)
from headrace.text.template_limits import MAX_SOURCE_BYTES
from tests.server.mock_engine import INFO
from tests.tiny import EOS, IM_END, tiny_checkpoint, write_tiny_gguf


def _digest(**changes: Any) -> bytes:
    return weights_digest(tiny_checkpoint(**changes))


def test_how_text_is_cut_is_part_of_the_digest() -> None:
    checkpoint = tiny_checkpoint()
    assert weights_digest(checkpoint, "qwen2") != weights_digest(checkpoint)
    assert weights_digest(checkpoint, "qwen2") == weights_digest(checkpoint, "qwen2")


def test_the_digest_changes_with_weights_codec_and_config() -> None:
    base = _digest()
    assert base == _digest()
    others = [_digest(seed=1), _digest(codec="Q8_0"), _digest(layers=1), _digest(rope_theta=1e6)]
    assert len({base, *others}) == 5


def test_the_digest_of_a_file_is_stable(tmp_path: Path) -> None:
    """Arrays and numbers of GGUF metadata in the config are no obstacle."""
    path = write_tiny_gguf(tmp_path, family="llama", codec="F16")
    config = EngineConfig(model=str(path))
    first, second = (load_text(config, ServerConfig()) for _ in range(2))
    assert first.weights_digest == second.weights_digest
    assert (first.file_format, first.file_type) == ("gguf", 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("backend", "cpu"),
        ("cpu_level", "avx512"),
        ("kv_cache_dtype", "bf16"),
        ("model_type", "llama"),
        ("max_model_len", 100),
    ],
)
def test_the_fingerprint_changes_with_what_computes(field: str, value: Any) -> None:
    base = fingerprint(b"weights", INFO, {})
    assert base.startswith("fp_")
    assert len(base) == 15
    changed = msgspec.structs.replace(INFO, **{field: value})
    assert fingerprint(b"weights", changed, {}) != base
    assert fingerprint(b"other", INFO, {}) != base
    assert fingerprint(b"weights", msgspec.structs.replace(INFO, num_blocks=3), {}) == base
    assert fingerprint(b"weights", INFO, {"temperature": 0.6}) != base


@pytest.mark.parametrize(
    ("setting", "expected"), [("auto", {"temperature": 0.6, "top_p": 0.9}), ("none", {})]
)
def test_sampling_defaults_of_the_model_are_served(setting: str, expected: Any) -> None:
    config = EngineConfig(generation_config=setting)
    assert load_text(config, ServerConfig()).sampling_defaults == expected


def test_the_text_side_of_a_file(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path)
    text = load_text(EngineConfig(model=str(path)), ServerConfig())
    assert text.names == (path.stem,)
    assert set(text.tokenizer.eos_token_ids) == {EOS, IM_END}
    assert text.tokenizer.encode("ab", add_special_tokens=True) == [*b"ab"]
    assert text.template is not None
    names = ServerConfig(served_model_name=("a", "b"))
    assert load_text(EngineConfig(model=str(path)), names).names == ("a", "b")


def test_a_template_from_a_file(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path)
    own = tmp_path / "own.jinja"
    own.write_text("{{ messages[0].content }}!")
    config = ServerConfig(chat_template=str(own))
    template = load_text(EngineConfig(model=str(path)), config).template
    assert template is not None
    assert template.render([{"role": "user", "content": "hi"}]) == "hi!"
    missing = ServerConfig(chat_template=str(tmp_path / "none.jinja"))
    with pytest.raises(ConfigError, match=r"--chat-template .*none\.jinja"):
        load_text(EngineConfig(model=str(path)), missing)
    endless = ServerConfig(chat_template="/dev/zero")
    with pytest.raises(ConfigError, match="--chat-template /dev/zero: not a regular file"):
        load_text(EngineConfig(model=str(path)), endless)
    own.write_text("x" * (MAX_SOURCE_BYTES + 1))
    with pytest.raises(ConfigError, match=f"more than {MAX_SOURCE_BYTES} bytes"):
        load_text(EngineConfig(model=str(path)), config)


def test_the_model_of_the_package_has_a_name_that_stays() -> None:
    """The file's own name, which changes with training, is the second."""
    path = Path("/x/headrace-base-q8_0.gguf")
    assert default_names("", path) == ("headrace-base", "headrace-base-q8_0")
    assert default_names("", Path("/x/headrace-base.gguf")) == ("headrace-base",)
    assert default_names(str(path), path) == ("headrace-base-q8_0",)


def test_the_package_as_it_is_serves_that_name() -> None:
    try:
        stem = embedded_model().stem
    except CheckpointError as error:
        pytest.skip(f"this build has no embedded model: {error}")
    text = load_text(EngineConfig(), ServerConfig())
    assert text.names == ("headrace-base", stem)
    assert text.root == f"{stem}.gguf"


def test_where_a_model_lies_is_not_told(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path)
    assert load_text(EngineConfig(model=str(path)), ServerConfig()).root == path.name


def test_default_names(tmp_path: Path) -> None:
    assert default_name(Path("/x/Qwen3-0.6B-Q8_0.gguf")) == "Qwen3-0.6B-Q8_0"
    assert default_name(Path("/x/Llama-3/")) == "Llama-3"
    link = tmp_path / "link"
    (tmp_path / "real").mkdir()
    link.symlink_to(tmp_path / "real")
    assert default_name(link) == "link"
    assert default_name(tmp_path / "real" / "..") == tmp_path.name
    assert default_name(Path()) == Path.cwd().name


def test_formats_of_calls_and_reasoning_are_the_templates_or_those_named() -> None:
    config = EngineConfig(model=str(embedded_model()))

    def named(**settings: str) -> tuple[str | None, str | None]:
        format = load_text(config, ServerConfig(**settings)).answer_format
        return (
            None if format.calls is None else format.calls.name,
            None if format.reasoning is None else format.reasoning.name,
        )

    assert named() == ("hermes", "think")
    assert named(tool_call_parser="mistral", reasoning_parser="none") == ("mistral", None)
    assert named(tool_call_parser="none", reasoning_parser="seed") == (None, "seed")
    with pytest.raises(ConfigError, match="tool_call_parser: 'nope' is unknown"):
        named(tool_call_parser="nope")
