"""Prompt templates of the file: versions that do not change, and labels that point to them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headrace.errors import ConfigError, shown
from headrace.gateway.settings.provider import Text

PromptRole = Literal["system", "developer", "user", "assistant"]


class PromptMessageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """content: a Jinja template; `{{name}}` is a variable of the request."""

    role: PromptRole
    content: Annotated[Text, Meta(description="What is said, with `{{name}}` for variables.")]


class PromptVersionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One version. `2: file:prompts/two.yaml` is the short form of one in a file of its own."""

    file: Annotated[
        Text | None, Meta(description="A file with all of this; a path from this file's folder.")
    ] = None
    messages: Annotated[
        tuple[PromptMessageSettings, ...],
        Meta(description="Put before what the client says; system ones where its dialect wants."),
    ] = ()
    model: Annotated[Text | None, Meta(description="Asked if the request names none.")] = None
    parameters: Annotated[
        dict[Text, Any],
        Meta(description="Such as temperature or max_tokens, where the request does not say."),
    ] = msgspec.field(default_factory=dict)
    example: Annotated[
        dict[Text, Any] | None,
        Meta(description="Variables that `headrace gateway check` renders it with."),
    ] = None


class PromptSettings(msgspec.Struct, frozen=True, kw_only=True):
    """By the name that requests give. A label may point to several versions, by weight."""

    versions: Annotated[
        dict[Text, PromptVersionSettings], Meta(description="By number or name.")
    ] = msgspec.field(default_factory=dict)
    labels: Annotated[
        dict[Text, dict[Text, Annotated[float, Meta(gt=0, le=1e6)]]],
        Meta(
            description="`production: 2`, or `production: {1: 90, 2: 10}` for an A/B test in which "
            "a user or session keeps its version. Requests that name neither get `production`, "
            "else the highest version."
        ),
    ] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.versions:
            raise ConfigError("versions: at least one is needed")
        for label, versions in self.labels.items():
            if label in self.versions:
                raise ConfigError(f"labels.{label}: there is a version of that name; rename one")
            if not versions:
                raise ConfigError(f"labels.{label}: name a version")
            for version in versions:
                if version not in self.versions:
                    known = ", ".join(self.versions)
                    raise ConfigError(
                        f"labels.{label}: {shown(version)} is no version; there are {known}"
                    )
