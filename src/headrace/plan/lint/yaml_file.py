"""YAML and JSON with the line of each value, so that a finding can name it."""

from __future__ import annotations

from typing import Any, NamedTuple

import yaml

from headrace.errors import ConfigError


class Document(NamedTuple):
    """loaded: plain values. lines: by path, "model_list.0.litellm_params.timeout", from 1."""

    loaded: Any
    lines: dict[str, int]


def read_yaml(text: str, name: str) -> tuple[Document, ...]:
    """Every document of a file. Raises ConfigError with line and column."""
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        loaded = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        at = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{name}: not valid YAML: {problem}{at}") from error
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"{name}: not usable YAML: {error}") from error
    found = []
    for node, value in zip(nodes, loaded, strict=True):
        lines: dict[str, int] = {}
        _walk(node, "", lines, set())
        found.append(Document(value, lines))
    return tuple(found)


def _walk(node: yaml.Node | None, path: str, lines: dict[str, int], within: set[int]) -> None:
    if node is None or id(node) in within:
        return
    children: list[tuple[str, yaml.Node, int]] = []
    if isinstance(node, yaml.MappingNode):
        children = [(str(key.value), value, key.start_mark.line + 1) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        children = [(str(at), one, one.start_mark.line + 1) for at, one in enumerate(node.value)]
    for key, value, line in children:
        name = f"{path}.{key}" if path else key
        lines[name] = line
        # An alias may lead back to what it stands in.
        _walk(value, name, lines, within | {id(node)})
