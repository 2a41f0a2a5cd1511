"""Make the conversations of the family: questions and answers about the facts of the corpus.

Every answer comes from the corpus or from the running interpreter's own documentation; nothing is
made up but questions, small talk and results of functions. Facts of held-out packages are asked in
held-out conversations only. The same corpus, interpreter and seed always give the same files.

    python -m training.turns.conversations --corpus build/train/corpus --out build/train/turns
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jinja2

from training.data.corpus import CONTROL_TEXT, STANDARD_LIBRARY, Split
from training.data.tokenizer import CHAT_TEMPLATE_FILE
from training.turns import phrases
from training.turns.answers import ANSWERS, Exchange, block
from training.turns.calls import Message, answered_directly, called
from training.turns.deck import Deck
from training.turns.facts import Fact, read_facts
from training.turns.known import improved, recipes
from training.turns.phrases import quoted, worded
from training.turns.running import FAMOUS, running_facts
from training.turns.smalltalk import outside_talk, personal_talk, unknown_talk

SEED = 5
# Conversations wanted of each kind in training; a kind whose facts run out gives fewer.
WANTED = {
    "does": 8500,
    "signature": 4200,
    "arguments": 2600,
    "import": 1600,
    "returns": 1500,
    "module": 1500,
    "which": 1600,
    "example": 1200,
    "complete": 5200,
    "explain": 2600,
    "docstring": 1600,
    "write": 3200,
    "several": 3600,
    "called": 1700,
    "direct": 700,
    "recipe": 1300,
    "outside": 1900,
    "personal": 800,
    "unknown": 800,
}
HELD_OUT_SHARE = 0.06
STANDARD_LIBRARY_SHARE, SYSTEM_SHARE, REASONING_SHARE = 0.5, 0.15, 0.1
# No package, and no module of the standard library, is asked about more often than this.
MAX_OF_PACKAGE, MAX_OF_MODULE = 420, 900
# A deck dealt so often without a fact that may be asked about has none.
MAX_DEALS_PER_FACT = 3
# About 600 tokens: longer ones teach nothing that two shorter ones would not.
MAX_CHARACTERS = 1750

Conversation = dict[str, Any]


def _fits(kind: str, facts: list[Fact], modules: dict[str, set[str]]) -> list[Fact]:
    """The facts that can answer this kind of question; for "module", those named but once."""
    probe, answer = random.Random(0), ANSWERS[kind]
    fitting = [fact for fact in facts if answer(fact, probe) is not None]
    if kind == "module":
        return [fact for fact in fitting if len(modules[fact.name]) == 1]
    return fitting


class Maker:
    """Makes conversations of one split. Nothing but `draw` decides what comes out."""

    def __init__(self, facts: list[Fact], split: Split, draw: random.Random) -> None:
        self.facts, self.split, self.draw = facts, split, draw
        self.known = frozenset(fact.full_name for fact in facts)
        self._n_asked: Counter[str] = Counter()
        self._by_module: dict[str, list[Fact]] = {}
        modules: dict[str, set[str]] = {}
        for fact in facts:
            modules.setdefault(fact.name, set()).add(fact.module)
            if fact.asked and fact.summary:
                self._by_module.setdefault(fact.module, []).append(fact)
        self._decks: dict[str, tuple[Deck, Deck]] = {}
        for kind in ANSWERS:
            fitting = _fits(kind, facts, modules)
            parts = (
                [fact for fact in fitting if fact.package == STANDARD_LIBRARY],
                [fact for fact in fitting if fact.package != STANDARD_LIBRARY],
            )
            self._decks[kind] = (Deck(parts[0], draw), Deck(parts[1], draw))

    def fact_for(self, kind: str) -> Fact:
        """The next fact for a kind of question, of a package not asked about too often yet.

        Where every package was, one is asked about more often. Raises ValueError when no fact of
        the corpus can answer this kind of question.
        """
        decks = self._decks[kind]
        n_facts = len(decks[0]) + len(decks[1])
        if n_facts == 0:
            raise ValueError(f"no fact of the corpus answers {kind!r}: give a larger corpus")
        for _ in range(MAX_DEALS_PER_FACT * n_facts):
            deck = decks[self.draw.random() > STANDARD_LIBRARY_SHARE]
            fact = (deck if len(deck) else decks[0] if len(decks[0]) else decks[1]).deal()
            own = fact.package == STANDARD_LIBRARY
            place = fact.module if own else fact.package
            limit = MAX_OF_MODULE if own else MAX_OF_PACKAGE
            if self.split == "heldout" or fact.full_name in FAMOUS or self._n_asked[place] < limit:
                break
        self._n_asked[place] += 1
        return fact

    def exchange(self, kind: str) -> Exchange | None:
        return ANSWERS[kind](self.fact_for(kind), self.draw)

    def make(self, kind: str) -> Conversation | None:
        """One conversation, or None where the dice fell badly."""
        if kind in ANSWERS:
            exchange = self.exchange(kind)
            return self._of(exchange, kind) if exchange else None
        if kind == "several":
            return self._several()
        if kind == "called":
            made = called(
                self.fact_for(self.draw.choice(["does", "signature", "example", "explain"])),
                self.draw,
            )
            return {"messages": made[0], "tools": made[1], "kind": kind} if made else None
        if kind == "recipe":
            return self._recipe()
        if kind == "direct":
            exchange = self.exchange(self.draw.choice(["does", "signature", "import", "write"]))
            if exchange is None:
                return None
            messages, tools = answered_directly(exchange, self.draw)
            return {"messages": messages, "tools": tools, "kind": kind}
        if kind == "outside":
            name, messages = outside_talk(self.split, self.draw)
            if self.draw.random() < REASONING_SHARE:
                thought = "The question is not about Python, which is all I know. I should say so."
                messages[-1]["reasoning_content"] = thought
        elif kind == "personal":
            name, messages = personal_talk(self.split, self.draw)
        else:
            name, messages = unknown_talk(self.known, self.draw)
        return self._with_system({"messages": messages, "kind": name})

    def _of(self, exchange: Exchange, kind: str) -> Conversation:
        answer: Message = {"role": "assistant", "content": exchange.answer}
        if exchange.reasoning and self.draw.random() < REASONING_SHARE:
            answer["reasoning_content"] = exchange.reasoning
        user = {"role": "user", "content": exchange.question}
        return self._with_system({"messages": [user, answer], "kind": kind})

    def _with_system(self, conversation: Conversation) -> Conversation:
        if self.draw.random() < SYSTEM_SHARE:
            system = {"role": "system", "content": self.draw.choice(phrases.SYSTEM)}
            conversation["messages"] = [system, *conversation["messages"]]
        return conversation

    def _recipe(self) -> Conversation | None:
        task, code = self.draw.choice(recipes())
        if self.split == "heldout":
            return None  # all of them are everyday code that training is meant to hold
        question = worded(phrases.RECIPE, self.draw, task=task)
        return self._of(Exchange(question, block(code), f"The task is to {task}."), "recipe")

    def _several(self) -> Conversation | None:
        """Two to four turns on one fact, or going on to a neighbour of it."""
        draw, kind = self.draw, self.draw.choice(["does", "does", "does", "signature", "example"])
        fact = self.fact_for(kind)
        first = ANSWERS[kind](fact, draw)
        if first is None:
            return None
        conversation = self._of(first, "several")
        messages, done = conversation["messages"], {kind}
        for _ in range(draw.choice([1, 1, 2])):
            choices = [
                k for k in phrases.FOLLOW_UPS if k not in done and k not in ("another", "module")
            ]
            draw.shuffle(choices)
            found = next(((k, e) for k in choices if (e := ANSWERS[k](fact, draw))), None)
            if draw.random() < 0.25 or found is None:
                neighbours = self._by_module.get(fact.module, [])
                if len(neighbours) < 2:
                    break
                fact, done = draw.choice(neighbours), {"does"}
                exchange = ANSWERS["does"](fact, draw)
                question = worded(
                    phrases.FOLLOW_UPS["another"],
                    draw,
                    name=quoted(fact.full_name, draw),
                )
            else:
                done.add(found[0])
                exchange = found[1]
                question = worded(phrases.FOLLOW_UPS[found[0]], draw)
            if exchange is None:
                break
            messages.append({"role": "user", "content": question})
            messages.append({"role": "assistant", "content": exchange.answer})
        if draw.random() < 0.35:
            messages.append({"role": "user", "content": worded(phrases.THANKS, draw)})
            messages.append({"role": "assistant", "content": draw.choice(phrases.WELCOME)})
        return conversation if sum(m["role"] == "user" for m in messages) > 1 else None


def _asked(conversation: Conversation) -> str:
    """What the model is given: two conversations must not share it."""
    given = [m["content"] for m in conversation["messages"] if m["role"] != "assistant"]
    return json.dumps([given, conversation.get("tools")])


def conversations(maker: Maker, wanted: dict[str, int]) -> Iterator[Conversation]:
    """Up to the wanted number of each kind, all distinct, none too long or with control text."""
    seen: set[str] = set()
    for kind, count in wanted.items():
        n_made = 0
        for _ in range(4 * count):
            if n_made == count:
                break
            conversation = maker.make(kind)
            if conversation is None:
                continue
            text, asked = json.dumps(conversation["messages"]), _asked(conversation)
            length = len(text) + len(json.dumps(conversation.get("tools", [])))
            if asked in seen or length > MAX_CHARACTERS or CONTROL_TEXT.search(text):
                continue
            seen.add(asked)
            n_made += 1
            yield conversation


def environment() -> jinja2.Environment:
    """Jinja as the libraries that read chat templates set it up: JSON is not escaped for HTML."""
    made = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    made.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return made


def renderer(template: Path = CHAT_TEMPLATE_FILE) -> Callable[[Conversation], str]:
    """What writes a conversation as the one string that is trained on.

    Without the beginning-of-text token, which packing puts before every document.
    """
    compiled = environment().from_string(template.read_text())
    return lambda conversation: compiled.render(
        bos_token="",
        messages=conversation["messages"],
        tools=conversation.get("tools"),
        add_generation_prompt=False,
    )


def read_conversations(folder: Path, split: Split) -> list[str]:
    """The conversations of one split as the chat template writes them, in the file's order."""
    render = renderer()
    with (folder / f"{split}.jsonl").open() as lines:
        return [render(json.loads(line)) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description="Make conversations out of the corpus.")
    parser.add_argument("--corpus", type=Path, required=True, help="folder of corpus.py")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for split, share in (("train", 1.0), ("heldout", HELD_OUT_SHARE)):
        facts = read_facts(arguments.corpus, split)
        if split == "train":
            facts = improved(facts, running_facts())
        maker = Maker(facts, split, random.Random(SEED))
        counts: Counter[str] = Counter()
        with (arguments.out / f"{split}.jsonl").open("w") as out:
            for conversation in conversations(
                maker, {k: round(n * share) for k, n in WANTED.items()}
            ):
                counts[conversation["kind"]] += 1
                out.write(json.dumps(conversation) + "\n")
        print(f"{split}: {sum(counts.values())} conversations, {dict(sorted(counts.items()))}")


if __name__ == "__main__":
    main()
