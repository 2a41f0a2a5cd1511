"""The MODEL of a command, on this disk: a hub id that is not is fetched, with a progress bar."""

from __future__ import annotations

import os
from typing import NamedTuple

import click
import msgspec

from headrace.cli.fetch_bar import fetch_bar
from headrace.config import EngineConfig
from headrace.weights.store.resolve import obtain_model


class Obtained(NamedTuple):
    """A checkpoint that was found or fetched."""

    config: EngineConfig
    """With a path for its model."""
    name: str | None
    """The model's own, where its path does not say it."""


def obtain(config: EngineConfig) -> Obtained:
    """Fetch the model of `config` where that is needed; notes and progress go to stderr.

    Raises HeadraceError (FetchError, CheckpointError, ConfigError) where it cannot be had.
    """
    if not config.model:
        return Obtained(config, None)
    with fetch_bar() as show:
        located = obtain_model(config.model, os.environ, show, offline=config.offline)
    if located.note is not None:
        click.secho(located.note, fg="bright_black", err=True)
    # The embedded model goes without a path: its names depend on nobody having given one.
    model = "" if located.source == "embedded" else str(located.path)
    return Obtained(msgspec.structs.replace(config, model=model), located.name)
