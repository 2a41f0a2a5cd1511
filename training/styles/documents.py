"""Documents of two ways to write Python, made of the corpus by its syntax trees.

"typed" has every parameter and every return annotated, in today's spelling (`int | None`,
`list[int]`). Nothing is rewritten: such code is chosen. "terse" has no docstring, and comments of
one line with at most eight words. Its docstrings are cut out of the source by position, so that
everything else stays as its author wrote it; a short first sentence stays as the comment.
The same texts and seed give the same documents. Knows nothing of tokens.
"""

from __future__ import annotations

import ast
import random
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, get_args

from training.styles.measures import DIRECTIVE, FunctionNode, count, is_typed, without_strings

Style = Literal["typed", "terse"]
STYLES: tuple[Style, ...] = get_args(Style)

# A module of so many functions and so many typed ones of them is one document, if short: a long
# one is cut into windows in which the style is not said from the start.
MIN_MODULE_FUNCTIONS, MIN_TYPED_SHARE, MAX_MODULE_CHARACTERS = 2, 0.9, 12_000
# Before Python 3.10 annotations were spelled with these names of `typing`.
OLD_SPELLINGS = frozenset(
    {"Optional", "Union", "List", "Dict", "Tuple", "Set", "FrozenSet", "Type"}
)
MAX_COMMENT_WORDS = 8
# With fewer comments than one in so many lines a definition does not show the style.
MAX_LINES_PER_COMMENT = 15
MIN_LINES, MAX_LINES = 3, 100
# No file gives more documents than this: its habits would be taken for the style.
MAX_FILE_DOCUMENTS = 8
# A sentence of plain words; markup and code in it would need the rest of the docstring.
PLAIN_SENTENCE = re.compile(r"[A-Za-z][\w ,'()/=+*%-]*")
END_OF_SENTENCE = re.compile(r"\.(?:\s|\Z)")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def functions_in(tree: ast.AST) -> list[FunctionNode]:
    return [node for node in ast.walk(tree) if isinstance(node, FunctionNode)]


def spelled_for_today(functions: Iterable[FunctionNode]) -> bool:
    """Whether no annotation uses one of OLD_SPELLINGS."""
    for function in functions:
        annotations = [n.annotation for n in ast.walk(function.args) if isinstance(n, ast.arg)]
        for annotation in (*annotations, function.returns):
            for node in ast.walk(annotation) if annotation is not None else ():
                name = getattr(node, "id", getattr(node, "attr", None))
                if name in OLD_SPELLINGS:
                    return False
    return True


def definitions_of(tree: ast.Module) -> list[Definition]:
    """Functions and classes of the module itself that are neither tiny nor long."""
    return [
        node
        for node in tree.body
        if isinstance(node, Definition)
        and MIN_LINES <= (node.end_lineno or node.lineno) - node.lineno + 1 <= MAX_LINES
    ]


def used_imports(tree: ast.Module, node: Definition) -> str:
    """The module's imports of names that `node` uses, a statement a line."""
    used = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    lines = []
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            wanted = [
                alias
                for alias in statement.names
                if (alias.asname or alias.name.partition(".")[0]) in used
            ]
            if isinstance(statement, ast.Import):
                lines += [ast.unparse(ast.Import([alias])) for alias in wanted]
            elif wanted:
                chosen = ast.ImportFrom(statement.module, wanted, statement.level)
                lines.append(ast.unparse(chosen))
    return "".join(f"{line}\n" for line in lines)


def _first_line(node: Definition) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _standing_alone(tree: ast.Module, node: Definition, source: str) -> str:
    imports = used_imports(tree, node)
    return f"{imports}\n\n{source}" if imports else source


def typed_documents(text: str, tree: ast.Module) -> list[str]:
    """The module when nearly all of it is typed, or else its definitions that are."""
    functions = functions_in(tree)
    n_typed = sum(map(is_typed, functions))
    if (
        len(functions) >= MIN_MODULE_FUNCTIONS
        and n_typed >= MIN_TYPED_SHARE * len(functions)
        and len(text) <= MAX_MODULE_CHARACTERS
        and spelled_for_today(functions)
    ):
        return [text]
    lines = text.splitlines(keepends=True)
    documents = []
    for node in definitions_of(tree):
        inside = functions_in(node)
        if inside and all(map(is_typed, inside)) and spelled_for_today(inside):
            source = "".join(lines[_first_line(node) - 1 : node.end_lineno])
            documents.append(_standing_alone(tree, node, source))
    return documents


