"""What the corpus and the running interpreter say of each function, method and class.

`read_facts` takes the corpus apart with `ast`; names are the ones users write: `os.path.join` and
not `posixpath.join`, and the shortest name a package exports. The same corpus always gives the same
facts in the same order. Knows nothing of questions.
"""

from __future__ import annotations

import ast
import doctest
import hashlib
import json
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from training.data.corpus import CONTROL_TEXT, STANDARD_LIBRARY, Split
from training.turns.prose import described
from training.turns.public_names import UNASKED, Exports, exports_of, is_public, public_module

MAX_SOURCE_LINES, MAX_SOURCE_CHARACTERS = 25, 1000
MAX_SIGNATURE_CHARACTERS = 320
# Files read of a package (the standard library is read whole), and facts kept of it.
MAX_FILES, MAX_FACTS = 36, 220
Arguments = tuple[str, ...]


@dataclass(frozen=True)
class Fact:
    """One function, method or class. `name` is its name within `module`, as `Path.exists`.

    arguments: each as it stands in the signature, without self and cls. signature: the head, with
    "def" or "class". source: dedented, "" when longer than a completion should be. head: the part
    of it up to and with the docstring. bare: `source` without the docstring. asked: whether users
    would ask about it by its name. Texts that are not at hand are "".
    """

    package: str
    module: str
    name: str
    kind: str
    split: Split
    summary: str
    description: str
    arguments: Arguments | None
    signature: str
    returns: str = ""
    example: str = ""
    source: str = ""
    head: str = ""
    bare: str = ""
    docstring: str = ""
    asked: bool = True

    @property
    def full_name(self) -> str:
        return self.name if self.module == "builtins" else f"{self.module}.{self.name}"


def first_example(docstring: str, name: str) -> str:
    """The first session of a docstring that uses `name`, at most eight lines; "" for none."""
    try:
        examples = doctest.DocTestParser().get_examples(docstring)
    except ValueError:
        return ""
    lines: list[str] = []
    for example in examples:
        source = example.source.rstrip("\n").split("\n")
        shown = [("... " if i else ">>> ") + line for i, line in enumerate(source)]
        shown += example.want.rstrip("\n").split("\n") if example.want else []
        if len(lines) + len(shown) > 8 or any(len(line) > 90 for line in shown):
            break
        lines += shown
        if name in example.source and example.want:
            break
    text = "\n".join(lines)
    return text if name in text and "doctest" not in text else ""


def split_arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Arguments:
    """Each argument with its annotation and default, without self and cls."""
    found = [part for part in _written(node.args) if part not in ("/", "*")]
    if found and found[0] in ("self", "cls", "mcs", "klass"):
        found = found[1:]
    return tuple(found)


