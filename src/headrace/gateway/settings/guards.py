"""Guardrails of the file: what is looked for in requests and answers, and what is done then."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headrace.errors import ConfigError
from headrace.gateway.pii.span import KINDS, PiiKind
from headrace.gateway.settings.provider import SecretText, Text

GuardKind = Literal[
    "pii", "regex", "json_schema", "max_tokens", "allowed_tools", "python", "webhook"
]

Role = Literal["system", "user", "assistant", "tool"]
"""Who wrote a text of a conversation; `developer` counts as system, `function` as tool."""

GuardAction = Literal["block", "redact", "warn", "monitor", "cap"]

_LOOKS: tuple[GuardAction, ...] = ("block", "warn", "monitor")
_ACTIONS: dict[GuardKind, tuple[GuardAction, ...]] = {
    "pii": (*_LOOKS, "redact"),
    "regex": (*_LOOKS, "redact"),
    "json_schema": _LOOKS,
    "max_tokens": (*_LOOKS, "cap"),
    "allowed_tools": _LOOKS,
    "python": (*_LOOKS, "redact"),
    "webhook": (*_LOOKS, "redact"),
}
# Fields that say something for some kinds alone, and whether those cannot do without.
_OF_KINDS: dict[str, tuple[tuple[GuardKind, ...], bool]] = {
    "find": (("pii",), False),
    "restore": (("pii", "regex"), False),
    "replacement": (("regex",), False),
    "patterns": (("regex",), True),
    "schema": (("json_schema",), True),
    "most": (("max_tokens",), True),
    "allow": (("allowed_tools",), False),
    "deny": (("allowed_tools",), False),
    "function": (("python",), True),
    "url": (("webhook",), True),
    "headers": (("webhook",), False),
    "secret": (("webhook",), False),
}


class GuardrailSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One guardrail, by name. Which fields count hangs on `kind`."""

    kind: Annotated[GuardKind, Meta(description="What it looks for, or who does.")]
    on: Annotated[
        Literal["input", "output", "both"],
        Meta(
            description="Whether it looks at requests or at answers. Of `max_tokens` input is the "
            "prompt's length, output what the request allows the answer."
        ),
    ] = "both"
    action: Annotated[
        GuardAction,
        Meta(
            description="`block` refuses, `redact` replaces, `warn` tells in a header and the "
            "ledger, `monitor` only counts and logs, `cap` (of max_tokens on output) lowers."
        ),
    ] = "block"
    default: Annotated[
        bool, Meta(description="Whether it holds for every request, whatever model and key.")
    ] = False
    roles: Annotated[
        tuple[Role, ...],
        Meta(description="Whose texts of a request it looks at; all if not given."),
    ] = ()
    message: Annotated[
        Text | None, Meta(description="Told to who is refused, in place of what was found.")
    ] = None
    find: Annotated[
        tuple[PiiKind, ...], Meta(description="Of pii: kinds of personal data and secrets.")
    ] = ()
    patterns: Annotated[
        tuple[Text, ...],
        Meta(
            description="Of regex: patterns in RE2's syntax (`pip install 'headrace[guardrails]'`)."
        ),
    ] = ()
    replacement: Annotated[
        Text | None, Meta(description="Of regex: what stands in place of a match. [REDACTED]")
    ] = None
    restore: Annotated[
        bool,
        Meta(
            description="Of pii and regex with redact on input: the answer has the originals "
            "again where the model wrote what stood in their place."
        ),
    ] = False
    window_chars: Annotated[
        int,
        Meta(
            ge=16,
            le=65_536,
            description="How much of a stream is held back to see whether it is part of a match; "
            "a longer match of a pattern without a longest one may be seen too late.",
        ),
    ] = 256
    schema: Annotated[
        str | dict[str, Any] | None,
        Meta(description="Of json_schema: a file beside this one, or the schema itself."),
    ] = None
    most: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Of max_tokens: the limit.")
    ] = None
    allow: Annotated[
        tuple[Text, ...],
        Meta(description="Of allowed_tools: names and globs; all if not given."),
    ] = ()
    deny: Annotated[
        tuple[Text, ...], Meta(description="Of allowed_tools: names and globs; wins over allow.")
    ] = ()
    function: Annotated[
        Text | None,
        Meta(description="Of python: `module:function`, found in this file's folder too."),
    ] = None
    url: Annotated[Text | None, Meta(description="Of webhook: where it is asked.")] = None
    headers: Annotated[
        dict[Text, SecretText], Meta(description="Of webhook: sent along; env:NAME, file:PATH.")
    ] = msgspec.field(default_factory=dict)
    secret: Annotated[
        SecretText | None,
        Meta(
            description="Of webhook: signs each question in X-Headrace-Signature, as `alerts` are."
        ),
    ] = None
    timeout_s: Annotated[
        float, Meta(gt=0, le=60, description="Of python and webhook: longer is a failure.")
    ] = 2.0
    on_error: Annotated[
        Literal["block", "allow"],
        Meta(description="Of python and webhook: what becomes of a request it failed for."),
    ] = "block"

    def __post_init__(self) -> None:
        allowed = _ACTIONS[self.kind]
        if self.action not in allowed:
            raise ConfigError(f"action: {self.kind} can {', '.join(allowed)}, not {self.action}")
        for name, (kinds, needed) in _OF_KINDS.items():
            given = getattr(self, name) not in (None, (), False, {})
            if given and self.kind not in kinds:
                raise ConfigError(f"{name}: says nothing for {self.kind}; leave it out")
            if needed and not given and self.kind in kinds:
                raise ConfigError(f"{name}: {self.kind} needs it")
        if self.kind == "allowed_tools" and not (self.allow or self.deny):
            raise ConfigError("allow: allowed_tools needs allow or deny")
        if self.restore and (self.action != "redact" or self.on == "output"):
            raise ConfigError("restore: needs action redact, on input or both")
        if self.action == "cap" and self.on != "output":
            raise ConfigError("on: cap is of output; a prompt is not made shorter")
        if self.kind == "json_schema" and self.on != "output":
            raise ConfigError("on: json_schema looks at answers; write `on: output`")

    def __repr__(self) -> str:
        return f"<settings of a guardrail of {self.kind}>"

    @property
    def kinds(self) -> tuple[PiiKind, ...]:
        """What pii looks for."""
        return self.find or KINDS
