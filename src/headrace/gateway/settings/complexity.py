"""A model that chooses another one by how hard a request is."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.config.nested import formerly
from headrace.errors import ConfigError
from headrace.gateway.pii.expression import expression_of
from headrace.gateway.settings.provider import Text
from headrace.gateway.settings.reliability import Seconds

Tokens = Annotated[int, Meta(ge=0, le=100_000_000)]
Probability = Annotated[float, Meta(ge=0, le=1)]
Part = Literal["conversation", "last_turn"]
ChooseBy = Literal["rules", "length", "classifier", "model"]

# Enough to tell what is wanted; a router model that reads a whole book is no help.
MOST_ROUTER_CHARS = 4000


class ConditionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on a request; all that are given must hold."""

    code: Annotated[
        bool | None, Meta(description="Whether it contains program code or an error trace.")
    ] = None
    tools: Annotated[bool | None, Meta(description="Whether it offers tools.")] = None
    images: Annotated[bool | None, Meta(description="Whether it contains images.")] = None
    json: Annotated[bool | None, Meta(description="Whether the answer has to be JSON.")] = None
    tokens_over: Annotated[
        Tokens | None, Meta(description="More than this many tokens, estimated.")
    ] = None
    tokens_under: Annotated[
        Tokens | None, Meta(description="Fewer than this many tokens, estimated.")
    ] = None
    turns_over: Annotated[Tokens | None, Meta(description="More than this many user turns.")] = None
    matches: Annotated[
        str | None, Meta(description="An RE2 expression that matches in its text.")
    ] = None
    of: Annotated[
        Part | None,
        Meta(
            description="Where code, tokens and matches are looked for: the user's `last_turn` or "
            "the "
            "whole `conversation`. By default tokens are counted in the conversation and "
            "the others looked for in the last turn."
        ),
    ] = None

    def __post_init__(self) -> None:
        named = (getattr(self, name) for name in self.__struct_fields__ if name != "of")
        if all(one is None for one in named):
            raise ValueError("a condition is expected, as `code: true` or `tokens_over: 4000`")
        if self.matches is not None:
            try:
                expression_of(self.matches)
            except ConfigError as error:
                raise ValueError(f"matches: {error}") from None


class ChoiceRuleSettings(msgspec.Struct, frozen=True, kw_only=True, rename={"when": "if"}):
    """A rule that chooses a model if its conditions hold. The first rule that holds decides."""

    when: ConditionSettings
    use: Annotated[Text, Meta(description="The model that is then used.")]


class LengthStepSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A model for requests of more than so many tokens."""

    tokens_over: Tokens
    use: Annotated[Text, Meta(description="The model that is then used.")]


class ClassifierSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The built-in classifier, a heuristic for English requests; docs/gateway-routing.md has its
    measured quality."""

    hard: Annotated[Text, Meta(description="The model for hard requests.")]
    threshold: Annotated[
        Probability, Meta(description="Probability from which a request counts as hard.")
    ] = 0.5


class RouterModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A model that classifies requests; its answers are billed to the same key."""

    ask: Annotated[Text, Meta(description="The router model, a model of this file.")]
    classes: Annotated[
        dict[Text, Text], Meta(min_length=2, description="Models by the name of the class.")
    ]
    prompt: Annotated[
        str | None,
        Meta(
            description="Its instruction, instead of the built-in one; {classes} is replaced by "
            "the class "
            "names."
        ),
    ] = None
    timeout_ms: Annotated[
        int, Meta(ge=1, le=60_000, description="Longest wait for its answer.")
    ] = 800
    on_error: Annotated[
        Text | None,
        Meta(description="The model used if there is no answer in time. [default]"),
    ] = None
    max_tokens: Annotated[int, Meta(ge=1, le=4096, description="Limit of tokens it generates.")] = 5
    expected_s: Annotated[
        Seconds | None, Meta(description="How long it takes, for `explain` without a ledger.")
    ] = None


class ChooseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A choice between models for each request, by how hard it is."""

    by: ChooseBy
    default: Annotated[
        Text, Meta(description="The model used where no other is chosen."), formerly("otherwise")
    ]
    rules: Annotated[
        tuple[ChoiceRuleSettings, ...],
        Meta(
            description="Rules that are tried before anything else; the first that holds decides."
        ),
    ] = ()
    length: Annotated[
        tuple[LengthStepSettings, ...],
        Meta(
            description="Steps by length; of those exceeded, the one with the most tokens decides."
        ),
    ] = ()
    length_of: Annotated[Part, Meta(description="How a request's difficulty is measured.")] = (
        "conversation"
    )
    classifier: ClassifierSettings | None = None
    model: RouterModelSettings | None = None
    per_turn: Annotated[
        bool,
        Meta(
            description="Whether the model is chosen again for each turn. Otherwise a conversation "
            "that once got another model than `default` keeps it, and the router model is called "
            "once."
        ),
    ] = False

    def __post_init__(self) -> None:
        if not getattr(self, self.by):
            raise ValueError(f"by: {self.by} needs `{self.by}`, which is missing")
        for name in ("length", "classifier", "model"):
            if name != self.by and getattr(self, name):
                raise ValueError(f"{name}: has no effect with by: {self.by}; remove it")

    @property
    def models(self) -> tuple[str, ...]:
        """All it may choose, each once, `default` first."""
        found = [self.default, *(rule.use for rule in self.rules)]
        found += [one.use for one in self.length]
        if self.classifier is not None:
            found.append(self.classifier.hard)
        if self.model is not None:
            found += [*self.model.classes.values()]
            found += [self.model.on_error] if self.model.on_error else []
        return tuple(dict.fromkeys(found))
