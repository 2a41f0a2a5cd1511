"""Engine commands in text: words of a command line, scripts, systemd units, containers in YAML."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from headrace.errors import ConfigError
from headrace.plan.lint.engine_flags import Written, engine_setup, written_words
from headrace.plan.lint.engine_setup import EngineSetup, Runtime

Word = tuple[str, str]
"""A word and where it stands."""

_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
_PROGRAMS = re.compile(r"\b(vllm\s+serve|vllm\.entrypoints|llama-server|headrace\s+serve)\b")
# Variables that are settings.
_VARIABLE = re.compile(r"(LLAMA_ARG_[A-Z_]+|VLLM_ATTENTION_BACKEND)=(.*)", re.DOTALL)
_IMAGES: tuple[tuple[re.Pattern[str], Runtime], ...] = (
    (re.compile(r"vllm-openai|vllm/vllm"), "vllm"),
    (re.compile(r"llama\.cpp[:/\w-]*server"), "llama.cpp"),
    (re.compile(r"(^|/)headrace\b"), "headrace"),
)
_START = re.compile(r"^(ExecStart\s*=\s*[-@:+!]*|Environment\s*=\s*|export\s+)")
_ENDS = ("&&", "||", "|", ";", "&", ">", ">>", "2>", "2>&1", "<")


@dataclass(frozen=True)
class Container:
    """A service of compose or a container of Kubernetes. words: entrypoint, command and args."""

    image: str
    words: tuple[Word, ...]
    variables: Mapping[str, Word] = field(default_factory=dict)
    where: str = ""


def setup_of_words(words: Sequence[Word], where: str) -> EngineSetup | None:
    """Of the words of one command; None where it starts none of the three engines."""
    found = _program(words)
    if found is None:
        return None
    runtime, after, variables = found
    return engine_setup(runtime, where, [*variables, *written_words(runtime, after)])


def setup_of_container(container: Container) -> EngineSetup | None:
    """Of a container, by its command or, where that only has flags, by its image."""
    variables = [
        Written(_variable_name(name), value, place)
        for name, (value, place) in container.variables.items()
        if _VARIABLE.fullmatch(f"{name}={value}")
    ]
    found = _program(container.words)
    if found is not None:
        runtime, after, before = found
        return engine_setup(
            runtime, container.where, [*variables, *before, *written_words(runtime, after)]
        )
    for pattern, runtime in _IMAGES:
        if pattern.search(container.image):
            words = [one for one in container.words if one[0] not in ("serve", "vllm")]
            written = [*variables, *written_words(runtime, words)]
            return engine_setup(runtime, container.where, written)
    return None


def setups_of_text(text: str, name: str) -> Iterator[EngineSetup]:
    """Of every command of a script or a unit. Raises ConfigError for quotes that do not close."""
    variables: list[Written] = []
    for line, parts in _joined_lines(text):
        where = f"{name}:{line}"
        content = " ".join(parts).strip()
        if content.startswith(("#", ";")):
            continue
        content = _START.sub("", content)
        told = _VARIABLE.fullmatch(content.strip("\"'"))
        if told is not None:
            value = told[2].strip("\"'")
            variables.append(Written(_variable_name(told[1]), value, where))
            continue
        if not _PROGRAMS.search(content):
            continue
        found = _program(_placed(parts, content, name, line))
        if found is not None:
            runtime, after, before = found
            written = [*_of_runtime(variables, runtime), *before, *written_words(runtime, after)]
            yield engine_setup(runtime, where, written)


def split(text: str, where: str) -> list[str]:
    """As a shell splits. Raises ConfigError."""
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}; the command cannot be split into words") from error


def has_command(text: str) -> bool:
    """Whether it names one of the three engines' servers."""
    return bool(_PROGRAMS.search(text))


def _placed(parts: Sequence[str], content: str, name: str, line: int) -> list[Word]:
    """Words with their own lines; with the first one's where quotes go over several."""
    try:
        return [
            (word, f"{name}:{line + at}")
            for at, part in enumerate(parts)
            for word in shlex.split(_START.sub("", part.strip()) if at == 0 else part)
        ]
    except ValueError:
        return [(word, f"{name}:{line}") for word in split(content, f"{name}:{line}")]


def _joined_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Lines with their numbers; one that ends in a backslash goes on in the next."""
    first = 0
    parts: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        first = first if parts else number
        if line.endswith("\\"):
            parts.append(line[:-1])
            continue
        yield first, [*parts, line]
        parts = []
    if parts:
        yield first, parts


def _program(words: Sequence[Word]) -> tuple[Runtime, list[Word], list[Written]] | None:
    """The engine, the words after it, and settings in variables before it."""
    variables: list[Written] = []
    for at, (word, where) in enumerate(words):
        told = _VARIABLE.fullmatch(word)
        if told is not None:
            variables.append(Written(_variable_name(told[1]), told[2], where))
        name = PurePath(word).name
        follows = words[at + 1][0] if at + 1 < len(words) else ""
        runtime: Runtime | None = None
        skipped = 1
        if name == "llama-server":
            runtime = "llama.cpp"
        elif name in ("vllm", "headrace") and follows == "serve":
            runtime, skipped = ("vllm" if name == "vllm" else "headrace"), 2
        elif word in _MODULES or name.startswith("vllm-openai"):
            runtime = "vllm"
        elif "llama.cpp:server" in word:
            runtime = "llama.cpp"
        if runtime is not None:
            return runtime, _until_end(words[at + skipped :]), _of_runtime(variables, runtime)
    return None


def _until_end(words: Iterable[Word]) -> list[Word]:
    found: list[Word] = []
    for one in words:
        if one[0] in _ENDS:
            break
        found.append(one)
    return found


def _of_runtime(variables: Iterable[Written], runtime: Runtime) -> list[Written]:
    start = {"vllm": "VLLM", "llama.cpp": "LLAMA"}.get(runtime, "-")
    return [one for one in variables if one.name.startswith(start)]


def _variable_name(name: str) -> str:
    return name.replace("_", "-") if name.startswith("LLAMA") else name
