"""What each word of the command names: a config, a command, a run, a file of prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from headrace.config import EngineConfig, ServerConfig, build, flags_of, read_file
from headrace.config.text_file import read_text_file
from headrace.config.yaml_file import Document, read_yaml
from headrace.errors import ConfigError
from headrace.plan.lint.commands import (
    Container,
    Word,
    has_command,
    setup_of_container,
    setup_of_words,
    setups_of_text,
    split,
)
from headrace.plan.lint.engine_flags import Written, engine_setup, is_vllm_name, own_settings
from headrace.plan.lint.engine_setup import EngineSetup, Runtime
from headrace.plan.lint.gateway_setup import GatewaySetup, gateway_setup
from headrace.plan.lint.prompt_file import Prompts, read_prompts
from headrace.plan.run_file import REQUESTS, RESULT, Run, is_run, read_run

MAX_FILE_BYTES = 4 * 2**20
_WEIGHTS = (".gguf", ".safetensors", ".bin", ".pt", ".pth", ".onnx")
_PROGRAMS = ("vllm", "llama-server", "headrace")
_STARTERS = ("docker", "podman", "python", "python3", "env", "sudo", "numactl", "nohup", "exec")
_COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Targets:
    """The targets that were named. looked_at: one line each, what it was taken for."""

    engines: tuple[EngineSetup, ...] = ()
    gateways: tuple[GatewaySetup, ...] = ()
    runs: tuple[Run, ...] = ()
    prompts: tuple[Prompts, ...] = ()
    looked_at: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __add__(self, other: Targets) -> Targets:
        return Targets(*(getattr(self, name) + getattr(other, name) for name in _FIELDS))


_FIELDS = ("engines", "gateways", "runs", "prompts", "looked_at", "notes")


def read_targets(
    words: Sequence[str], prompts: Sequence[Path] = (), runtime: Runtime | None = None
) -> Targets:
    """words: paths, a quoted command, or last the words of one. runtime: of settings in YAML that
    several engines could have. Raises ConfigError for what is none of these."""
    found = Targets()
    for at, word in enumerate(words):
        if _begins_command(words[at:]):
            return found + _of_command(words[at:]) + _of_prompts(prompts)
        found += _of_word(word, runtime)
    return found + _of_prompts(prompts)


def _of_word(word: str, runtime: Runtime | None) -> Targets:
    path = Path(word).expanduser()
    if not path.exists():
        if has_command(word):
            return _of_command(split(word, _COMMAND_LINE))
        raise ConfigError(
            f"{word!r} is not a file, a folder or a command of an engine; name a config, a "
            "folder that `headrace bench load --save` wrote, or write the command after --"
        )
    if path.is_dir() or is_run(path) or _beside_result(path):
        return _of_run(path)
    if path.suffix == ".jsonl":
        return _of_prompts([path])
    if path.suffix.lower() in _WEIGHTS:
        raise ConfigError(
            f"{word!r} has a model's weights, where a configuration is expected; name a server's "
            "config, or write the command that serves the model after --"
        )
    text = read_text_file(path, "CONFIG", MAX_FILE_BYTES)
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        return _of_yaml(path, text, runtime)
    if has_command(text):
        return _engines(tuple(setups_of_text(text, word)), word)
    return _of_yaml(path, text, runtime)


def _begins_command(words: Sequence[str]) -> bool:
    word = words[0]
    name = PurePath(word).name
    if name in _PROGRAMS:  # a folder may be called so
        return list(words[1:2]) == ["serve"] or not Path(word).is_dir()
    return name in _STARTERS or (not Path(word).exists() and word.startswith(("LLAMA_", "VLLM_")))


def _beside_result(path: Path) -> bool:
    return path.name == REQUESTS and (path.parent / RESULT).is_file()


def _of_run(path: Path) -> Targets:
    if path.is_dir() and not is_run(path):
        raise ConfigError(
            f"{path}: has no {RESULT}; name a folder that `headrace bench load --save` wrote"
        )
    run = read_run(path)
    told = f"{run.where}: a run of {len(run.requests):,} requests, {len(run.readings):,} readings"
    return Targets(runs=(run,), looked_at=(told,))


def _of_prompts(paths: Sequence[Path]) -> Targets:
    read = tuple(read_prompts(path) for path in paths)
    return Targets(
        prompts=read,
        looked_at=tuple(f"{one.where}: {one.total:,} requests" for one in read),
        notes=tuple(
            f"{one.where}: the first {len(one.prompts):,} of {one.total:,} requests are looked at"
            for one in read
            if one.total > len(one.prompts)
        ),
    )


def _of_command(words: Sequence[str]) -> Targets:
    setup = setup_of_words([(word, _COMMAND_LINE) for word in words], _COMMAND_LINE)
    if setup is None:
        raise ConfigError(
            f"{' '.join(words)[:80]!r} does not start vllm serve, llama-server or headrace serve"
        )
    config = _config_named(words) if setup.runtime in ("headrace", "vllm") else None
    if config is not None:
        setup = _over_file(setup, config)
    return _engines((setup,), _COMMAND_LINE)


def _config_named(words: Sequence[str]) -> Path | None:
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag == "--config":
            return (
                Path(value if equals else words[at + 1]) if equals or at + 1 < len(words) else None
            )
    return None


def _over_file(setup: EngineSetup, path: Path) -> EngineSetup:
    """Flags go before the file that --config names, and the file before defaults."""
    text = read_text_file(path, "--config", MAX_FILE_BYTES)
    document = _mapping(read_yaml(text, str(path)), str(path))
    under = _of_settings(path, document, setup.runtime)
    stated = {
        name: value
        for name in setup.__dataclass_fields__
        if (value := getattr(setup, name)) is not None
        and not str(getattr(value, "where", "")).endswith("default")
        and name not in ("runtime", "where", "unknown")
    }
    return replace(under, where=f"{setup.where} and {path}", **stated)


def _engines(setups: tuple[EngineSetup, ...], name: str) -> Targets:
    if not setups:
        raise ConfigError(f"{name}: has no command of vllm serve, llama-server or headrace serve")
    return Targets(
        engines=setups,
        looked_at=tuple(f"{one.where}: settings of {one.runtime}" for one in setups),
        notes=tuple(
            f"{one.where}: not looked at: {', '.join(dict.fromkeys(one.unknown))}"
            for one in setups
            if one.unknown
        ),
    )


def _of_yaml(path: Path, text: str, runtime: Runtime | None) -> Targets:
    documents = read_yaml(text, str(path))
    containers = [
        setup
        for document in documents
        for container in _containers(document.loaded, document.lines, "", str(path))
        if (setup := setup_of_container(container)) is not None
    ]
    if containers:
        return _engines(tuple(containers), str(path))
    document = _mapping(documents, str(path))
    if "model_list" in document.loaded:
        gateway = gateway_setup(document.loaded, document.lines, str(path))
        told = f"{path}: a gateway's config, {len(gateway.deployments)} deployments"
        return Targets(gateways=(gateway,), looked_at=(told,))
    return _engines((_of_settings(path, document, runtime),), str(path))


def _mapping(documents: Sequence[Document], name: str) -> Document:
    if len(documents) != 1 or not isinstance(documents[0].loaded, dict) or not documents[0].loaded:
        raise ConfigError(
            f"{name}: is not a config, which has settings as `name: value` lines, LiteLLM's "
            "model_list, a service of compose or Kubernetes, or a script with an engine's "
            "command"
        )
    return documents[0]


def _of_settings(path: Path, document: Document, runtime: Runtime | None) -> EngineSetup:
    keys = {str(key): str(key).replace("_", "-") for key in document.loaded}
    own = own_settings()
    if runtime is None:
        runtime = "headrace" if all(name in own for name in keys.values()) else "vllm"
        if runtime == "vllm" and not any(is_vllm_name(name) for name in keys.values()):
            raise ConfigError(
                f"{path}: settings of neither headrace, vLLM nor LiteLLM: "
                f"{', '.join(list(keys)[:6])}; name the engine with --runtime"
            )
    if runtime == "headrace":
        values = read_file(path, (EngineConfig, ServerConfig))
        for config in (EngineConfig, ServerConfig):
            names = {flag.name for flag in flags_of(config)}
            build(config, {k: v for k, v in values.items() if k in names}, source=str(path))
    written = [
        Written(keys[str(key)], value, f"{path}:{document.lines.get(str(key), 1)}")
        for key, value in document.loaded.items()
        if value is not None
    ]
    return engine_setup(runtime, str(path), written)


def _containers(value: Any, lines: Mapping[str, int], path: str, name: str) -> Iterator[Container]:
    """Mappings with an image or a command, wherever in the file."""
    if isinstance(value, list):
        for at, one in enumerate(value):
            yield from _containers(one, lines, f"{path}.{at}" if path else str(at), name)
    if not isinstance(value, dict):
        return
    words: list[Word] = []
    for key in ("entrypoint", "command", "args"):
        place = f"{path}.{key}" if path else key
        if key in value:
            words += _words(value[key], lines, place, name)
    image = value.get("image")
    if words or (isinstance(image, str) and "environment" in value):
        yield Container(
            image=image if isinstance(image, str) else "",
            words=tuple(words),
            variables=_variables(value, lines, path, name),
            where=f"{name}:{lines.get(path, 1)}",
        )
    for key, one in value.items():
        yield from _containers(one, lines, f"{path}.{key}" if path else str(key), name)


def _words(value: Any, lines: Mapping[str, int], path: str, name: str) -> Iterator[Word]:
    where = f"{name}:{lines.get(path, 1)}"
    if isinstance(value, str):
        yield from ((word, where) for word in split(value.replace("\\\n", " "), where))
    elif isinstance(value, list):
        for at, one in enumerate(value):
            place = f"{name}:{lines.get(f'{path}.{at}', lines.get(path, 1))}"
            text = str(one)
            if " " in text and has_command(text):  # sh -c
                yield from ((word, place) for word in split(text.replace("\\\n", " "), place))
            else:
                yield text, place


def _variables(
    value: Mapping[str, Any], lines: Mapping[str, int], path: str, name: str
) -> dict[str, Word]:
    found: dict[str, Word] = {}
    for key in ("environment", "env"):
        place = f"{path}.{key}" if path else key
        told = value.get(key)
        if isinstance(told, dict):
            for one, text in told.items():
                found[str(one)] = (str(text), f"{name}:{lines.get(f'{place}.{one}', 1)}")
        elif isinstance(told, list):
            for at, entry in enumerate(told):
                where = f"{name}:{lines.get(f'{place}.{at}', 1)}"
                if isinstance(entry, dict) and "value" in entry:
                    found[str(entry.get("name"))] = (str(entry["value"]), where)
                elif isinstance(entry, str) and "=" in entry:
                    one, _, text = entry.partition("=")
                    found[one] = (text, where)
    return found
