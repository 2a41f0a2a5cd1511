"""From a caller's model and settings to a config that an engine can be made of."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.config.flags import flags_of
from headrace.config.load import expectation, nearest, typed
from headrace.config.server_settings import ServerConfig
from headrace.config.settings import EngineConfig
from headrace.errors import ConfigError
from headrace.weights.files.user_path import user_path
from headrace.weights.store.resolve import obtain_model

if TYPE_CHECKING:
    from headrace.weights.store.fetch import FetchProgress


def checked_config(
    caller: str, model: str | os.PathLike[str], settings: dict[str, Any]
) -> EngineConfig:
    """The config a caller requests. Raises ConfigError naming `caller`, setting and limit."""
    # Whoever gives a PathLike means a file: made absolute, it cannot be taken for a name.
    is_path = isinstance(model, os.PathLike)
    named = str(user_path(os.fspath(model)).absolute()) if is_path else model
    values = {"model": named, **_own_settings(caller, settings)}
    try:
        return msgspec.convert(typed(EngineConfig, values), EngineConfig, strict=False)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`").split("[")[0]
        shown = f"{name}={values[name]!r}" if name in values else "..."
        flag = next((flag for flag in flags_of(EngineConfig) if flag.name == name), None)
        if flag is not None:
            problem = f"expected {expectation(flag)}"
        raise ConfigError(f"{caller}({shown}): {problem}") from error


def _own_settings(caller: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that are headrace's; those of vLLM's that change nothing here are dropped.

    Raises ConfigError for every other name.
    """
    names = set(EngineConfig.__struct_fields__)
    if settings.keys() <= names:
        return settings
    # Read only here: a caller who writes the names there are does not wait for the table.
    from headrace.config.vllm.engine_args import ENGINE_ARGS
    from headrace.config.vllm.server_args import SERVER_ARGS

    of_server = set(ServerConfig.__struct_fields__)

    def shown(name: str) -> str:
        return name if name in names else f"--{name.replace('_', '-')} of `headrace serve`"

    for name, value in settings.items():
        if name in names:
            continue
        setting = ENGINE_ARGS.get(name) or SERVER_ARGS.get(name)
        if setting is None and name in of_server:
            raise ConfigError(
                f"{caller}({name}=...): a setting of the server alone: {shown(name)}; omit it"
            )
        if setting is None:
            raise ConfigError(f"{caller}({name}=...): unknown setting{nearest(name, names)}")
        if not setting.takes(value):
            raise ConfigError(setting.refusal(caller, value, shown))
    return {name: value for name, value in settings.items() if name in names}


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
