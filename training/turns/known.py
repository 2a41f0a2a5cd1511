"""What everyone asks first, written by hand: what docstrings leave out or say badly.

The texts are texts/known.txt: descriptions where the interpreter's are missing or poor, examples
that run as they stand (the tests run them), and recipes, which answer "How do I ...?" with code.
"""

from __future__ import annotations

from dataclasses import replace

from training.data.corpus import STANDARD_LIBRARY
from training.turns.facts import Fact
from training.turns.tables import read_table


def descriptions() -> list[tuple[str, str, str, str]]:
    """(name, kind, head, description) of each line."""
    rows = [line.split(" | ") for line in read_table("known")["descriptions"]]
    return [(name, kind, head, text) for name, kind, head, text in rows]


def examples() -> dict[str, str]:
    """A session of two lines by name."""
    found = {}
    for line in read_table("known")["examples"]:
        name, _, session = line.partition(" >>> ")
        code, _, result = session.rpartition(" = ")
        found[name] = f">>> {code}\n{result}"
    return found


def recipes() -> list[tuple[str, str]]:
    """(what is to be done, the code that does it)."""
    found = []
    for line in read_table("known")["recipes"]:
        task, _, code = line.partition(" | ")
        found.append((task, code.replace(";", "\n")))
    return found


def improved(facts: list[Fact], native: list[Fact]) -> list[Fact]:
    """All facts, one of each name: the corpus's before the interpreter's, ours before both."""
    by_name = {fact.full_name: fact for fact in [*native, *facts] if fact.summary}
    rest = [fact for fact in facts if not fact.summary]
    modules = sorted(
        {fact.module for fact in by_name.values()}, key=lambda name: (-len(name), name)
    )
    for name, kind, head, text in descriptions():
        module = next((m for m in modules if name.startswith(m + ".")), "builtins")
        words = head.removeprefix("def ")
        inner = words[words.index("(") + 1 : words.rindex(")")]
        arguments = tuple(a for a in inner.split(", ") if a not in ("", "self", "/"))
        fact = Fact(
            package=STANDARD_LIBRARY,
            module=module,
            name=name if module == "builtins" else name.removeprefix(module + "."),
            kind=kind,
            split="train",
            summary=text,
            description=text,
            arguments=arguments,
            signature=head,
        )
        example = by_name[name].example if name in by_name else ""
        by_name[name] = replace(fact, example=example)
    for name, session in examples().items():
        if name in by_name:
            by_name[name] = replace(by_name[name], example=session)
    return [*by_name.values(), *rest]
