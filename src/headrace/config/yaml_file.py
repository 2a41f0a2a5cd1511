"""YAML and JSON with the line of each value, so that an error or a finding can name it."""

from __future__ import annotations

from typing import Any, NamedTuple

import yaml

from headrace.config.yaml_problem import YAML_ERRORS, yaml_error
from headrace.errors import ConfigError

# Of one file, each alias counted as what it stands for: nine lines of nine aliases are billions.
MAX_VALUES = 200_000


class Document(NamedTuple):
    """A YAML file with the lines of its values."""

    loaded: Any
    """Plain values."""
    lines: dict[str, int]
    """Line numbers, from 1, by path: "model_list.0.litellm_params.timeout"."""


def read_yaml(text: str, name: str, *, once: bool = False) -> tuple[Document, ...]:
    """Every document of a file.

    once: a name that a mapping has twice is an error too; YAML's readers keep the last. Raises
    ConfigError with line and column.
    """
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        for node in nodes:
            _check_size(node, name)
            if once:
                _check_once(node, name)
        loaded = list(yaml.safe_load_all(text))
    except YAML_ERRORS as error:
        raise yaml_error(error, text, name) from error
    found = []
    for node, value in zip(nodes, loaded, strict=True):
        lines: dict[str, int] = {}
        _walk(node, "", lines)
        found.append(Document(value, lines))
    return tuple(found)


def _check_size(node: yaml.Node | None, name: str) -> None:
    """Raise ConfigError for a document that its aliases make too large, or endless."""
    if node is not None and (values := _values(node, {}, set(), name)) > MAX_VALUES:
        raise ConfigError(
            f"{name}: has {values:,} values with its aliases expanded, and at most "
            f"{MAX_VALUES:,} are read: write out only what is needed"
        )


def _check_once(node: yaml.Node | None, name: str) -> None:
    """Raise ConfigError for a name that a mapping has twice. The size is known to be bounded."""
    if isinstance(node, yaml.SequenceNode):
        for one in node.value:
            _check_once(one, name)
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if isinstance(key, yaml.ScalarNode) and key.value != "<<":
            if key.value in lines:
                raise ConfigError(
                    f"{name}:{line}: {key.value!r} is given twice, in lines {lines[key.value]} "
                    f"and {line}: keep one"
                )
            lines[key.value] = line
        _check_once(value, name)


def _values(node: yaml.Node, known: dict[int, int], within: set[int], name: str) -> int:
    """How many values `node` holds; known: of nodes that were counted, by id."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) in within:
        at = f"{name}:{node.start_mark.line + 1}"
        raise ConfigError(f"{at}: an alias in it refers back to it: write the value out")
    if id(node) not in known:
        inner = [part for one in node.value for part in (one if isinstance(one, tuple) else (one,))]
        within.add(id(node))
        known[id(node)] = 1 + sum(_values(one, known, within, name) for one in inner)
        within.discard(id(node))
    return known[id(node)]


def _walk(node: yaml.Node | None, path: str, lines: dict[str, int]) -> None:
    children: list[tuple[str, yaml.Node, int]] = []
    if isinstance(node, yaml.MappingNode):
        children = [(str(key.value), value, key.start_mark.line + 1) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        children = [(str(at), one, one.start_mark.line + 1) for at, one in enumerate(node.value)]
    for key, value, line in children:
        name = f"{path}.{key}" if path else key
        lines[name] = line
        _walk(value, name, lines)
