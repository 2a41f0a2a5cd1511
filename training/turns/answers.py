"""One question and its answer about one fact, by kind; and the reasons that lead to the answer.

Every function takes a fact and a random source and gives None where the fact cannot answer that
kind of question. Answers are as short as they are useful.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from training.data.corpus import STANDARD_LIBRARY
from training.turns import phrases
from training.turns.facts import Fact
from training.turns.phrases import quoted, worded
from training.turns.prose import third_person
from training.turns.tables import words

NUMBERS = words("numbers")
MAX_LISTED = 12


class Exchange(NamedTuple):
    """What the user says, what the model answers, and what it may think before it answers."""

    question: str
    answer: str
    reasoning: str = ""


Answer = Callable[[Fact, random.Random], Exchange | None]


def block(code: str) -> str:
    return f"```python\n{code}\n```"


def shown_name(fact: Fact, draw: random.Random) -> str:
    """The name in a question; the best known are asked for without their module as well."""
    name = fact.full_name
    if fact.package == STANDARD_LIBRARY and "." in fact.name and draw.random() < 0.3:
        name = fact.name
    return quoted(name, draw)


def where(fact: Fact) -> str:
    """A sentence that places the fact: its kind and its module or class."""
    if fact.module == "builtins":
        owner = fact.name.rpartition(".")[0]
        return (
            f"`{fact.name}` is a method of `{owner}`." if owner else f"`{fact.name}` is a builtin."
        )
    owner = fact.name.rpartition(".")[0]
    if owner:
        return f"`{fact.name}` is a {fact.kind} of the class `{owner}` in `{fact.module}`."
    return f"`{fact.name}` is a {fact.kind} of the module `{fact.module}`."


def _bare_names(fact: Fact) -> list[str]:
    return [item.split(":")[0].split("=")[0].strip() for item in fact.arguments or ()]


def _joined(items: list[str]) -> str:
    ticked = [f"`{item}`" for item in items]
    return " and ".join([", ".join(ticked[:-1]), ticked[-1]] if len(ticked) > 1 else ticked)


def takes(fact: Fact) -> str:
    """A sentence that names the arguments."""
    names = _bare_names(fact)
    if not names:
        return "It takes no arguments."
    if len(names) > 6:
        return f"It has many parameters, among them {_joined(names[:3])}."
    return f"Its parameters are {_joined(names)}." if len(names) > 1 else f"It takes `{names[0]}`."


def statement(fact: Fact, text: str) -> str:
    """`text` with the name as its subject: "Return the sum." as "`f` returns the sum."."""
    does = third_person(text)
    if does and fact.kind != "property":
        return f"`{fact.full_name}` {does}"
    return text


def does(fact: Fact, draw: random.Random) -> Exchange | None:
    if not fact.summary or not fact.asked:
        return None
    question = worded(phrases.DOES, draw, name=shown_name(fact, draw), what=fact.kind)
    text = fact.summary if draw.random() < 0.45 else fact.description
    answer = statement(fact, text)
    if answer == text and draw.random() < 0.3:
        answer = f"{where(fact)} {text}"
    thought = f"{where(fact)} {takes(fact) if fact.arguments is not None else ''}".strip()
    return Exchange(question, answer, f"{thought} The question is what it is for.")


def signature(fact: Fact, draw: random.Random) -> Exchange | None:
    if not fact.signature or not fact.asked:
        return None
    question = worded(phrases.SIGNATURE, draw, name=shown_name(fact, draw), what=fact.kind)
    head = fact.signature.removesuffix(":")
    if head.startswith("class ") and not fact.source and "\n" not in head:
        head = head.removeprefix("class ")
    return Exchange(question, block(head), f"{where(fact)} {takes(fact)}")


def arguments(fact: Fact, draw: random.Random) -> Exchange | None:
    if fact.arguments is None or not fact.asked or len(fact.arguments) > MAX_LISTED:
        return None
    question = worded(phrases.ARGUMENTS, draw, name=shown_name(fact, draw), what=fact.kind)
    items = list(fact.arguments)
    if sum(map(len, items)) > 400:
        return None
    if not items:
        subject = f"`{fact.full_name}`" if draw.random() < 0.6 else "It"
        return Exchange(question, f"{subject} takes no arguments.", where(fact))
    count = f"{NUMBERS[len(items)]} argument{'s' if len(items) > 1 else ''}"
    if len(items) <= 3 and sum(map(len, items)) < 90:
        answer = f"`{fact.full_name}` takes {count}: {_joined(items)}."
    else:
        answer = f"It takes {count}:\n\n" + "\n".join(f"- `{item}`" for item in items)
    return Exchange(question, answer, f"{where(fact)} Its signature has {count}.")


def how_imported(fact: Fact) -> tuple[str, str]:
    """(the import statement, how the name is written after it)."""
    top, _, rest = fact.name.partition(".")
    if fact.kind == "function" and "." not in fact.module and fact.package == STANDARD_LIBRARY:
        return f"import {fact.module}", fact.full_name
    return f"from {fact.module} import {top}", f"{top}.{rest}" if rest else top


def imported(fact: Fact, draw: random.Random) -> Exchange | None:
    if not fact.asked or fact.kind == "property":
        return None
    question = worded(phrases.IMPORT, draw, name=shown_name(fact, draw), what=fact.kind)
    if fact.module == "builtins":
        owner = fact.name.rpartition(".")[0]
        subject = f"`{owner or fact.name}` is a builtin"
        return Exchange(question, f"{subject}: you need no import.", where(fact))
    line, name = how_imported(fact)
    answer = block(line)
    if fact.kind == "method":
        top = fact.name.partition(".")[0]
        answer = f"It is a method of `{top}`, so import the class:\n\n{answer}"
    elif name != fact.name and draw.random() < 0.6:
        answer += f"\n\nThen call `{name}`."
    return Exchange(question, answer, where(fact))


def returned(fact: Fact, draw: random.Random) -> Exchange | None:
    if not fact.asked or fact.kind not in ("function", "method"):
        return None
    sentence = third_person(fact.summary) if fact.summary else None
    question = worded(phrases.RETURNS, draw, name=shown_name(fact, draw), what=fact.kind)
    if fact.returns:
        subject = draw.choice(["It returns", f"`{fact.full_name}` returns"])
        answer = f"{subject} `{fact.returns}`."
        if sentence and sentence.startswith("returns ") and draw.random() < 0.5:
            answer += f" {fact.summary}"
        return Exchange(
            question, answer, f"{where(fact)} Its return annotation is `{fact.returns}`."
        )
    if sentence and sentence.startswith("returns ") and "type" not in question:
        return Exchange(question, f"It {sentence}", where(fact))
    return None


def module(fact: Fact, draw: random.Random) -> Exchange | None:
    if not fact.asked or "." in fact.name:
        return None
    name = quoted(fact.name, draw)
    question = worded(phrases.MODULE, draw, name=name, what=fact.kind)
    if fact.module == "builtins":
        answer = f"`{fact.name}` is a builtin; you need no module for it."
    elif draw.random() < 0.5:
        answer = f"`{fact.name}` is in `{fact.module}`."
    else:
        answer = f"The {fact.kind} `{fact.name}` is in the module `{fact.module}`."
    return Exchange(question, answer, f"The full name is `{fact.full_name}`.")


def which(fact: Fact, draw: random.Random) -> Exchange | None:
    text = third_person(fact.summary) if fact.summary and fact.asked else None
    if not text or fact.kind not in ("function", "method") or len(text.split()) > 22:
        return None
    if len(text.split()) < 5 or "`" in text:
        return None
    question = worded(phrases.WHICH, draw, does=text.rstrip("."))
    answer = draw.choice(["Use `{}`.", "`{}` does that.", "That is `{}`."]).format(fact.full_name)
    if fact.signature and draw.random() < 0.4:
        answer += f" Its signature:\n\n{block(fact.signature.removesuffix(':'))}"
    return Exchange(question, answer, where(fact))


def example(fact: Fact, draw: random.Random) -> Exchange | None:
    if not fact.example or not fact.asked:
        return None
    question = worded(phrases.EXAMPLE, draw, name=shown_name(fact, draw), what=fact.kind)
    lead = draw.choice(["", "", "For example:\n\n", "Here is an example:\n\n"])
    return Exchange(question, lead + block(fact.example), where(fact))


def _with_code(text: str, code: str, draw: random.Random) -> str:
    if draw.random() < 0.12:
        return f"{block(code)}\n\n{text}"
    return f"{text}\n\n{block(code) if draw.random() < 0.85 else code}"


def _named_in_code(fact: Fact) -> str:
    return fact.kind if fact.kind in ("function", "method", "class") else "function"


def complete(fact: Fact, draw: random.Random) -> Exchange | None:
    if not fact.source or fact.kind == "class":
        return None
    lines = fact.source.split("\n")
    head = fact.head
    if not head:
        if len(lines) < 4:
            return None
        head = "\n".join(lines[: draw.randrange(1, max(2, len(lines) // 2))])
    if len(head) > 0.8 * len(fact.source):
        return None
    text = worded(phrases.COMPLETE, draw, what=_named_in_code(fact))
    thought = f"The code is the beginning of `{fact.name.split('.')[-1]}`. {takes(fact)}"
    if fact.summary:
        thought += f" Its docstring says: {fact.summary}"
    return Exchange(_with_code(text, head, draw), block(fact.source), thought)


def explain(fact: Fact, draw: random.Random) -> Exchange | None:
    if not fact.bare or not fact.summary:
        return None
    what = _named_in_code(fact)
    text = worded(phrases.EXPLAIN, draw, what=what)
    description = fact.summary if draw.random() < 0.5 else fact.description
    sentence = third_person(description)
    answer = f"It {sentence}" if sentence and draw.random() < 0.7 else description
    name = fact.name.split(".")[-1]
    thought = f"The code defines the {what} `{name}`. {takes(fact) if fact.arguments else ''}"
    return Exchange(_with_code(text, fact.bare, draw), answer, thought.strip())


def docstring(fact: Fact, draw: random.Random) -> Exchange | None:
    if not fact.bare or not fact.summary or not fact.head:
        return None
    text = worded(phrases.DOCSTRING, draw, what=_named_in_code(fact))
    body = fact.head if len(fact.head.split("\n")) < 12 and len(fact.head) < 500 else None
    if body is None or draw.random() < 0.3:
        body = f'"""{fact.summary}"""'
    return Exchange(
        _with_code(text, fact.bare, draw), block(body), f"It is the {fact.kind} {fact.name}."
    )


def write(fact: Fact, draw: random.Random) -> Exchange | None:
    if not fact.source or not fact.summary or len(fact.summary.split()) < 4:
        return None
    if fact.name.split(".")[-1].startswith("_") or ("self." in fact.bare and fact.kind != "class"):
        return None
    code = fact.source if len(fact.head) < 0.45 * len(fact.source) else fact.bare
    name = quoted(fact.name.split(".")[-1], draw).removesuffix("()")
    if fact.kind == "class":
        text = worded(phrases.WRITE_CLASS, draw, name=name, summary=fact.summary)
    else:
        sentence = third_person(fact.summary)
        if not sentence:
            return None
        if draw.random() < 0.15:
            sentence = sentence.rstrip(".")
        text = worded(phrases.WRITE, draw, name=name, what=_named_in_code(fact), does=sentence)
    return Exchange(text, block(code), f"The task: {fact.summary} {takes(fact)}")


ANSWERS: dict[str, Answer] = {
    "does": does,
    "signature": signature,
    "arguments": arguments,
    "import": imported,
    "returns": returned,
    "module": module,
    "which": which,
    "example": example,
    "complete": complete,
    "explain": explain,
    "docstring": docstring,
    "write": write,
}
