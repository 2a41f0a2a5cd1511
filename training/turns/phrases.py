"""The wordings of questions, by kind, and how people vary them (texts: texts/questions.txt).

In a template `{name}` is what is asked about, `{what}` its kind ("function", "class", ...). A
wording is chosen by a random source that is handed in. Knows nothing of the corpus.
"""

from __future__ import annotations

import random

from training.turns.tables import read_table

_TABLE = read_table("questions")
DOES, SIGNATURE, ARGUMENTS = _TABLE["does"], _TABLE["signature"], _TABLE["arguments"]
IMPORT, RETURNS, MODULE = _TABLE["import"], _TABLE["returns"], _TABLE["module"]
WHICH, EXAMPLE, RECIPE = _TABLE["which"], _TABLE["example"], _TABLE["recipe"]
COMPLETE, EXPLAIN, DOCSTRING = _TABLE["complete"], _TABLE["explain"], _TABLE["docstring"]
WRITE, WRITE_CLASS = _TABLE["write"], _TABLE["write_class"]
THANKS, WELCOME, SYSTEM = _TABLE["thanks"], _TABLE["welcome"], _TABLE["system"]
# Going on in a conversation, by the kind of the question; "another" turns to another name.
FOLLOW_UPS = {
    kind: _TABLE[f"then {kind}"]
    for kind in ("signature", "arguments", "example", "import", "does", "module", "another")
}
# Openings and closings that people add to a question.
OPENINGS = ("Hi! ", "Hello, ", "Hey, ", "Please: ", "Quick question: ", "A question: ", "Python: ")
CLOSINGS = (" Thanks!", " Thanks.", " Please.", " Keep it short.", " Be brief.")


def quoted(name: str, draw: random.Random) -> str:
    """`name` as people write it: in backticks, bare, or called."""
    chance = draw.random()
    if chance < 0.5:
        return f"`{name}`"
    if chance < 0.92:
        return name
    return f"{name}()" if "." in name or name.islower() else name


def worded(templates: list[str], draw: random.Random, **fields: str) -> str:
    """One of the templates, in one of the ways people type it, with its fields filled in."""
    text = draw.choice(templates)
    if draw.random() < 0.22:
        text = text.rstrip(".?!:")
    if draw.random() < 0.2:
        text = text[0].lower() + text[1:]
    elif draw.random() < 0.08 and "{" not in text[:2]:
        text = draw.choice(OPENINGS) + (text[0].lower() + text[1:])
    if draw.random() < 0.04 and text[-1] in ".?!":
        text += draw.choice(CLOSINGS)
    for key, value in fields.items():
        text = text.replace("{" + key + "}", value)
    return text
