"""Providers, their addresses and credentials."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.gateway.settings.reliability import TimeoutSettings

Text = Annotated[str, Meta(min_length=1)]
# Where a secret is, or the secret itself: in no error and no repr.
SecretText = Annotated[str, Meta(min_length=1, extra={"secret": True})]
PromptCacheField = Literal["cache_salt", "prompt_cache_key", "prompt_cache_isolation_key", "none"]


class EntraSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Client credentials for a Microsoft Entra token, instead of a key."""

    tenant_id: Text
    client_id: Text
    client_secret: SecretText
    authority: Text = "https://login.microsoftonline.com"
    scope: Text = "https://cognitiveservices.azure.com/.default"

    def __repr__(self) -> str:
        return "<credentials of Microsoft Entra>"


class AwsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials for signing requests to AWS: keys, a profile, or a role by web identity.

    Without any of them (`aws: {}`) the default credentials of AWS's own tools are used: environment
    variables, the shared file, the role of the container or the machine.
    """

    access_key_id: SecretText | None = None
    secret_access_key: SecretText | None = None
    session_token: SecretText | None = None
    profile: Annotated[
        Text | None, Meta(description="A profile of ~/.aws/credentials or ~/.aws/config.")
    ] = None
    role_arn: Annotated[
        Text | None, Meta(description="Role to assume by `web_identity_token_file`.")
    ] = None
    web_identity_token_file: Annotated[
        Text | None, Meta(description="File with a token, which its platform renews.")
    ] = None

    def __repr__(self) -> str:
        return "<credentials of AWS>"


class GoogleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A Google Cloud project, for Vertex AI. Requests are authenticated by `credentials` or by an
    access token as the provider's `api_key`; by default by the credentials that
    GOOGLE_APPLICATION_CREDENTIALS names."""

    project: Annotated[
        Text | None,
        Meta(description="Id of the project; default: the one that the credentials name."),
    ] = None
    location: Annotated[Text, Meta(description="Region, or `global`.")] = "global"
    credentials: Annotated[
        SecretText | None,
        Meta(
            description="Service account: file:PATH or env:NAME with its JSON; `metadata`: that "
            "of the "
            "machine the gateway runs on."
        ),
    ] = None

    def __repr__(self) -> str:
        return f"<project of Google, {self.location}>"


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A provider: where it is, what it speaks and how requests to it are authenticated. A row of
    the catalog gives defaults for its address, dialect and peculiarities; settings given here win
    over it."""

    kind: Annotated[Text | None, Meta(description="Row of the catalog; default: the name.")] = None
    base_url: Annotated[
        Text | None,
        Meta(
            description="Base URL of its API. This, region, api_version, the values of `address` "
            "and "
            "`headers`, and those of `google` and `entra` may be env:NAME."
        ),
    ] = None
    address: Annotated[
        dict[str, str],
        Meta(description="Values for the names in braces of the catalog's address: account_id."),
    ] = msgspec.field(default_factory=dict)
    dialect: Annotated[
        Text | None, Meta(description="The API it speaks, if no row of the catalog has it.")
    ] = None
    api_key: Annotated[
        tuple[SecretText, ...],
        Meta(description="Keys, used in turn: env:NAME, file:PATH, or the key itself."),
    ] = ()
    entra: Annotated[
        EntraSettings | None, Meta(description="Entra ID tokens instead of a key, for Azure.")
    ] = None
    aws: Annotated[AwsSettings | None, Meta(description="AWS signatures instead of a key.")] = None
    google: Annotated[
        GoogleSettings | None, Meta(description="Vertex AI instead of the Gemini API.")
    ] = None
    completions: Annotated[
        bool | None,
        Meta(
            description="Whether it has OpenAI's older `/completions`; default: what the catalog "
            "says. "
            "Without it a completion of a single text is sent as a chat."
        ),
    ] = None
    responses: Annotated[
        bool | None,
        Meta(
            description="Whether it has OpenAI's `/responses` beside chat; default: what the "
            "catalog "
            "says, for its own address. Without it such requests are sent as chats."
        ),
    ] = None
    region: Annotated[
        Text | None, Meta(description="Region it runs in, for rules on regions; AWS's region.")
    ] = None
    api_version: Annotated[
        Text | None,
        Meta(description="Azure's `api-version`, for older deployments."),
    ] = None
    headers: Annotated[
        dict[str, str],
        Meta(description="Headers of every request to it.", extra={"secret": True}),
    ] = msgspec.field(default_factory=dict)
    timeouts: Annotated[
        TimeoutSettings | None, Meta(description="Timeouts, instead of the common ones.")
    ] = None
    connections: Annotated[
        int, Meta(ge=1, le=65_535, description="Most connections to it from each process.")
    ] = 1024
    prompt_cache_field: Annotated[
        PromptCacheField | None,
        Meta(
            description="The field of a request that keeps tenants apart in its prompt cache "
            "(`prompt_cache.scope`); `none` sends none. Default: what its kind has."
        ),
    ] = None
    keeps_data: Annotated[
        bool | None,
        Meta(description="Whether it keeps or trains on what is sent; unknown if omitted."),
    ] = None
    zero_retention: Annotated[
        bool | None, Meta(description="Whether it promises to retain nothing at all.")
    ] = None

    def __repr__(self) -> str:
        return f"<settings of a provider with {len(self.api_key)} keys>"


Quantization = Literal["int4", "int8", "fp4", "fp6", "fp8", "fp16", "bf16", "fp32", "unknown"]
