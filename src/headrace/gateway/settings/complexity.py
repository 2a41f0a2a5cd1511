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
    """What a request must be; all that is said must hold."""

    code: Annotated[
        bool | None, Meta(description="Whether there is program code or an error trace in it.")
    ] = None
    tools: Annotated[bool | None, Meta(description="Whether it offers tools.")] = None
    images: Annotated[bool | None, Meta(description="Whether there are pictures in it.")] = None
    json: Annotated[bool | None, Meta(description="Whether JSON is wanted as the answer.")] = None
    tokens_over: Annotated[
        Tokens | None, Meta(description="More tokens than that, by estimate.")
    ] = None
    tokens_under: Annotated[
        Tokens | None, Meta(description="Fewer tokens than that, by estimate.")
    ] = None
    turns_over: Annotated[Tokens | None, Meta(description="More turns of the user than that.")] = (
        None
    )
    matches: Annotated[
        str | None, Meta(description="An expression of RE2 that is found in its text.")
    ] = None
    of: Annotated[
        Part | None,
        Meta(
            description="What code, tokens and matches are looked for in: the `last_turn` of the "
            "user or the whole `conversation`. Unsaid, tokens are of the conversation and the "
            "others of the last turn."
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
    """if: what must hold. The first rule that does decides."""

    when: ConditionSettings
    use: Annotated[Text, Meta(description="The model that is asked then.")]


class LengthStepSettings(msgspec.Struct, frozen=True, kw_only=True):
    """From so many tokens on."""

    tokens_over: Tokens
    use: Annotated[Text, Meta(description="The model that is asked then.")]


class ClassifierSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The classifier of this package: a heuristic for English requests; docs/gateway-routing.md has
    what was measured of it."""

    hard: Annotated[Text, Meta(description="The model for hard requests.")]
    threshold: Annotated[
        Probability, Meta(description="From this probability on a request counts as hard.")
    ] = 0.5


class RouterModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is asked which class a request is of; its answer is billed to the same key."""

    ask: Annotated[Text, Meta(description="The router model, a model of this file.")]
    classes: Annotated[
        dict[Text, Text], Meta(min_length=2, description="Models by the name of the class.")
    ]
    prompt: Annotated[
        str | None,
        Meta(description="Its instruction, in place of the common one; {classes} are their names."),
    ] = None
    timeout_ms: Annotated[int, Meta(ge=1, le=60_000, description="Longest wait for it.")] = 800
    on_error: Annotated[
        Text | None,
        Meta(description="The model where it has no answer in time. [default]"),
    ] = None
    max_tokens: Annotated[int, Meta(ge=1, le=4096, description="Most tokens it may answer.")] = 5
    expected_s: Annotated[
        Seconds | None, Meta(description="How long it takes, for `explain` without a ledger.")
    ] = None


class ChooseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Another model for each request, by how hard it is."""

    by: ChooseBy
    default: Annotated[
        Text, Meta(description="The model where nothing else is chosen."), formerly("otherwise")
    ]
    rules: Annotated[
        tuple[ChoiceRuleSettings, ...],
        Meta(description="The first that holds decides, before anything else is looked at."),
    ] = ()
    length: Annotated[
        tuple[LengthStepSettings, ...],
        Meta(description="Of those exceeded the one with most tokens decides."),
    ] = ()
    length_of: Annotated[Part, Meta(description="What is measured.")] = "conversation"
    classifier: ClassifierSettings | None = None
    model: RouterModelSettings | None = None
    per_turn: Annotated[
        bool,
        Meta(
            description="Whether each turn is chosen for anew. Otherwise a conversation that once "
            "had another model than `default` keeps it, and a router model is asked once."
        ),
    ] = False

    def __post_init__(self) -> None:
        if not getattr(self, self.by):
            raise ValueError(f"by: {self.by} needs `{self.by}`, which is not there")
        for name in ("length", "classifier", "model"):
            if name != self.by and getattr(self, name):
                raise ValueError(f"{name}: is not looked at with by: {self.by}; leave it out")

    @property
    def models(self) -> tuple[str, ...]:
        """All it may choose, each once, `default` first."""
        found = [self.default, *(one.use for one in self.rules)]
        found += [one.use for one in self.length]
        if self.classifier is not None:
            found.append(self.classifier.hard)
        if self.model is not None:
            found += [*self.model.classes.values()]
            found += [self.model.on_error] if self.model.on_error else []
        return tuple(dict.fromkeys(found))
