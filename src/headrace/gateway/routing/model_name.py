"""Names of models as clients write them: which are refused, and which may mean the same model."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import RequestError, shown
from headrace.protocol.json_object import JsonObject

MOST_CHARACTERS = 256
"""Names are stored with every ledger line; the longest of providers' have some 150."""

# Ollama's tag for a name without one.
_LATEST = ":latest"


def read_name(body: JsonObject) -> str:
    """The model of a request. Raises RequestError."""
    name = body.text("model")
    if not name:
        raise RequestError("model: a name is required", param="model", code="missing_model")
    check_name(name, "model")
    return name


def check_name(name: str, field: str) -> None:
    """Raise RequestError, naming the field, for a text that cannot be a model's name or that
    another reader may take for another name: outer blanks, invisible characters, `..` segments."""
    if len(name) > MOST_CHARACTERS:
        raise RequestError(
            f"{field}: the name has {len(name)} characters; at most {MOST_CHARACTERS} are allowed",
            param=field,
            code="invalid_model",
        )
    if name != name.strip() or not name.isprintable():
        problem = "has blanks at its beginning or end, or invisible characters"
    elif ".." in name and ".." in name.split("/"):
        problem = "has a path segment `..`"
    else:
        return
    raise RequestError(
        f"{field}: the name {shown(name)} {problem}; GET /v1/models lists the available names",
        param=field,
        code="invalid_model",
    )


def plain_name(target: str) -> str:
    """A target's `provider/model` for comparison: without case, blanks, and empty or `.` segments,
    which providers may ignore."""
    steps = "".join(target.casefold().split()).split("/")
    return "/".join(step for step in steps if step not in ("", ".")).removesuffix(_LATEST)


def plain_names(name: str) -> Iterator[str]:
    """All names by which a target may be meant: the whole, and what is left of it as the variants
    that providers sell behind a colon are cut off one by one."""
    plain = plain_name(name)
    while plain:
        yield plain
        plain = plain.rpartition(":")[0]
