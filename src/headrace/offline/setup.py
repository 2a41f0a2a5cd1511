"""From a caller's model and settings to a config that an engine can be made of."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.config.load import nearest
from headrace.config.settings import EngineConfig
from headrace.errors import ConfigError
from headrace.weights.store.resolve import obtain_model
from headrace.weights.user_path import user_path

if TYPE_CHECKING:
    from headrace.weights.store.fetch import FetchProgress


def checked_config(
    caller: str, model: str | os.PathLike[str], settings: dict[str, Any]
) -> EngineConfig:
    """The config a caller asks for. Raises ConfigError naming `caller`, setting and limit."""
    # Whoever gives a PathLike means a file: made absolute, it cannot be taken for a name.
    is_path = isinstance(model, os.PathLike)
    named = str(user_path(os.fspath(model)).absolute()) if is_path else model
    names = {field.name for field in msgspec.structs.fields(EngineConfig)}
    for name in settings:
        if name not in names:
            raise ConfigError(f"{caller}({name}=...): unknown setting{nearest(name, names)}")
    values = {"model": named, **settings}
    try:
        return msgspec.convert(values, EngineConfig, strict=False)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`").split("[")[0]
        shown = f"{name}={values[name]!r}" if name in values else "..."
        raise ConfigError(f"{caller}({shown}): {problem}") from error


def located(config: EngineConfig, logger: logging.Logger) -> EngineConfig:
    """The config with a path for its model, which is fetched where it is not on this disk.

    logger: is told of every file at level INFO. Raises HeadraceError where it cannot be had.
    """

    def note(at: FetchProgress) -> None:
        if at.state == "begun":
            place = f"{at.number} of {at.num_files}"
            logger.info("fetching %s (%s, %d bytes)", at.file, place, at.size_bytes)

    found = obtain_model(config.model, os.environ, note, offline=config.offline)
    return msgspec.structs.replace(config, model=str(found.path))
