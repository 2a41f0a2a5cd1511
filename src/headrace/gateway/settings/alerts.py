"""Whom the gateway tells of what people should know at once."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.gateway.settings.provider import SecretText


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook that hears of budgets near their end, breakers, refused keys and lost lines."""

    url: Annotated[
        SecretText,
        Meta(description="Where it is posted to: https://..., env:NAME or file:PATH."),
    ]
    secret: Annotated[
        SecretText | None,
        Meta(
            description="What X-Headrace-Signature is made with (HMAC-SHA256); without one nothing "
            "is signed."
        ),
    ] = None
    format: Annotated[
        Literal["json", "slack"],
        Meta(description="`json`: all there is; `slack`: a text, as Slack's webhooks take it."),
    ] = "json"

    def __repr__(self) -> str:
        return f"<settings of alerts in {self.format}>"
