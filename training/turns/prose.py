"""Plain prose out of docstrings: one to three sentences without markup, sections and signatures.

Docstrings of a hundred projects are written in reStructuredText, Google, NumPy and Epydoc styles;
what remains here reads as an answer does. A docstring that cannot be cleaned gives "". Knows
nothing of questions.
"""

from __future__ import annotations

import inspect
import re

from training.turns.tables import words

# A docstring's prose ends where one of these begins a paragraph or a line.
SECTION = re.compile(
    r"^\s*(:\w+[^:\n]*:|@\w+|>>>|\.\. |\$ |(Args?|Arguments|Parameters?|Params|Returns?|Yields?|"
    r"Raises|Examples?|Notes?|References|See Also|Usage|Attributes|Example usage|Keyword Args|"
    r"Keyword arguments|Warnings?|Methods|Inputs?|Outputs?|Options|Synopsis)\b\s*(\(\w+\))?:*\s*$|"
    r"(Args?|Arguments|Parameters|Returns|Raises|Yields|Example|Examples|Usage)\s*:|[-=~^*#]{3,}|"
    r"[-*+•] |\d+[.)] |\|)",
    re.IGNORECASE,
)
ROLE_WITH_TARGET = re.compile(r":[\w:+.-]+:`([^`<]+?)\s*<[^`>]*>`")
ROLE = re.compile(r":[\w:+.-]+:`(!|~)?([^`]+)`")
LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`__?|`([^`]+)`__?(?!\w)|\b(\w+)_(?=[\s.,;)]|$)")
EPYDOC = re.compile(r"\b[LCBIMU]\{([^{}<]*)(?:<[^{}]*>)?\}")
EMPHASIS = re.compile(r"(?<![\w*])\*\*?([A-Za-z_][^*\n]{0,60}?)\*\*?(?![\w*])")
SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<!vs\.)(?<!cf\.)\s+(?=[A-Z`'\"])"
)
SIGNATURE_LINE = re.compile(
    r"^(?:\w+ ?= ?)?[A-Za-z_][\w.]*\s*\([^\n]*\)\s*(?:->\s*[^\n]+?)?(?:\s+--\s+|:\s+|$)"
)
# Marks of notes to maintainers, of machine-made text, and of what no longer exists.
UNWANTED = re.compile(
    r"TODO|FIXME|XXX|copyright|https?://|deprecated|\bsee above|\{\{|%\(|\\[a-z]+\{|\$"
    r"|auto-?generated|__doc__|\bwip\b|docstring|\ufffd|\.\. |::|not implemented"
    r"|for internal use|internal (api|use)|@",
    re.IGNORECASE,
)
# Words that something has to follow, which was cut off: a list, an example, a link.
UNFINISHED = re.compile(
    r"\b(following|follows|below|above|e\.g|i\.e|such as|the|an?|of|to|by|with|for|and|or|is|are"
    r"|in)\.?$"
)
MAX_WORDS = 60


def sentences(text: str) -> list[str]:
    return [part.strip() for part in SENTENCE_END.split(text) if part.strip()]


def without_markup(text: str) -> str:
    """One line of prose: roles, links, literals and emphasis written as plain text."""
    text = ROLE_WITH_TARGET.sub(lambda m: "`" + m[1].strip() + "`", text)
    text = ROLE.sub(lambda m: "`" + (m[2].split(".")[-1] if m[1] == "~" else m[2]) + "`", text)
    text = text.replace("``", "`")
    text = LINK.sub(lambda m: m[1] or m[2] or m[3], text)
    text = EPYDOC.sub(r"\1", text)
    text = EMPHASIS.sub(r"\1", text)
    text = re.sub(r"\s+", " ", text.replace("\\ ", "")).strip()
    return re.sub(r"\s+([,.;:])(?=\s|$)", r"\1", text)


def first_paragraphs(docstring: str) -> list[str]:
    """The paragraphs before the first section, list or example, each on one line."""
    lines = inspect.cleandoc(docstring).split("\n")
    while lines and (not lines[0].strip() or SIGNATURE_LINE.match(lines[0])):
        rest = SIGNATURE_LINE.sub("", lines[0], count=1).strip() if lines[0].strip() else ""
        if rest:
            lines[0] = rest[0].upper() + rest[1:]
            break
        lines = lines[1:]
    paragraphs: list[str] = []
    current: list[str] = []
    for line, after in zip(lines, [*lines[1:], ""], strict=False):
        if len(line.split()) <= 2 and line[:1].strip() and after.startswith("  "):
            break  # an argument, with its description below it
        if SECTION.match(line) or (line.startswith("    ") and not current):
            if current and not SECTION.match(line):
                continue
            break
        if line.strip():
            current.append(line.strip())
        elif current:
            paragraphs.append(" ".join(current))
            current = []
            if len(paragraphs) == 3:
                break
    if current:
        paragraphs.append(" ".join(current))
    return [without_markup(paragraph) for paragraph in paragraphs]


def _finished(sentence: str) -> str:
    sentence = sentence.rstrip(" -")
    if sentence.endswith((":", ";", ",")):
        sentence = sentence[:-1].rstrip()
    if sentence and sentence[-1] not in ".!?":
        sentence += "."
    if re.match(r"[a-z]+[ ,]", sentence):
        sentence = sentence[0].upper() + sentence[1:]
    return sentence


def is_prose(sentence: str) -> bool:
    """Whether it reads as a whole sentence of English: no markup left, brackets balanced."""
    words = sentence.split()
    return (
        3 <= len(words) <= MAX_WORDS
        and not UNWANTED.search(sentence)
        and sentence.isascii()
        and sentence.count("`") % 2 == 0
        and sentence.count('"') % 2 == 0
        and all(sentence.count(a) == sentence.count(b) for a, b in ("()", "[]", "{}"))
        and "|" not in sentence
        and not re.search(r"<\S|\S>|->|\\", sentence)
        and sum(c.isalpha() or c == " " for c in sentence) > 0.8 * len(sentence)
        and re.match(r"[A-Z`'\"]", sentence) is not None
        and not UNFINISHED.search(sentence)
    )


def described(docstring: str, max_words: int = MAX_WORDS) -> tuple[str, str]:
    """The first sentence, and the first few up to `max_words` words. ("", "") when unusable."""
    found: list[str] = []
    for index, paragraph in enumerate(first_paragraphs(docstring)):
        parts = sentences(paragraph)
        if paragraph.endswith(":") and (index or len(parts) > 1):
            parts = parts[:-1]  # it announces what was cut off
        for part in parts:
            part = _finished(part)
            if not is_prose(part) or part.startswith(("Note", "Warning", "See ", "This is a")):
                if found:
                    return found[0], " ".join(found)
                if not is_prose(part):
                    return "", ""
            if found and sum(len(p.split()) for p in [*found, part]) > max_words:
                return found[0], " ".join(found)
            found.append(part)
            if len(found) == 3:
                return found[0], " ".join(found)
    return (found[0], " ".join(found)) if found else ("", "")


VERBS = frozenset(words("verbs"))
ADVERBS = frozenset(
    {"recursively", "safely", "asynchronously", "efficiently", "randomly", "simply"}
)


SECOND_VERB = re.compile(
    r"(,? and|; then|, then|; otherwise|, otherwise|;) ([a-z]+)"
    r"(?= (?:the|an?|it|its|them|all|any|each|this|None|True|False|whether|to)\b)"
)
SUBORDINATE = re.compile(r"\b(to|can|will|must|should|may|that|which|who|if|when|could|would)\b")


def _singular(verb: str) -> str:
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return f"{verb[:-1]}ies"
    return f"{verb}{'es' if verb.endswith(('s', 'sh', 'ch', 'x', 'z', 'o')) else 's'}"


def third_person(sentence: str) -> str | None:
    """ "Return the sum." as "returns the sum."; None where the first word is no known verb."""
    first, _, rest = sentence.partition(" ")
    word = first.lower()
    if not rest or not first[0].isupper():
        return None
    if word in ADVERBS:
        inner = third_person(rest[0].upper() + rest[1:])
        return f"{word} {inner}" if inner else None
    if word not in VERBS:
        singular = word[:-2] if word.endswith("es") and word[:-2] in VERBS else word[:-1]
        return f"{word} {rest}" if word.endswith("s") and singular in VERBS else None
    match = SECOND_VERB.search(rest)
    if match and match[2] in VERBS and not SUBORDINATE.search(rest[: match.start()]):
        rest = rest[: match.start(2)] + _singular(match[2]) + rest[match.end(2) :]
    if word == "lookup":
        return f"looks up {rest.removeprefix('up ')}"
    return f"{_singular(word)} {rest}"