def comment_of(docstring: str) -> str | None:
    """The first sentence as the words of a comment; None when it is long or not plain words."""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    sentence = END_OF_SENTENCE.split(paragraph, maxsplit=1)[0]
    words = sentence.split()
    if not PLAIN_SENTENCE.fullmatch(sentence) or not 2 <= len(words) <= MAX_COMMENT_WORDS:
        return None
    # A name such as HTTP or DataFrame keeps its capitals.
    if words[0] == words[0].capitalize():
        words[0] = words[0].lower()
    return " ".join(words)


def without_docstrings(lines: Sequence[str], node: Definition) -> str | None:
    """The source of `node`, each docstring gone or a comment; None when one shares its line.

    `lines` are the module's, with their ends. A body that was a docstring alone becomes `pass`.
    """
    kept = list(lines[: node.end_lineno])
    inner = [part for part in ast.walk(node) if isinstance(part, Definition)]
    # From the last to the first, so that the positions of those still to come hold.
    for part in sorted(inner, key=lambda part: part.lineno, reverse=True):
        docstring = ast.get_docstring(part)
        if docstring is None:
            continue
        statement = part.body[0]
        first, end = statement.lineno - 1, statement.end_lineno or statement.lineno
        indent = kept[first].encode()[: statement.col_offset].decode()
        after = kept[end - 1].encode()[statement.end_col_offset or 0 :].decode()
        if indent.strip() or after.strip():
            return None
        comment = comment_of(docstring)
        instead = [] if comment is None else [f"{indent}# {comment}\n"]
        if len(part.body) == 1:
            instead.append(f"{indent}pass\n")
        while len(part.body) > 1 and not kept[end].strip():
            end += 1
        kept[first:end] = instead
    return "".join(kept[_first_line(node) - 1 :])


def is_terse(source: str) -> bool:
    """Whether it has no docstring, and comments often enough, each one line of few words.

    Behind a docstring that was cut out there may be a second string, which is one now.
    """
    _, comments = without_strings(source)
    n_lines = sum(bool(line.strip()) for line in source.splitlines())
    own_lines = [source.count("\n", 0, one.offset) for one in comments if one.own_line]
    one_line_each = all(b - a > 1 for a, b in pairwise(own_lines))
    return (
        bool(own_lines)
        and not count(source).docstrings
        and one_line_each
        and n_lines <= MAX_LINES_PER_COMMENT * len(own_lines)
        and all(1 <= one.n_words <= MAX_COMMENT_WORDS for one in comments)
        and not any(DIRECTIVE.search(line) for line in source.splitlines())
    )


def terse_documents(text: str, tree: ast.Module) -> list[str]:
    """The definitions that are terse once their docstrings are out."""
    lines = text.splitlines(keepends=True)
    documents = []
    for node in definitions_of(tree):
        source = without_docstrings(lines, node)
        if source is not None and functions_in(node) and is_terse(source):
            documents.append(_standing_alone(tree, node, source))
    return documents


def suits(text: str, style: Style) -> bool:
    """Whether all Python in `text`, such as a conversation, is of the style; also when none is."""
    counts = count(text)
    if style == "typed":
        return counts.typed_functions == counts.functions
    return counts.docstrings == 0 and counts.comment_words <= MAX_COMMENT_WORDS * counts.comments


MAKERS: dict[Style, Callable[[str, ast.Module], list[str]]] = {
    "typed": typed_documents,
    "terse": terse_documents,
}


def parsed(text: str) -> ast.Module | None:
    """The syntax tree; None for what is not Python, as the corpus holds documentation too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError):
            return None


def _documents(texts: Sequence[str], style: Style, seed: int) -> Iterator[str]:
    draw = random.Random(seed)
    order = list(range(len(texts)))
    draw.shuffle(order)
    for index in order:
        tree = parsed(texts[index])
        if tree is None:
            continue
        documents = MAKERS[style](texts[index], tree)
        yield from draw.sample(documents, min(len(documents), MAX_FILE_DOCUMENTS))


def style_documents(texts: Sequence[str], style: Style, seed: int, max_bytes: int) -> list[str]:
    """Documents of `style` from `texts`, in an order drawn from `seed`, of at least `max_bytes`.

    All there are, when they are fewer. Reads no more of `texts` than that takes.
    """
    chosen: list[str] = []
    n_bytes = 0
    for document in _documents(texts, style, seed):
        chosen.append(document)
        n_bytes += len(document.encode())
        if n_bytes >= max_bytes:
            break
    return chosen
