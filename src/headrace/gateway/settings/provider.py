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
    """What requests to AWS are signed with: keys, a profile, or a role by web identity.

    Nothing at all (`aws: {}`) takes what AWS's own tools would: variables of the environment, the
    shared file, the container's or the machine's role.
    """

    access_key_id: SecretText | None = None
    secret_access_key: SecretText | None = None
    session_token: SecretText | None = None
    profile: Annotated[
        Text | None, Meta(description="Of the shared file ~/.aws/credentials or ~/.aws/config.")
    ] = None
    role_arn: Annotated[
        Text | None, Meta(description="Role to take on by `web_identity_token_file`.")
    ] = None
    web_identity_token_file: Annotated[
        Text | None, Meta(description="File with a token, which its platform renews.")
    ] = None

    def __repr__(self) -> str:
        return "<credentials of AWS>"


class GoogleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A project of Google Cloud, for Vertex AI. Known by `credentials`, or by an access token as
    the provider's `api_key`; by default by what GOOGLE_APPLICATION_CREDENTIALS names."""

    project: Annotated[
        Text | None, Meta(description="Id of the project; default: what the credentials name.")
    ] = None
    location: Annotated[Text, Meta(description="Region, or `global`.")] = "global"
    credentials: Annotated[
        SecretText | None,
        Meta(
            description="Of a service account: file:PATH or env:NAME with its JSON; `metadata`: "
            "of the machine it runs on."
        ),
    ] = None

    def __repr__(self) -> str:
        return f"<project of Google, {self.location}>"


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """kind: a row of the catalog that says address, dialect and peculiarities; by default the
    provider's own name. What is given here wins over the row."""

    kind: Annotated[Text | None, Meta(description="Row of the catalog; default: the name.")] = None
    base_url: Annotated[
        Text | None,
        Meta(
            description="Where its API begins. It, region, api_version, names in `address`, "
            "`headers` and of `google` and `entra` may be env:NAME."
        ),
    ] = None
    address: Annotated[
        dict[str, str],
        Meta(description="Your names for those in braces of the catalog's address: account_id."),
    ] = msgspec.field(default_factory=dict)
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
    completions: Annotated[
        bool | None,
        Meta(
            description="Whether it has OpenAI's older `/completions`; default: what the catalog "
            "knows. Without it one text is asked as a chat."
        ),
    ] = None
    responses: Annotated[
        bool | None,
        Meta(
            description="Whether it has OpenAI's `/responses` beside chat; default: what the "
            "catalog knows, at its own address. Without it such requests are asked as chats."
        ),
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