def _written(spec: ast.arguments) -> list[str]:
    """Every argument as it is written, with the marks "/" and "*" among them."""
    positional = [*spec.posonlyargs, *spec.args]
    defaults = [None] * (len(positional) - len(spec.defaults)) + list(spec.defaults)
    parts = [_argument(*pair) for pair in zip(positional, defaults, strict=True)]
    if spec.posonlyargs:
        parts.insert(len(spec.posonlyargs), "/")
    if spec.vararg or spec.kwonlyargs:
        parts.append("*" + (_argument(spec.vararg, None) if spec.vararg else ""))
    parts += [_argument(*pair) for pair in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
    if spec.kwarg:
        parts.append("**" + _argument(spec.kwarg, None))
    return parts


def _argument(item: ast.arg, default: ast.expr | None) -> str:
    text = item.arg
    if item.annotation is not None:
        text += f": {ast.unparse(item.annotation)}"
    if default is not None:
        text += (" = " if item.annotation is not None else "=") + ast.unparse(default)
    return text


def head_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The signature, on one line, or one argument a line where that is too long."""
    prefix = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    inner = ", ".join(_written(node.args))
    line = f"{prefix} {node.name}({inner}){returns}:"
    if len(line) <= 96:
        return line
    rows = "".join(f"    {part},\n" for part in _written(node.args))
    return f"{prefix} {node.name}(\n{rows}){returns}:"


def source_of(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, lines: list[str]
) -> tuple[str, str, str]:
    """(source, head with the docstring, source without the docstring), or three times ""."""
    end = node.end_lineno or node.lineno
    if end - node.lineno >= MAX_SOURCE_LINES or end - node.lineno < 2:
        return "", "", ""
    text = textwrap.dedent("\n".join(lines[node.lineno - 1 : end])).rstrip()
    if len(text) > MAX_SOURCE_CHARACTERS or not text.isascii() or "\t" in text:
        return "", "", ""
    if "NotImplementedError" in text:
        return "", "", ""
    try:
        ast.parse(text)
    except SyntaxError:
        return "", "", ""
    own = text.split("\n")
    documented = ast.get_docstring(node) is not None
    if not documented or len(node.body) < 2:
        return text, "", text
    first = node.body[0].lineno - node.lineno
    last = (node.body[0].end_lineno or 0) - node.lineno + 1
    if first == 0 or not own[first].lstrip().startswith(('"', "'", "r", "R")):
        return "", "", ""
    rest = own[last:]
    while rest and not rest[0].strip():
        rest = rest[1:]
    above = own[:first]
    while not above[-1].strip():
        above = above[:-1]
    return text, "\n".join(own[:last]), "\n".join([*above, *rest])


def fact_of(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
    owner: str,
    module: str,
    package: str,
    split: Split,
    lines: list[str],
) -> Fact | None:
    """The fact of one definition, or None where it has nothing to say."""
    docstring = ast.get_docstring(node) or ""
    source, head, bare = source_of(node, lines)
    if not docstring and not source:
        return None
    summary, description = described(docstring) if docstring else ("", "")
    maker: ast.FunctionDef | ast.AsyncFunctionDef | None = None
    if isinstance(node, ast.ClassDef):
        inits = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
        maker = inits[0] if inits else None
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        signature = f"class {node.name}({bases}):" if bases else f"class {node.name}:"
        if maker:
            signature += "\n" + textwrap.indent(head_of(maker), "    ")
    else:
        maker, signature = node, head_of(node)
    decorators = [ast.unparse(item) for item in getattr(node, "decorator_list", [])]
    if any("overload" in d or "setter" in d or "deprecat" in d for d in decorators):
        return None
    kind = "class" if isinstance(node, ast.ClassDef) else "method" if owner else "function"
    if any("property" in d for d in decorators):
        kind, maker, signature = "property", None, ""
    returns = ast.unparse(node.returns) if getattr(node, "returns", None) else ""
    return Fact(
        package=package,
        module=module,
        name=f"{owner}.{node.name}" if owner else node.name,
        kind=kind,
        split=split,
        summary=summary,
        description=description,
        arguments=split_arguments(maker) if maker else None,
        signature=signature if len(signature) <= MAX_SIGNATURE_CHARACTERS else "",
        returns=returns if len(returns) < 80 else "",
        example=first_example(docstring, node.name),
        source=source,
        head=head,
        bare=bare,
        docstring=docstring if len(docstring) < 500 else "",
    )


def definitions(
    tree: ast.Module,
) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, str]]:
    """Functions and classes of a module with the name of their class; special methods are not."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node, ""
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield inner, node.name


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _chosen(documents: list[dict[str, str]]) -> list[dict[str, str]]:
    """All of the standard library, all __init__ files, and a sample of the rest by hash."""
    n_taken: Counter[str] = Counter()
    keyed = sorted(documents, key=lambda d: hashlib.sha256(d["path"].encode()).digest())
    chosen = []
    for document in keyed:
        package, path = document["package"], document["path"]
        if not path.endswith(".py") or ".dist-info" in path or "config-3" in path:
            continue
        if package != STANDARD_LIBRARY and not path.endswith("__init__.py"):
            n_taken[package] += 1
            if n_taken[package] > MAX_FILES:
                continue
        chosen.append(document)
    return sorted(chosen, key=lambda d: (d["package"], d["path"]))


def read_facts(corpus: Path, split: Split) -> list[Fact]:
    """The facts of one split of the corpus, in the order of its packages and paths."""
    with (corpus / f"{split}.jsonl").open() as lines:
        documents = _chosen([json.loads(line) for line in lines])
    exported: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    found: list[Fact] = []
    for document in documents:
        module, tree = module_of(document["path"]), ast.parse(document["text"])
        if document["path"].endswith("__init__.py") and is_public(module):
            for target, name, given in exports_of(tree, module):
                if given == name:
                    exported[target, name].add(module)
        own: list[Fact] = []
        rows = document["text"].split("\n")
        for node, owner in definitions(tree):
            if node.name.startswith("__") or owner.startswith("__"):
                continue
            fact = fact_of(node, owner, module, document["package"], split, rows)
            if fact and not any(CONTROL_TEXT.search(t) for t in (fact.docstring, fact.source)):
                own.append(fact)
        if document["package"] != STANDARD_LIBRARY and len(own) > MAX_FACTS // 6:
            own.sort(key=lambda f: hashlib.sha256(f.full_name.encode()).digest())
            own = own[: MAX_FACTS // 6]
        found += own
    return _renamed(found, exported)


def _renamed(facts: list[Fact], exported: Exports) -> list[Fact]:
    result, seen = [], set()
    for fact in facts:
        module = public_module(fact.module, fact.name.split(".")[0], exported)
        asked = is_public(module) and is_public(fact.name) and module.split(".")[0] not in UNASKED
        if (module, fact.name) not in seen:
            seen.add((module, fact.name))
            result.append(replace(fact, module=module, asked=asked))
    return result
