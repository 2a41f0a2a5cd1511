"""Where alerts are sent."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.gateway.settings.provider import SecretText


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook that is notified of budgets near their end, open breakers, refused keys and lost
    ledger lines."""

    url: Annotated[
        SecretText,
        Meta(description="URL that alerts are posted to: https://..., env:NAME or file:PATH."),
    ]
    secret: Annotated[
        SecretText | None,
        Meta(
            description="Secret for the signature in X-Headrace-Signature (HMAC-SHA256); without "
            "one "
            "nothing is signed."
        ),
    ] = None
    format: Annotated[
        Literal["json", "slack"],
        Meta(description="`json`: all fields; `slack`: a text, as Slack's webhooks expect."),
    ] = "json"

    def __repr__(self) -> str:
        return f"<settings of alerts in {self.format}>"
