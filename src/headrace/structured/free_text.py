"""Text that may be anything up to a mark, as rules that cost almost nothing for each token.

A mark that is a control token ends free text by itself, since no text has it. Other marks are
found in the text: free text is then made of runs without the first character of any mark, and of
beginnings of marks that go on in another way. Both are the longest match at their place, so that a
mark that is written out is always read as the mark.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.structured.composition import Composition, expression, slashed

ANYTHING = r"/(.|\n)*/"
SPACE = r"/[ \t\r\n]{0,4}/"
"""Between the parts of an answer, where models write it as they like."""


_MIN_TOLD = 4
"""Characters by which a mark has to be told from text: less of it would be missing in much text."""


def repeats_its_start(marks: Sequence[str]) -> bool:
    """Whether the first character of a mark is within one, so that free text cannot be cut so."""
    firsts = {mark[0] for mark in marks}
    return any(character in firsts for mark in marks for character in mark[1:])


def _told_by_their_start(marks: Sequence[str]) -> list[str]:
    """The marks, each up to where a mark's first character comes again: free text is without as
    much of them."""
    firsts = {mark[0] for mark in marks}
    told: set[str] = set()
    for mark in marks:
        again = (at for at in range(1, len(mark)) if mark[at] in firsts)
        length = next(again, len(mark))
        if length < min(_MIN_TOLD, len(mark)):
            raise ValueError(f"{list(marks)}: a mark has the first character of one again")
        told.add(mark[:length])
    return sorted(told)


def free_text(rules: Composition, marks: Sequence[str], forbidden: Sequence[str] = ()) -> str:
    """A rule for text, possibly none, that has none of the marks in it.

    marks: what follows the rule begins with these, each where it stands in the text. forbidden:
    marks that cannot come. ValueError for marks of which one has the first character of one again
    so early that text without its beginning would lack more than the mark.
    """
    before = [rules.before_special(mark) for mark in marks]
    # Free text ends where a control token comes; what a mark has before it is text like other.
    heads = sorted({head for head in before if head})
    marks = [mark for mark, head in zip(marks, before, strict=True) if head is None]
    forbidden = [
        mark for mark in forbidden if rules.before_special(mark) is None and mark not in marks
    ]
    written = _told_by_their_start(sorted({*marks, *forbidden}))
    if not written and not heads:
        return rules.rule(ANYTHING)
    firsts = in_class("".join(sorted({text[0] for text in (*written, *heads)})))
    others = [rules.rule(slashed(f"[^{firsts}]+"), terminal=True)]
    others += map(rules.text, heads)
    begun = {text[:length] for text in (*written, *heads) for length in range(1, len(text))}
    begun -= {*heads}
    # A mark that begins another one is a mark wherever it stands. One that cannot come is not
    # there to be the longest match, so that its last character is kept away from it.
    begun = {each for each in begun if not any(each.startswith(mark) for mark in written)}
    cut = {mark[:-1]: mark[-1] for mark in forbidden if mark[:-1] in begun}
    starts = [expression(each) for each in sorted(begun - cut.keys(), key=len, reverse=True)]
    starts += [f"{expression(each)}[^{firsts}{in_class(cut[each])}]" for each in sorted(cut)]
    if starts:
        others.append(rules.rule(slashed("|".join(starts)), terminal=True))
    return rules.rule(f"({' | '.join(others)})*")


def in_class(characters: str) -> str:
    """Characters as they stand within a class of an expression."""
    return "".join(f"\\{each}" if each in "\\]^-[&~" else each for each in characters)
