"""Guardrails of the file: what is looked for in requests and answers, and what is done then."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headrace.config.nested import formerly
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
    "max_tokens": (("max_tokens",), True),
    "allow": (("allowed_tools",), False),
    "deny": (("allowed_tools",), False),
    "function": (("python",), True),
    "url": (("webhook",), True),
    "headers": (("webhook",), False),
    "secret": (("webhook",), False),
}


class GuardrailSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One guardrail, by name. Which settings apply depends on `kind`."""

    kind: Annotated[GuardKind, Meta(description="The kind of check.")]
    on: Annotated[
        Literal["input", "output", "both"],
        Meta(
            description="Whether it checks requests or answers. For `max_tokens`, input is the "
            "length "
            "of the prompt and output is the length that the request allows the answer."
        ),
    ] = "both"
    action: Annotated[
        GuardAction,
        Meta(
            description="`block` refuses, `redact` replaces, `warn` reports in a header and the "
            "ledger, "
            "`monitor` only counts and logs, `cap` (of max_tokens on output) lowers the "
            "limit."
        ),
    ] = "block"
    default: Annotated[
        bool, Meta(description="Whether it applies to every request, whatever its model and key.")
    ] = False
    roles: Annotated[
        tuple[Role, ...],
        Meta(description="Roles whose texts of a request are checked; all if omitted."),
    ] = ()
    message: Annotated[
        Text | None, Meta(description="Message to a refused client, instead of the reason.")
    ] = None
    find: Annotated[
        tuple[PiiKind, ...], Meta(description="For pii: kinds of personal data and secrets.")
    ] = ()
    patterns: Annotated[
        tuple[Text, ...],
        Meta(
            description="For regex: patterns in RE2's syntax (`pip install "
            "'headrace[guardrails]'`)."
        ),
    ] = ()
    replacement: Annotated[
        Text | None, Meta(description="For regex: the replacement of a match. [REDACTED]")
    ] = None
    restore: Annotated[
        bool,
        Meta(
            description="For pii and regex with redact on input: whether the original texts are "
            "put "
            "back into the answer where the model repeats the replacements."
        ),
    ] = False
    window_chars: Annotated[
        int,
        Meta(
            ge=16,
            le=65_536,
            description="How many characters of a stream are held back to detect a match that is "
            "not "
            "complete yet. A longer match of an unbounded pattern may be detected too late.",
        ),
    ] = 256
    schema: Annotated[
        str | dict[str, Any] | None,
        Meta(description="For json_schema: a file beside this one, or the schema itself."),
    ] = None
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="For max_tokens: the limit."),
        formerly("most"),
    ] = None
    allow: Annotated[
        tuple[Text, ...],
        Meta(description="For allowed_tools: names and globs; all if omitted."),
    ] = ()
    deny: Annotated[
        tuple[Text, ...], Meta(description="For allowed_tools: names and globs; wins over allow.")
    ] = ()
    function: Annotated[
        Text | None,
        Meta(description="For python: `module:function`; this file's folder is searched too."),
    ] = None
    url: Annotated[Text | None, Meta(description="For webhook: the URL that is called.")] = None
    headers: Annotated[
        dict[Text, SecretText],
        Meta(description="For webhook: headers to send; env:NAME, file:PATH."),
    ] = msgspec.field(default_factory=dict)
    secret: Annotated[
        SecretText | None,
        Meta(
            description="For webhook: the secret that signs each call in X-Headrace-Signature, as "
            "for "
            "`alerts`."
        ),
    ] = None
    timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            le=60,
            description="For python and webhook: time limit; exceeding it is a failure.",
        ),
    ] = 2.0
    on_error: Annotated[
        Literal["block", "allow"],
        Meta(
            description="For python and webhook: what happens to a request for which the check "
            "failed."
        ),
    ] = "block"

    def __post_init__(self) -> None:
        allowed = _ACTIONS[self.kind]
        if self.action not in allowed:
            raise ConfigError(f"action: {self.kind} can {', '.join(allowed)}, not {self.action}")
        for name, (kinds, needed) in _OF_KINDS.items():
            given = getattr(self, name) not in (None, (), False, {})
            if given and self.kind not in kinds:
                raise ConfigError(f"{name}: has no effect for {self.kind}; remove it")
            if needed and not given and self.kind in kinds:
                raise ConfigError(f"{name}: is required for {self.kind}")
        if self.kind == "allowed_tools" and not (self.allow or self.deny):
            raise ConfigError("allow: allowed_tools needs allow or deny")
        if self.restore and (self.action != "redact" or self.on == "output"):
            raise ConfigError("restore: needs action redact, on input or both")
        if self.action == "cap" and self.on != "output":
            raise ConfigError("on: cap applies to output; a prompt cannot be shortened")
        if self.kind == "json_schema" and self.on != "output":
            raise ConfigError("on: json_schema checks answers; write `on: output`")

    def __repr__(self) -> str:
        return f"<settings of a guardrail of {self.kind}>"

    @property
    def kinds(self) -> tuple[PiiKind, ...]:
        """The kinds that pii looks for."""
        return self.find or KINDS
