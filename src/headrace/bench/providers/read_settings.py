"""The YAML file of providers as typed settings; an error says the value's path and what is meant.

Names are checked before msgspec sees them, because an unknown one is mostly a known one mistyped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from headrace.bench.providers.settings import Price, Provider, ProvidersFile
from headrace.config.load import nearest
from headrace.config.plain_words import plain_words
from headrace.config.text_file import read_text_file
from headrace.config.yaml_problem import YAML_ERRORS, yaml_error
from headrace.errors import ConfigError, shown

# 200 providers with long notes have 100 kB.
MAX_FILE_BYTES = 2**20


def read_providers(path: Path) -> ProvidersFile:
    """Raises ConfigError, naming the file, for whatever is not as it must be."""
    text = read_text_file(path, "FILE", MAX_FILE_BYTES)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        loaded = yaml.safe_load(text)
    except YAML_ERRORS as error:
        raise yaml_error(error, text, str(path)) from error
    try:
        _check_once(node)
        return parse_providers(loaded)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse_providers(loaded: Any) -> ProvidersFile:
    """The settings of what a YAML file holds. Raises ConfigError with the path of the value."""
    fields = _mapping(loaded, "the file")
    _check_names(fields, ProvidersFile, "")
    listed = fields.get("providers")
    if not isinstance(listed, list):
        raise ConfigError("providers: must be a list, each with a name, a base_url and a model")
    providers = tuple(_provider(one, number) for number, one in enumerate(listed))
    others = {name: value for name, value in fields.items() if name != "providers"}
    return ProvidersFile(providers=providers, **_typed(others, ProvidersFile, ""))


def _provider(value: Any, number: int) -> Provider:
    where = f"providers[{number}]"
    fields = _mapping(value, where)
    if isinstance(fields.get("name"), str):
        where += f" ({fields['name'][:40]})"
    _check_names(fields, Provider, f"{where}: ")
    wanted = [field.name for field in msgspec.structs.fields(Provider) if field.required]
    missing = [name for name in wanted if fields.get(name) is None]
    if missing:
        raise ConfigError(f"{where}: {' and '.join(missing)} must be given")
    if isinstance(fields.get("price"), dict):
        _check_names(fields["price"], Price, f"{where}: price: ")
    try:
        return Provider(**_typed(fields, Provider, f"{where}: "))
    except ConfigError as error:
        said = str(error)
        raise ConfigError(said if said.startswith(where) else f"{where}: {said}") from error


def _typed(values: dict[str, Any], of: type[msgspec.Struct], where: str) -> dict[str, Any]:
    """The values as the struct's fields have them, one by one, so that errors name the field."""
    types = msgspec.structs.fields(of)
    wanted = {field.name: field.type for field in types}
    found = {}
    for name, value in values.items():
        try:
            found[name] = msgspec.convert(value, wanted[name])
        except msgspec.ValidationError as error:
            said, _, at = str(error).partition(" - at `$")
            is_inside = isinstance(value, (dict, list))
            given = "" if is_inside else f"{shown(value)}: "
            words = plain_words(said, None if is_inside else value, name)
            raise ConfigError(f"{where}{name}{at.rstrip('`')}: {given}{words}") from error
        except ConfigError as error:
            raise ConfigError(f"{where}{name}: {error}") from error
    return found


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"{where}: must be `name: value` lines")
    return value


def _check_names(values: dict[str, Any], of: type[msgspec.Struct], where: str) -> None:
    known = [field.name for field in msgspec.structs.fields(of)]
    for name in values:
        if name not in known:
            meant = nearest(str(name), known) or f"; the names are {', '.join(known)}"
            raise ConfigError(f"{where}unknown name {shown(name)}{meant}")


def _check_once(node: yaml.Node | None) -> None:
    """Raise ConfigError for a name that a mapping has twice; loading would keep the last."""
    if isinstance(node, yaml.SequenceNode):
        for one in node.value:
            _check_once(one)
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if isinstance(key, yaml.ScalarNode):
            if key.value in lines:
                first = lines[key.value]
                raise ConfigError(f"{key.value!r} is given twice, in lines {first} and {line}")
            lines[key.value] = line
        _check_once(value)
