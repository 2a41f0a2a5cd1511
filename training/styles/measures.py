"""How typed and how terse a text is, counted.

A small model writes text that often does not parse whole, and a sample ends in the middle of a
line. So nothing here needs a text that parses: strings and comments are found by one regular
expression, the heads of functions by `def` and the bracket that closes them, and only each head
is given to Python's parser. A head that the text's end cuts off is not counted, nor is the body of
a function that has none yet. Knows nothing of models.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

# A string that nothing ends goes on to the end of its line, and in triple quotes of the text.
STRING_OR_COMMENT = re.compile(
    r'''"""(?:\\.|(?!""").)*(?:"""|\Z)|\'\'\'(?:\\.|(?!\'\'\').)*(?:\'\'\'|\Z)'''
    r"""|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|\#[^\n]*""",
    re.DOTALL,
)
FUNCTION_HEAD = re.compile(
    r"^[ \t]*(?:async[ \t]+)?def[ \t]+\w+[ \t]*(?:\[[^]\n]*\])?[ \t]*\(", re.MULTILINE
)
# What a body begins with when it begins with a docstring; comments may stand before it.
DOCSTRING_START = re.compile(r"(?:\s|#[^\n]*\n)*[rRuU]?(?P<quote>\"|')")
BODY_START = re.compile(r"(?:\s|#[^\n]*\n)*[^\s#]")
# Comments that speak to a tool and not to a reader.
DIRECTIVE = re.compile(
    r"#[!:]|#\s*(?:noqa|type:|pragma|pylint|fmt:|mypy|ruff|isort|nosec|-\*-)", re.I
)
# A first parameter of such a name is the receiver of a method, which nobody annotates.
RECEIVERS = frozenset({"self", "cls", "mcs"})

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Comment:
    """One comment: its text with the #, where it begins, and whether it has its line to itself."""

    text: str
    offset: int
    own_line: bool

    @property
    def n_words(self) -> int:
        return len(self.text.lstrip("#").split())


@dataclass(frozen=True)
class Counts:
    """What was counted in one text, or added up over several; shares come from `shares`."""

    functions: int = 0
    typed_functions: int = 0
    parameters: int = 0
    annotated_parameters: int = 0
    annotated_returns: int = 0
    bodies: int = 0
    docstrings: int = 0
    code_lines: int = 0
    comments: int = 0
    comment_words: int = 0

    def __add__(self, other: Counts) -> Counts:
        names = [field.name for field in fields(Counts)]
        return Counts(*(getattr(self, name) + getattr(other, name) for name in names))

    def shares(self) -> dict[str, float]:
        """The measures of both styles; a share of nothing is 0."""

        def share(part: int, whole: int, scale: float = 1.0) -> float:
            return scale * part / whole if whole else 0.0

        return {
            "typed_functions": share(self.typed_functions, self.functions),
            "annotated_parameters": share(self.annotated_parameters, self.parameters),
            "annotated_returns": share(self.annotated_returns, self.functions),
            "docstrings": share(self.docstrings, self.bodies),
            "comments_per_100_code_lines": share(self.comments, self.code_lines, 100.0),
            "words_per_comment": share(self.comment_words, self.comments),
        }


def parameters_of(function: FunctionNode) -> list[ast.arg]:
    """All parameters, starred ones too, without the receiver."""
    arguments = function.args
    positional = arguments.posonlyargs + arguments.args
    if positional and positional[0].arg in RECEIVERS:
        positional = positional[1:]
    starred = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    return positional + arguments.kwonlyargs + starred


def is_typed(function: FunctionNode) -> bool:
    """Whether every parameter and the return are annotated."""
    annotated = all(one.annotation is not None for one in parameters_of(function))
    return annotated and function.returns is not None


def without_strings(text: str) -> tuple[str, list[Comment]]:
    """`text` with strings and comments as spaces, every other character at its place; comments.

    Newlines stay, so that lines are the same lines.
    """
    comments: list[Comment] = []

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        if found.startswith("#"):
            line_start = text.rfind("\n", 0, match.start()) + 1
            own_line = not text[line_start : match.start()].strip()
            if not DIRECTIVE.match(found):
                comments.append(Comment(found, match.start(), own_line))
        return re.sub(r"[^\n]", " ", found)

    return STRING_OR_COMMENT.sub(blank, text), comments


def _head_end(code: str, opened: int) -> int | None:
    """The offset after the colon of the head whose bracket opens at `opened`; None: cut off."""
    depth = 0
    for offset in range(opened, len(code)):
        character = code[offset]
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == ":" and depth == 0:
            return offset + 1
        elif character == "\n" and depth == 0:
            return None
    return None


def _head_node(head: str) -> FunctionNode | None:
    try:
        node = ast.parse(head.strip() + " ...").body[0]
    except (SyntaxError, ValueError):
        return None
    return node if isinstance(node, FunctionNode) else None


def count(text: str) -> Counts:
    """The counts of one text. A line of code is one with more on it than comments and strings."""
    code, comments = without_strings(text)
    functions = typed = parameters = annotated = returns = bodies = docstrings = 0
    for match in FUNCTION_HEAD.finditer(code):
        end = _head_end(code, match.end() - 1)
        node = None if end is None else _head_node(text[match.start() : end])
        if end is None or node is None:
            continue
        functions += 1
        typed += is_typed(node)
        parameters += len(parameters_of(node))
        annotated += sum(one.annotation is not None for one in parameters_of(node))
        returns += node.returns is not None
        bodies += BODY_START.match(text, end) is not None
        docstrings += DOCSTRING_START.match(text, end) is not None
    return Counts(
        functions=functions,
        typed_functions=typed,
        parameters=parameters,
        annotated_parameters=annotated,
        annotated_returns=returns,
        bodies=bodies,
        docstrings=docstrings,
        code_lines=sum(bool(line.strip()) for line in code.splitlines()),
        comments=len(comments),
        comment_words=sum(comment.n_words for comment in comments),
    )


def count_all(texts: Iterable[str]) -> Counts:
    """The counts of several texts together."""
    return sum((count(text) for text in texts), Counts())


def name_prompts(texts: Sequence[str]) -> list[str]:
    """ "def name(" of every public top-level function with parameters, once, in order of text.

    Texts that do not parse have none.
    """
    names: dict[str, None] = {}
    for text in texts:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        for function in functions:
            if parameters_of(function) and not function.name.startswith("_"):
                names[f"def {function.name}("] = None
    return list(names)
