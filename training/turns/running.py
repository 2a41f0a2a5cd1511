"""Facts of what is written in C, which no corpus of Python files holds: asked of the interpreter.

Builtins with their methods, math, itertools, datetime and others, by `__doc__` and
`__text_signature__`; and a table of the best known names, which are asked more often than others.
The same interpreter always gives the same facts in the same order.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator

from training.data.corpus import STANDARD_LIBRARY
from training.turns.facts import Arguments, Fact, first_example
from training.turns.prose import described
from training.turns.tables import words

MODULES = words("native modules")
# Classes whose methods are asked for by their names.
CLASSES = frozenset(words("native classes"))
# Where the interpreter keeps what a module shows as its own.
HOMES = {"os": "posix", "io": "_io", "threading": "_thread", "collections": "builtins"}
# What newcomers and everyone else ask about first.
FAMOUS = frozenset(words("famous"))
# Heads of builtins that carry none themselves, as the language reference gives them.
HEADS = {
    "range": "class range(start, stop, step=1)",
    "dict.pop": "def pop(self, key, default)",
    "dict.update": "def update(self, other=(), **kwargs)",
    "str.startswith": "def startswith(self, prefix, start=0, end=None)",
    "str.endswith": "def endswith(self, suffix, start=0, end=None)",
    "str.find": "def find(self, sub, start=0, end=None)",
    "str.count": "def count(self, sub, start=0, end=None)",
    "str.format": "def format(self, *args, **kwargs)",
    "print": "def print(*args, sep=' ', end='\\n', file=None, flush=False)",
    "min": "def min(*args, key=None)",
    "max": "def max(*args, key=None)",
    "map": "class map(function, *iterables)",
    "filter": "class filter(function, iterable)",
    "zip": "class zip(*iterables, strict=False)",
    "getattr": "def getattr(object, name, default)",
    "iter": "def iter(object)",
    "next": "def next(iterator, default)",
    "set.union": "def union(self, *others)",
    "set.intersection": "def intersection(self, *others)",
    "set.difference": "def difference(self, *others)",
    "int": "class int(x=0)",
    "str": "class str(object='')",
    "dict": "class dict(**kwargs)",
    "type": "class type(object)",
    "set": "class set(iterable=())",
    "itertools.chain": "class chain(*iterables)",
    "itertools.islice": "class islice(iterable, stop)",
    "itertools.repeat": "class repeat(object, times)",
    "time.sleep": "def sleep(seconds)",
    "math.log": "def log(x, base=math.e)",
    "math.hypot": "def hypot(*coordinates)",
    "math.gcd": "def gcd(*integers)",
    "collections.deque": "class deque(iterable=(), maxlen=None)",
}


def _members(module_name: str) -> Iterator[tuple[str, object]]:
    module = importlib.import_module(module_name)
    for name in sorted(vars(module)):
        value = getattr(module, name)
        if name.startswith("_") or not callable(value):
            continue
        home = getattr(value, "__module__", None) or module_name
        if isinstance(value, type) and issubclass(value, Warning):
            continue
        # The functions of random are methods of one hidden instance.
        bound = module_name == "random" and inspect.ismethod(value)
        if not (inspect.isbuiltin(value) or isinstance(value, type) or bound):
            continue
        if home.split(".")[0] not in {"_" + module_name, module_name, HOMES.get(module_name)}:
            continue
        bases = value.__mro__[1:] if isinstance(value, type) else ()
        if any(inspect.getdoc(value) == inspect.getdoc(base) for base in bases):
            continue  # what it says is said of its base class
        yield name, value
        if isinstance(value, type) and name in CLASSES:
            for inner in sorted(vars(value)):
                method = getattr(value, inner, None)
                if not inner.startswith("_") and callable(method):
                    yield f"{name}.{inner}", method


def _signature(value: object, name: str, full: str) -> tuple[str, Arguments | None]:
    short = name.rsplit(".", 1)[-1]
    word = "class" if isinstance(value, type) else "def"
    if full in HEADS:
        head = HEADS[full]
        inner = head.partition("(")[2].rpartition(")")[0]
        arguments = tuple(a for a in re.split(r", (?!')", inner) if a and a != "self")
        return head + ":", arguments
    try:
        found = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "", None
    text = str(found).replace("($self", "(self").replace(", /", "").replace("(/", "(")
    if " object at 0x" in text or "<" in text:
        return "", None
    arguments = tuple(
        str(p) for p in found.parameters.values() if p.name not in ("self", "cls", "type")
    )
    return f"{word} {short}{text}:", arguments


def running_facts() -> list[Fact]:
    """Facts of the running interpreter, all of the training split."""
    facts = []
    for module in MODULES:
        for name, value in _members(module):
            docstring = inspect.getdoc(value) or ""
            summary, description = described(docstring)
            if not summary or "built-in mutable sequence if" in summary:
                continue
            full = name if module == "builtins" else f"{module}.{name}"
            signature, arguments = _signature(value, name, full)
            kind = "class" if isinstance(value, type) else "method" if "." in name else "function"
            facts.append(
                Fact(
                    package=STANDARD_LIBRARY,
                    module=module,
                    name=name,
                    kind=kind,
                    split="train",
                    summary=summary,
                    description=description,
                    arguments=arguments,
                    signature=signature,
                    example=first_example(docstring, name.rsplit(".", 1)[-1]),
                    docstring=docstring if len(docstring) < 500 else "",
                )
            )
    return facts
