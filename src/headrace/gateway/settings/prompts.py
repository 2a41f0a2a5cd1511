"""Prompt templates of the file: versions that do not change, and labels that point to them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headrace.errors import ConfigError, shown
from headrace.gateway.settings.provider import Text

PromptRole = Literal["system", "developer", "user", "assistant"]


class PromptMessageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a template."""

    role: PromptRole
    content: Annotated[Text, Meta(description="The text, with `{{name}}` for variables.")]


class PromptVersionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One version. `2: file:prompts/two.yaml` is the short form of one in a file of its own."""

    file: Annotated[
        Text | None,
        Meta(description="A file with all of this; a path relative to this file's folder."),
    ] = None
    messages: Annotated[
        tuple[PromptMessageSettings, ...],
        Meta(
            description="Messages put before the client's; system messages go where its dialect "
            "puts them."
        ),
    ] = ()
    model: Annotated[Text | None, Meta(description="The model, if the request names none.")] = None
    parameters: Annotated[
        dict[Text, Any],
        Meta(
            description="Parameters such as temperature or max_tokens, for requests that do not "
            "set them."
        ),
    ] = msgspec.field(default_factory=dict)
    example: Annotated[
        dict[Text, Any] | None,
        Meta(description="Variables that `headrace gateway check` renders it with."),
    ] = None


class PromptSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt template, by the name that requests give. A label may point to several versions, by
    weight."""

    versions: Annotated[
        dict[Text, PromptVersionSettings], Meta(description="Versions by number or name.")
    ] = msgspec.field(default_factory=dict)
    labels: Annotated[
        dict[Text, dict[Text, Annotated[float, Meta(gt=0, le=1e6)]]],
        Meta(
            description="`production: 2`, or `production: {1: 90, 2: 10}` for an A/B test in "
            "which a "
            "user or session keeps its version. Requests that name neither a version nor a "
            "label get `production`, or else the highest version."
        ),
    ] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.versions:
            raise ConfigError("versions: at least one is required")
        for label, versions in self.labels.items():
            if label in self.versions:
                raise ConfigError(f"labels.{label}: a version has that name; rename one")
            if not versions:
                raise ConfigError(f"labels.{label}: name a version")
            for version in versions:
                if version not in self.versions:
                    known = ", ".join(self.versions)
                    raise ConfigError(
                        f"labels.{label}: {shown(version)} is not a version; there are {known}"
                    )
