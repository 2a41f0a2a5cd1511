"""GET /api/config and POST /api/reload: the settings in force, and reloading the file."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from headrace import __version__
from headrace.gateway.admin.call import Call
from headrace.gateway.admin.errors import AdminError
from headrace.gateway.admin.reply import json_reply
from headrace.gateway.admin.shown_settings import shown_settings


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's version and the data that can be viewed."""

    version: str
    config_path: str
    ledger: bool
    store: Annotated[bool, Meta(description="Whether keys can be made here.")]
    request_log: bool
    requires_client_keys: bool
    workers: int


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in force."""

    config_path: str
    settings: Annotated[
        dict[str, Any],
        Meta(description="With defaults, and without secrets that are written into the file."),
    ]


async def about(call: Call) -> Response:
    """GET /api/about: for the page, which sends it with the key that was entered."""
    house = call.house
    return json_reply(
        About(
            version=__version__,
            config_path=str(house.config_path),
            ledger=house.ledger_path is not None,
            store=house.store is not None,
            request_log=house.request_log is not None,
            requires_client_keys=house.settings.access.require_key,
            workers=len(await house.standings()),
        )
    )


async def config(call: Call) -> Response:
    """The settings in force."""
    house = call.house
    return json_reply(
        Config(config_path=str(house.config_path), settings=shown_settings(house.settings))
    )


async def reload(call: Call) -> Response:
    """Reload the file; an invalid one changes nothing and is a 409 with its problems."""
    told = await call.house.reload()
    if told.error is not None:
        raise AdminError(409, told.error, "not_taken")
    return json_reply(told)
