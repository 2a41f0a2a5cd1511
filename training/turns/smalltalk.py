"""Conversations that need no fact: greetings, who the model is, and what it does not know.

A small model that answers questions about the weather makes things up; this teaches it to say what
it is for. Topics times wordings give hundreds of distinct questions. Held-out topics are every
ninth. Random sources are handed in.
"""

from __future__ import annotations

import random

from training.data.corpus import Split
from training.turns.phrases import THANKS, WELCOME, worded
from training.turns.tables import read_table, words

_TABLE = read_table("smalltalk")
# Kinds of personal questions: (questions, answers, kind).
_PERSONAL = (
    (_TABLE["greetings"], _TABLE["greeting_answers"], "greeting"),
    (THANKS, WELCOME, "greeting"),
    (_TABLE["who"], _TABLE["who_answers"], "identity"),
    (_TABLE["maker"], _TABLE["maker_answers"], "identity"),
    (_TABLE["ability"], _TABLE["ability_answers"], "identity"),
)
# What lies outside Python: (topics, question templates, what an answer may name).
_OUTSIDE = (
    (words("places"), _TABLE["place_templates"], "about {topic}"),
    (_TABLE["things"], _TABLE["thing_templates"], ""),
    (_TABLE["ills"], _TABLE["ill_templates"], "about medicine"),
    (_TABLE["languages"], _TABLE["language_templates"], "{topic}"),
    (_TABLE["tongues"], _TABLE["tongue_templates"], "{topic}"),
)

Talk = tuple[str, list[dict[str, object]]]


def _kept(items: list[str], split: Split) -> list[str]:
    return [item for i, item in enumerate(items) if (i % 9 == 8) == (split == "heldout")]


def _pair(question: str, answer: str) -> list[dict[str, object]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def _outside(split: Split) -> list[tuple[str, str]]:
    """(question template with its topic filled in, what the answer may name)."""
    return [
        (template.replace("{topic}", topic), subject.replace("{topic}", topic))
        for topics, templates, subject in _OUTSIDE
        for topic in _kept(topics, split)
        for template in templates
    ] + [(question, "") for question in _kept(_TABLE["others"], split)]


def outside_talk(split: Split, draw: random.Random) -> Talk:
    """A question about anything but Python, and a polite way out."""
    if draw.random() < 0.1:
        a, b, sign = draw.randrange(2, 999), draw.randrange(2, 99), draw.choice("+-*/")
        forms = ["What is {sum}?", "Calculate {sum}.", "How much is {sum}?", "{sum} = ?"]
        question = draw.choice(forms).replace("{sum}", f"{a} {sign} {b}")
        answer = f"I cannot do sums reliably, but Python can: `print({a} {sign} {b})`."
        return "outside", _pair(question, answer)
    question, subject = draw.choice(_outside(split))
    question = worded([question], draw)
    if subject and draw.random() < 0.6:
        answer = f"I know only Python, and nothing {subject}. {draw.choice(_TABLE['suggestions'])}"
        if not subject.startswith("about"):
            answer = f"I know only Python, not {subject}. {draw.choice(_TABLE['suggestions'])}"
    else:
        answer = draw.choice(_TABLE["refusals"])
    return "outside", _pair(question, answer)


def personal_talk(split: Split, draw: random.Random) -> Talk:
    """A greeting, a thank-you, or a question about the model."""
    questions, answers, kind = draw.choice(_PERSONAL)
    question = worded(_kept(questions, split), draw)
    if draw.random() < 0.15:
        question = question.upper() if draw.random() < 0.2 else question.lower()
    return kind, _pair(question, draw.choice(answers))


def unknown_talk(known: frozenset[str], draw: random.Random) -> Talk:
    """A question about a name that does not exist."""
    name = draw.choice(words("fake_first")) + draw.choice(words("fake_last"))
    if draw.random() < 0.3:
        name = draw.choice(["get", "make", "to", "from", "run"]) + "_" + name
    if draw.random() < 0.75:
        name = f"{draw.choice(words('fake_homes'))}.{name}"
    if name in known:
        raise ValueError(f"{name} exists: change fake_first in names.txt")
    shown = f"`{name}`" if draw.random() < 0.5 else name
    question = worded(_TABLE["unknown"], draw, name=shown)
    return "unknown", _pair(
        question, draw.choice(_TABLE["unknown_answers"]).replace("{name}", name)
    )
