"""Tokenizers and chat templates: what is set and sent against what the model was made with."""

from __future__ import annotations

import re

from headrace.errors import HeadraceError
from headrace.plan.lint.finding import Check, Evidence, Found, Needs, Outcome
from headrace.plan.lint.prefix import common_prefix
from headrace.plan.lint.subject import Subject
from headrace.text.chat_template import ChatTemplate
from headrace.text.tokenizer import Tokenizer

_FILES_NEEDED = "the model's files on this disk: add --model"
# Marks of chat formats; a tokenizer that knows one has it as a single token.
_MARKS = re.compile(
    r"<\|[A-Za-z_][A-Za-z0-9_]{1,30}\|>|</?(?:start|end)_of_turn>|\[/?INST\]|<</?SYS>>|<\uff5c[^>]{2,30}\uff5c>"
)
_PROBE = (
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris."},
    {"role": "user", "content": "And of Italy?"},
)
_PROBE_TEXT = "Hello, world! 1234 naïve café 你好\n\tdef f(x): return x ** 2"


def template(subject: Subject) -> Outcome:
    """A chat without a template, or with another than the model's own."""
    files, engine = subject.files, subject.engine
    stated = engine.chat_template if engine else None
    chats = _chats(subject)
    if files is None:
        return subject.need("files", _FILES_NEEDED)
    if not files.templates and stated is None:
        if chats is None:
            return Needs("requests: add a run or --prompts; the model has no chat template")
        if not chats.value:
            return ()
        return (
            Found(
                "chats are sent to a model that has no chat template: a base model, or a file that "
                "lost it",
                (chats, Evidence("chat templates", 0, files.name)),
                "--chat-template FILE with the one of the model card, an instruct model, or "
                "/v1/completions",
                "error",
            ),
        )
    if stated is None or not files.templates:
        return ()
    if subject.template is None:
        return subject.need(
            "template", f"the file of {stated.name}: {stated.value} is not on this machine"
        )
    own = _rendered(next(iter(files.templates.values())), files.tokenizer)
    other = _rendered(subject.template, files.tokenizer)
    if isinstance(own, Needs):
        return own
    if isinstance(other, Needs):
        return (
            Found("the chat template that is set refuses a plain conversation",
                  (stated.evidence(), Evidence("says", other.what, stated.where)),
                  f"omit {stated.name}", "error"),
        )  # fmt: skip
    if own == other:
        return ()
    at = common_prefix(own, other)
    return (
        Found(
            "the chat template that is set renders a conversation differently from the model's own",
            (
                stated.evidence(),
                Evidence("they differ from", at, "a conversation of three messages", "characters"),
                Evidence("the model's own has", own[max(0, at - 20) : at + 40], files.name),
                Evidence("the one that is set has", other[max(0, at - 20) : at + 40],
                         stated.value),
            ),
            f"omit {stated.name}, or show with an evaluation that it is better",
        ),
    )  # fmt: skip


def marks(subject: Subject) -> Outcome:
    """Prompts as texts that carry the marks of another model's chat format."""
    prompts, tokenizer = subject.prompts, subject.tokenizer
    if prompts is None:
        return Needs("requests: add --prompts FILE.jsonl")
    if tokenizer is None:
        return subject.need("tokenizer", "a tokenizer: add --tokenizer, or --model on this disk")
    known = set(tokenizer.control_tokens)
    strange: dict[str, str] = {}
    count = 0
    for one in prompts.prompts:
        found = set(_MARKS.findall(one.text)) - known
        unknown = sorted(
            mark for mark in found
            if len(tokenizer.encode(mark, add_special_tokens=False)) > 1
        )  # fmt: skip
        count += bool(unknown)
        for mark in unknown:
            strange.setdefault(mark, one.where)
    if not strange:
        return ()
    mark, where = next(iter(strange.items()))
    pieces = len(tokenizer.encode(mark, add_special_tokens=False))
    return (
        Found(
            "prompts contain control tokens of a chat format that this tokenizer does not know",
            (
                Evidence("marks", ", ".join(sorted(strange)[:8]), where),
                Evidence(f"tokens of {mark}", pieces, f"tokenizer of {subject.tokenizer_name}"),
                Evidence("prompts with such marks", count, prompts.where),
            ),
            "send messages and let the server apply the model's template",
            "error",
        ),
    )


def tokenizer_mismatch(subject: Subject) -> Outcome:
    """A tokenizer that is set and is not the model's."""
    engine = subject.engine
    if engine is None:
        return Needs("an engine's config")
    stated = engine.tokenizer
    if stated is None or (engine.model is not None and stated.value == engine.model.value):
        return ()
    files = subject.files
    if files is None or files.tokenizer is None:
        return subject.need("files", _FILES_NEEDED)
    if subject.other_tokenizer is None:
        return subject.need("other_tokenizer", f"{stated.value} on this disk")
    own, other = (
        one.encode(_PROBE_TEXT, add_special_tokens=False)
        for one in (files.tokenizer, subject.other_tokenizer)
    )
    if own == other:
        return ()
    at = common_prefix(own, other)
    return (
        Found(
            "the tokenizer that is set gives other ids than the model's own",
            (
                stated.evidence(),
                Evidence("ids of a probe, the model's own", str(own[at : at + 6]), files.name),
                Evidence("ids of a probe, the one that is set", str(other[at : at + 6]),
                         stated.value),
                Evidence("they differ from", at, "a probe text", "tokens"),
            ),
            f"omit {stated.name}",
        ),
    )  # fmt: skip


def _chats(subject: Subject) -> Evidence | None:
    """Whether messages are sent, with where that is seen; None where nothing says it."""
    if subject.prompts is not None:
        chats = sum(one.chat for one in subject.prompts.prompts)
        return Evidence("requests with messages", chats, subject.prompts.where)
    if subject.run is not None:
        kind = subject.run.about.get("endpoint_kind")
        if isinstance(kind, str):
            # A number, so that 0 says no chats.
            sent = len(subject.run.measured) if "chat" in kind else 0
            return Evidence(f"requests to {kind}", sent, f"{subject.run.where}/result.json")
    return None


def _rendered(source: str, tokenizer: Tokenizer | None) -> str | Needs:
    try:
        if tokenizer is None:
            made = ChatTemplate(source)
        else:
            made = ChatTemplate.for_tokenizer(source, tokenizer)
        return made.render(_PROBE)
    except HeadraceError as error:
        return Needs(f"a template that renders: {error}")


CHECKS = (
    Check(
        "L-template", "chat template missing or another", "warning",
        ("engine", "run", "prompts"), "the model's files on this disk; a run or prompts",
        "the model's own template", ("cr-466",), template,
    ),
    Check(
        "L-template-marks", "prompts in another model's chat format", "error", ("prompts",),
        "prompts and a tokenizer", "messages in place of texts", ("cr-466",), marks,
    ),
    Check(
        "L-tokenizer", "tokenizer that is not the model's", "error", ("engine",),
        "both on this disk, where one is set", "no --tokenizer", ("cr-466",), tokenizer_mismatch,
    ),
)  # fmt: skip
