"""A prompt with its versions, and which of them a request gets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.config.load import nearest
from headrace.errors import RequestError, TemplateError, shown
from headrace.gateway.prompts.template import MissingVariablesError, Template
from headrace.gateway.settings.prompts import PromptRole

PRODUCTION = "production"


class TemplateMessage(NamedTuple):
    """A message of a template."""

    role: PromptRole
    content: Template
    """The text, with variables."""


class Said(NamedTuple):
    """A message as it is sent."""

    role: PromptRole
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """One version of a prompt."""

    prompt: str
    name: str
    messages: tuple[TemplateMessage, ...]
    model: str | None
    """For requests that name none."""
    parameters: Mapping[str, Any]
    """For requests that do not set them."""
    variables: tuple[str, ...]
    """Names of the variables in its texts."""

    @property
    def full_name(self) -> str:
        """The name in headers and the ledger."""
        return f"{self.prompt}@{self.name}"

    def said(self, variables: Mapping[str, Any]) -> tuple[Said, ...]:
        """Raises RequestError naming variables that are missing or unknown."""
        unknown = [variable for variable in variables if variable not in self.variables]
        if unknown:
            known = f"it takes {', '.join(self.variables)}" if self.variables else "it takes none"
            raise RequestError(
                f"{self.full_name}: unknown variables {', '.join(map(shown, unknown[:16]))}; "
                f"{known}",
                param="prompt.variables",
            )
        missing: dict[str, None] = {}
        said = []
        for message in self.messages:
            try:
                said.append(Said(message.role, message.content.rendered(variables)))
            except MissingVariablesError as error:
                missing |= dict.fromkeys(error.names)
            except TemplateError as error:
                raise RequestError(f"{self.full_name}: {error}", param="prompt.variables") from None
        if missing:
            raise RequestError(
                f"{self.full_name}: prompt.variables lacks {', '.join(map(shown, missing))}",
                param="prompt.variables",
            )
        return tuple(said)


class Prompt:
    """A prompt with its versions and labels, by name; a label has versions with their weights."""

    def __init__(
        self,
        name: str,
        versions: Mapping[str, Version],
        labels: Mapping[str, Mapping[str, float]],
    ) -> None:
        self.name = name
        self.versions = versions
        self.labels = labels

    def version(self, name: str) -> Version:
        """Raises RequestError."""
        found = self.versions.get(name)
        if found is None:
            raise RequestError(
                f"prompt {shown(self.name)} has no version {shown(name)}; there are "
                f"{', '.join(self.versions)}",
                param="prompt.version",
            )
        return found

    def labelled(self, label: str | None, who: str) -> Version:
        """The version of a label; None: production, else the highest version. who: the same subject
        gets the same version.

        Raises RequestError.
        """
        if label is None:
            if PRODUCTION not in self.labels:
                return self.versions[max(self.versions, key=_order)]
            label = PRODUCTION
        weights = self.labels.get(label)
        if weights is None:
            known = nearest(label, self.labels) or f"; there are {', '.join(self.labels)}"
            raise RequestError(
                f"prompt {shown(self.name)} has no label {shown(label)}{known}",
                param="prompt.label",
            )
        if len(weights) == 1:
            return self.versions[next(iter(weights))]
        digest = hashlib.sha256(f"{self.name}\0{label}\0{who}".encode(errors="replace")).digest()
        place = int.from_bytes(digest[:8]) / 2**64 * sum(weights.values())
        for name, weight in weights.items():
            place -= weight
            if place < 0:
                return self.versions[name]
        return self.versions[name]


def _order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Numbers within names count as numbers: 10 is above 9, 1.10 above 1.9."""
    return tuple(
        (1, int(part), "") if part.isascii() and part.isdigit() else (0, 0, part)
        for part in name.split(".")
    )
