"""What checks get: one of each thing to look at, and what is known around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from headrace.catalog import Catalog
from headrace.catalog.rows.hardware import Hardware
from headrace.plan.lint.engine_setup import EngineSetup
from headrace.plan.lint.finding import Needs
from headrace.plan.lint.gateway_setup import GatewaySetup
from headrace.plan.lint.prompt_file import Prompts
from headrace.plan.model.model_shape import ModelShape
from headrace.plan.run_file import Run
from headrace.text.tokenizer import Tokenizer

Encode: TypeAlias = Callable[[str], list[int]]


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """A checkpoint on this disk, as far as checks look at it."""

    name: str
    format: str
    templates: Mapping[str, str]
    """Chat templates by name."""
    tokenizer: Tokenizer | None = None
    quantization: Mapping[str, object] = field(default_factory=dict)
    imatrix: str = ""
    """The file that weighted its quantization; "" where it names none."""
    kinds: Mapping[str, int] = field(default_factory=dict)
    """Storage kinds of its tensors with their bytes."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The subject of a check: one of each, None where there is none."""

    catalog: Catalog
    engine: EngineSetup | None = None
    gateway: GatewaySetup | None = None
    run: Run | None = None
    runs: tuple[Run, ...] = ()
    """All that were named."""
    prompts: Prompts | None = None
    shape: ModelShape | None = None
    draft_shape: ModelShape | None = None
    """With `shape` and `files`: of the engine's model; `lacks` says why one is None."""
    files: ModelFiles | None = None
    tokenizer: Tokenizer | None = None
    """The tokenizer that was named, or the model's."""
    tokenizer_name: str = ""
    other_tokenizer: Tokenizer | None = None
    template: str | None = None
    """Text of the file that --chat-template names."""
    hardware: Hardware | None = None
    """Row of one device."""
    hardware_name: str = ""
    devices: int = 1
    """How many."""
    quantization: str | None = None
    """Id of the catalog that was named. tested: that a quality evaluation was named."""
    evaluation: str | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)

    def need(self, name: str, usual: str) -> Needs:
        """What to say where `name` is None: why it could not be had, or what to give."""
        return Needs(self.lacks.get(name, usual))

    def encode(self, text: str) -> list[int] | None:
        """Token ids of a text as it is, without beginning and end; None without a tokenizer."""
        if self.tokenizer is None:
            return None
        return self.tokenizer.encode(text, add_special_tokens=False, parse_special=False)
