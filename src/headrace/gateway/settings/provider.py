"""Where models are served."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.gateway.settings.reliability import TimeoutSettings

Text = Annotated[str, Meta(min_length=1)]
# Where a secret is, or the secret itself: in no error and no repr.
SecretText = Annotated[str, Meta(min_length=1, extra={"secret": True})]


class EntraSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A token of Microsoft Entra by client credentials, in place of a key."""

    tenant_id: Text
    client_id: Text
    client_secret: SecretText
    authority: Text = "https://login.microsoftonline.com"
    scope: Text = "https://cognitiveservices.azure.com/.default"

    def __repr__(self) -> str:
        return "<credentials of Microsoft Entra>"


class AwsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials that requests to AWS are signed with."""

    access_key_id: SecretText
    secret_access_key: SecretText
    session_token: SecretText | None = None

    def __repr__(self) -> str:
        return "<credentials of AWS>"


class GoogleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A project of Google Cloud, for Vertex AI; its `api_key` is an access token."""

    project: Text
    location: Text = "global"


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """kind: a row of the catalog that says address, dialect and peculiarities; by default the
    provider's own name. What is given here wins over the row."""

    kind: Annotated[Text | None, Meta(description="Row of the catalog; default: the name.")] = None
    base_url: Annotated[Text | None, Meta(description="Where its API begins.")] = None
    dialect: Annotated[Text | None, Meta(description="What it speaks, where no row says it.")] = (
        None
    )
    api_key: Annotated[
        tuple[SecretText, ...],
        Meta(description="Keys, used in turn: env:NAME, file:PATH, or a key itself."),
    ] = ()
    entra: Annotated[
        EntraSettings | None, Meta(description="A token in place of a key, for Azure.")
    ] = None
    aws: Annotated[AwsSettings | None, Meta(description="Signatures in place of a key.")] = None
    google: Annotated[
        GoogleSettings | None, Meta(description="Vertex AI in place of the Gemini API.")
    ] = None
    region: Annotated[
        Text | None, Meta(description="Where it runs, for rules on regions; AWS's region.")
    ] = None
    api_version: Annotated[
        Text | None,
        Meta(description="Azure's `api-version`, for deployments of the older kind."),
    ] = None
    headers: Annotated[
        dict[str, str],
        Meta(description="Headers of every request to it.", extra={"secret": True}),
    ] = msgspec.field(default_factory=dict)
    timeouts: Annotated[
        TimeoutSettings | None, Meta(description="In place of the common ones.")
    ] = None
    connections: Annotated[
        int, Meta(ge=1, le=65_535, description="Most connections to it from each process.")
    ] = 1024
    keeps_data: Annotated[
        bool | None,
        Meta(description="Whether it keeps or trains on what is sent; unknown if not given."),
    ] = None
    zero_retention: Annotated[
        bool | None, Meta(description="Whether it promises to keep nothing at all.")
    ] = None

    def __repr__(self) -> str:
        return f"<settings of a provider with {len(self.api_key)} keys>"


Quantization = Literal["int4", "int8", "fp4", "fp6", "fp8", "fp16", "bf16", "fp32", "unknown"]
