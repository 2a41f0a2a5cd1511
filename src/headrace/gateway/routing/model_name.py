"""Names of models as clients write them: which are refused, and which may mean the same model."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import RequestError, shown
from headrace.protocol.json_object import JsonObject

MOST_CHARACTERS = 256
"""Names are kept with every line of a request; the longest of providers' have some 150."""

# Ollama's for a name without a tag.
_LATEST = ":latest"


def read_name(body: JsonObject) -> str:
    """A request's model. Raises RequestError."""
    found = body.text("model")
    if not found:
        raise RequestError("model: a name is required", param="model", code="missing_model")
    check_name(found, "model")
    return found


def check_name(name: str, field: str) -> None:
    """Raise RequestError, which names the field, for what cannot be a model's name, or what another
    reader may take for another name: blanks at an end, signs that nobody sees, steps upwards."""
    if len(name) > MOST_CHARACTERS:
        raise RequestError(
            f"{field}: the name has {len(name)} characters; at most {MOST_CHARACTERS} are allowed",
            param=field,
            code="invalid_model",
        )
    if name != name.strip() or not name.isprintable():
        problem = "has blanks at an end, or signs that cannot be seen"
    elif ".." in name and ".." in name.split("/"):
        problem = "has a step upwards (..)"
    else:
        return
    raise RequestError(
        f"{field}: the name {shown(name)} {problem}; GET /v1/models lists the names there are",
        param=field,
        code="invalid_model",
    )


def plain_name(target: str) -> str:
    """A target's `provider/model` as names are compared: without case, blanks, empty steps and
    steps to the same place, which providers may pass over."""
    steps = "".join(target.casefold().split()).split("/")
    return "/".join(one for one in steps if one not in ("", ".")).removesuffix(_LATEST)


def plain_names(name: str) -> Iterator[str]:
    """All under which a target may be meant: the whole, and what is left of it without one after
    another of the variants that providers sell behind a colon."""
    found = plain_name(name)
    while found:
        yield found
        found = found.rpartition(":")[0]
