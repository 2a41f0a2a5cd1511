"""Conversations with functions the model may call: a question, the call, its result, the answer.

Names and descriptions of the functions vary, so that what is learnt is to copy them from the list
at hand. Some lists hold a function that the question does not need: then the answer is direct.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from training.turns.answers import Exchange, block
from training.turns.facts import Fact
from training.turns.phrases import quoted
from training.turns.tables import words

Message = dict[str, Any]


class Use(NamedTuple):
    """One use of a function: its arguments, what it returns, what was asked, what is answered."""

    question: str
    arguments: dict[str, Any]
    result: str
    answer: str


class Function(NamedTuple):
    """names and descriptions to choose from, parameters (name, type, description), and its use."""

    names: str
    descriptions: str
    parameters: tuple[tuple[str, str, str], ...]
    use: Callable[[Fact, random.Random], Use | None]


CITIES, SKIES, FILES = words("cities"), words("skies"), words("files")


def _documentation(fact: Fact, draw: random.Random) -> Use | None:
    if not fact.summary or not fact.asked:
        return None
    name = quoted(fact.full_name, draw)
    ask = draw.choice(
        [
            "What does {} do?",
            "Look up {}.",
            "Check the documentation of {}.",
            "Explain {}.",
            "What is {}? Look it up.",
            "Find out what {} does.",
            "Tell me about {}.",
        ]
    )
    return Use(
        ask.format(name),
        {"name": fact.full_name},
        fact.description,
        f"`{fact.full_name}`: {fact.summary}",
    )


def _search(fact: Fact, draw: random.Random) -> Use | None:
    if not fact.summary or not fact.asked or len(fact.summary.split()) > 15:
        return None
    topic = fact.summary[0].lower() + fact.summary[1:].rstrip(".")
    ask = draw.choice(
        [
            "Search the documentation: {}",
            "Find something for this: {}",
            "Search for: {}",
            "Which function fits this: {}?",
            "Look in the documentation for this: {}",
        ]
    )
    result = json.dumps([{"name": fact.full_name, "summary": fact.summary}])
    return Use(ask.format(topic), {"query": topic}, result, f"I found `{fact.full_name}`.")


def _head(fact: Fact, draw: random.Random) -> Use | None:
    if not fact.signature or not fact.asked or len(fact.signature) > 200:
        return None
    ask = draw.choice(
        [
            "What is the signature of {}?",
            "Get the signature of {}.",
            "How is {} called?",
            "Which arguments does {} take?",
        ]
    )
    head = fact.signature.removesuffix(":")
    return Use(
        ask.format(quoted(fact.full_name, draw)), {"name": fact.full_name}, head, block(head)
    )


def _file(fact: Fact, draw: random.Random) -> Use | None:
    if not fact.bare or not fact.summary or len(fact.bare) > 500:
        return None
    path = f"{draw.choice(['', 'src/', 'app/', 'lib/'])}{draw.choice(FILES)}.py"
    short = fact.name.split(".")[-1]
    ask = draw.choice(
        [
            "What does the {what} `{name}` in {path} do?",
            "Explain {path}.",
            "Read {path} and tell me what `{name}` is for.",
            "What is in {path}?",
        ]
    )
    ask = ask.format(what=fact.kind, name=short, path=path)
    return Use(
        ask, {"path": path}, fact.bare, f"It defines the {fact.kind} `{short}`. {fact.summary}"
    )


def _sum(fact: Fact, draw: random.Random) -> Use:
    a, b = draw.randrange(2, 9999), draw.randrange(2, 999)
    sign = draw.choice("+-*")
    value = {"+": a + b, "-": a - b, "*": a * b}[sign]
    ask = draw.choice(
        ["What is {}?", "Calculate {}.", "How much is {}?", "Compute {} with Python."]
    )
    total = f"{a} {sign} {b}"
    return Use(ask.format(total), {"code": f"print({total})"}, str(value), f"{total} is {value}.")


def _session(fact: Fact, draw: random.Random) -> Use | None:
    lines = fact.example.split("\n")
    if len(lines) != 2 or not lines[0].startswith(">>> "):
        return _sum(fact, draw)
    code = lines[0][4:]
    ask = draw.choice(["What does `{}` give?", "Run `{}`.", "Evaluate `{}`.", "What is `{}`?"])
    return Use(ask.format(code), {"code": f"print({code})"}, lines[1], f"It gives `{lines[1]}`.")


def _weather(fact: Fact, draw: random.Random) -> Use:
    city, sky, degrees = draw.choice(CITIES), draw.choice(SKIES), draw.randrange(-9, 36)
    ask = draw.choice(
        [
            "What's the weather in {}?",
            "How is the weather in {}?",
            "What is the weather like in {} today?",
            "Weather in {}?",
            "Is it cold in {}?",
        ]
    )
    result = json.dumps({"temperature": degrees, "sky": sky})
    return Use(
        ask.format(city), {"city": city}, result, f"In {city} it is {sky}, {degrees} degrees."
    )


def _time(fact: Fact, draw: random.Random) -> Use:
    city, clock = draw.choice(CITIES), f"{draw.randrange(24):02}:{draw.randrange(60):02}"
    ask = draw.choice(["What time is it in {}?", "Tell me the time in {}.", "Time in {}?"])
    return Use(ask.format(city), {"city": city}, clock, f"It is {clock} in {city}.")


def _add(fact: Fact, draw: random.Random) -> Use:
    a, b = draw.randrange(1, 9999), draw.randrange(1, 9999)
    ask = draw.choice(["Add {} and {}.", "What is the sum of {} and {}?", "What is {} plus {}?"])
    return Use(ask.format(a, b), {"a": a, "b": b}, str(a + b), f"The sum is {a + b}.")


FUNCTIONS = (
    Function(
        "look_up|get_documentation|lookup_name|describe|get_docs|python_help",
        "Look up a name in the Python documentation.|Documentation of a Python name.|"
        "Return the description of a function or class.",
        (("name", "string", "Full name"),),
        _documentation,
    ),
    Function(
        "search_docs|search|find_function|search_documentation|query_docs",
        "Search the documentation.|Find functions by what they do.|Full-text search of the docs.",
        (("query", "string", "What to search for"),),
        _search,
    ),
    Function(
        "get_signature|signature_of|show_signature|inspect_function",
        "Return the signature of a function.|The call signature of a Python function.",
        (("name", "string", "Name of the function"),),
        _head,
    ),
    Function(
        "read_file|open_file|cat|get_file|load_file",
        "Read a file of the project.|Return the text of a file.",
        (("path", "string", "Path of the file"),),
        _file,
    ),
    Function(
        "run_python|execute|python|run_code|evaluate",
        "Run Python code and return its output.|Execute code.",
        (("code", "string", "The code to run"),),
        _session,
    ),
    Function(
        "get_weather|weather|current_weather|get_current_weather|weather_report",
        "Current weather of a city.|Get the weather.|Return the weather in a city.",
        (("city", "string", "Name of the city"),),
        _weather,
    ),
    Function(
        "get_time|current_time|clock|local_time",
        "Local time of a city.|Get the current time.",
        (("city", "string", "Name of the city"),),
        _time,
    ),
    Function(
        "add|sum_numbers|add_numbers|plus",
        "Add two numbers.|The sum of two numbers.",
        (("a", "integer", "First number"), ("b", "integer", "Second number")),
        _add,
    ),
)
# Other names for an argument, so that the list at hand decides and not the habit.
ARGUMENT_NAMES = {
    "name": ["name", "symbol", "identifier", "function"],
    "query": ["query", "q", "text", "question"],
    "path": ["path", "filename", "file"],
    "code": ["code", "source", "script"],
    "city": ["city", "location", "place"],
    "a": ["a"],
    "b": ["b"],
}


def declared(function: Function, draw: random.Random) -> tuple[dict[str, Any], dict[str, str]]:
    """A declaration of the function, and the names its parameters were given in it."""
    given = {name: draw.choice(ARGUMENT_NAMES[name]) for name, _, _ in function.parameters}
    properties: dict[str, Any] = {}
    explained = draw.random() < 0.4
    for name, kind, text in function.parameters:
        properties[given[name]] = (
            {"type": kind, "description": text} if explained else {"type": kind}
        )
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    declaration = {
        "name": draw.choice(function.names.split("|")),
        "description": draw.choice(function.descriptions.split("|")),
        "parameters": parameters,
    }
    return {"type": "function", "function": declaration}, given


def declared_some(count: int, draw: random.Random) -> list[dict[str, Any]]:
    return [declared(function, draw)[0] for function in draw.sample(FUNCTIONS, count)]


def called(fact: Fact, draw: random.Random) -> tuple[list[Message], list[dict[str, Any]]] | None:
    """(messages, tools) of a conversation in which one function is called, or None."""
    function = draw.choice(FUNCTIONS)
    use = function.use(fact, draw)
    if use is None:
        return None
    declaration, given = declared(function, draw)
    others = [other for other in FUNCTIONS if other is not function]
    tools = [
        declaration,
        *(declared(o, draw)[0] for o in draw.sample(others, draw.choice([0, 0, 1, 2]))),
    ]
    draw.shuffle(tools)
    call = {
        "type": "function",
        "function": {
            "name": declaration["function"]["name"],
            "arguments": {given[name]: value for name, value in use.arguments.items()},
        },
    }
    messages: list[Message] = [
        {"role": "user", "content": use.question},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": use.result},
        {"role": "assistant", "content": use.answer},
    ]
    return messages, tools


def answered_directly(
    exchange: Exchange, draw: random.Random
) -> tuple[list[Message], list[dict[str, Any]]]:
    """(messages, tools) where the functions at hand do not help."""
    tools = [declared(f, draw)[0] for f in draw.sample(FUNCTIONS[5:], draw.choice([1, 1, 2]))]
    return [
        {"role": "user", "content": exchange.question},
        {"role": "assistant", "content": exchange.answer},
    ], tools
