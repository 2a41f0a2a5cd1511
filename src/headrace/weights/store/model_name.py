"""MODEL arguments that name something other than a path: hub ids and Ollama's names.

    org/name                      a repository of the hub
    org/name:Q4_K_M               its GGUF model of that kind (split files: all pieces)
    org/name/file.gguf            one file of it
    org/name@revision             a branch, tag or commit; also before ":" or "/"
    hf://org/name, a hub URL      the same, said outright
    ollama://name:tag             a model of Ollama's store

Says nothing of whether the thing exists, here or anywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from headrace.errors import ConfigError

DEFAULT_REVISION = "main"
DEFAULT_TAG = "latest"

_PART = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9_])?"
# Revisions with a slash are those the hub makes: refs/pr/1 and refs/convert/parquet.
_REVISION = r"@(?P<{}>refs/[\w.-]+/[\w.-]+|[\w.-]+)"
_HUB = re.compile(
    rf"(?P<repo>{_PART}/{_PART})(?:{_REVISION.format('before')})?"
    rf"(?::(?P<quant>[\w.-]+)|/(?P<file>[^:@]+\.gguf))?(?:{_REVISION.format('after')})?",
    re.ASCII,
)
# gpt2 and its like, from before repositories had owners; only where hf:// says what is meant.
_BARE_HUB = re.compile(_HUB.pattern.replace(f"{_PART}/{_PART}", _PART, 1), re.ASCII)
_URL = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/(?P<rest>.+)")
_URL_FILE = re.compile(r"(?P<repo>[^/]+/[^/]+)/(?:blob|resolve|tree)/(?P<rev>[^/?]+)/?(?P<file>.*)")
_OLLAMA = re.compile(rf"(?:{_PART}(?::\d+)?/)?(?:{_PART}/)?{_PART}(?::[\w.-]+)?", re.ASCII)

# Endings that make "folder/name" a path, whether or not it is there.
_FILES = (".gguf", ".safetensors", ".bin", ".json")


@dataclass(frozen=True)
class HubModel:
    """A model of the hub. quant: as in file names, "Q4_K_M"; file: its path in the repository."""

    repo: str
    revision: str = DEFAULT_REVISION
    quant: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        """The shortest way to write it."""
        revision = "" if self.revision == DEFAULT_REVISION else f"@{self.revision}"
        if self.file is not None:
            return f"{self.repo}{revision}/{self.file}"
        return self.repo + (f":{self.quant}" if self.quant else "") + revision


@dataclass(frozen=True)
class OllamaModel:
    """A model of Ollama's store, by the parts of its manifest's path."""

    name: str
    tag: str = DEFAULT_TAG
    namespace: str = "library"
    host: str = "registry.ollama.ai"

    def __str__(self) -> str:
        """As `ollama list` writes it."""
        short = f"{self.name}:{self.tag}"
        if self.host != "registry.ollama.ai":
            return f"{self.host}/{self.namespace}/{short}"
        return short if self.namespace == "library" else f"{self.namespace}/{short}"


def hub_model(text: str) -> HubModel | None:
    """`text` as a model of the hub; None where it does not look like one.

    A text that begins with hf:// or the hub's address and is none raises ConfigError.
    """
    if text.startswith("hf://"):
        rest, outright = text.removeprefix("hf://").removeprefix("models/"), True
    elif url := _URL.fullmatch(text):
        rest, outright = url["rest"].split("?")[0].strip("/"), True
        if inner := _URL_FILE.fullmatch(rest):
            rest = f"{inner['repo']}@{inner['rev']}"
            if inner["file"].endswith(".gguf"):
                rest += f"/{inner['file']}"
    else:
        rest, outright = text, False
    match = _HUB.fullmatch(rest) or (_BARE_HUB.fullmatch(rest) if outright else None)
    parts = match["file"].split("/") if match and match["file"] else []
    if match is None or (match["before"] and match["after"]) or {"", ".", ".."} & set(parts):
        if outright:
            raise ConfigError(
                f"{text}: not a model of the hub; hf://org/name, hf://org/name:Q4_K_M, "
                "hf://org/name/file.gguf or one of these with @revision is required"
            )
        return None
    if not outright and match["repo"].endswith(_FILES):
        return None  # a file in a folder
    revision = match["before"] or match["after"] or DEFAULT_REVISION
    return HubModel(match["repo"], revision, match["quant"], match["file"])


def ollama_model(text: str) -> OllamaModel | None:
    """`text` (with or without ollama://) as a name of Ollama's; None where it is none.

    A text that begins with ollama:// and is none raises ConfigError.
    """
    rest = text.removeprefix("ollama://")
    if not _OLLAMA.fullmatch(rest):
        if rest != text:
            raise ConfigError(f"{text}: not a name of Ollama's; ollama://name:tag is required")
        return None
    path, slash, last = rest.rpartition("/")
    name, _, tag = last.partition(":")
    host, _, namespace = path.rpartition("/") if slash else ("", "", "library")
    return OllamaModel(name, tag or DEFAULT_TAG, namespace, host or "registry.ollama.ai")


def is_explicit(text: str) -> Literal["hf", "ollama"] | None:
    """The kind a text says outright that it is of."""
    if text.startswith("ollama://"):
        return "ollama"
    return "hf" if text.startswith("hf://") or _URL.fullmatch(text) else None
