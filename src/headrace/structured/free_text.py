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


def repeats_its_start(marks: Sequence[str]) -> bool:
    """Whether the first character of a mark is within one, so that free text cannot be cut so."""
    firsts = {mark[0] for mark in marks}
    return any(character in firsts for mark in marks for character in mark[1:])


def free_text(rules: Composition, marks: Sequence[str], forbidden: Sequence[str] = ()) -> str:
    """A rule for text, possibly none, that has none of the marks in it.

    marks: what follows the rule begins with these, each where it stands in the text. forbidden:
    marks that cannot come. ValueError for marks of which one `repeats_its_start`.
    """
    marks = [mark for mark in marks if not rules.begins_with_special(mark)]
    forbidden = [
        mark for mark in forbidden if not rules.begins_with_special(mark) and mark not in marks
    ]
    written = sorted({*marks, *forbidden})
    if not written:
        return rules.rule(ANYTHING)
    if repeats_its_start(written):
        raise ValueError(f"{written}: a mark has the first character of one again")
    firsts = _in_class("".join(sorted({mark[0] for mark in written})))
    others = [rules.rule(slashed(f"[^{firsts}]+"), terminal=True)]
    begun = {mark[:length] for mark in written for length in range(1, len(mark))}
    # A mark that begins another one is a mark wherever it stands. One that cannot come is not
    # there to be the longest match, so that its last character is kept away from it.
    begun = {each for each in begun if not any(each.startswith(mark) for mark in written)}
    cut = {mark[:-1]: mark[-1] for mark in forbidden if mark[:-1] in begun}
    starts = [expression(each) for each in sorted(begun - cut.keys(), key=len, reverse=True)]
    starts += [f"{expression(each)}[^{firsts}{_in_class(cut[each])}]" for each in sorted(cut)]
    if starts:
        others.append(rules.rule(slashed("|".join(starts)), terminal=True))
    return rules.rule(f"({' | '.join(others)})*")


def _in_class(characters: str) -> str:
    return "".join(f"\\{each}" if each in "\\]^-[&~" else each for each in characters)
