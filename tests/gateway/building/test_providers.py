"""Providers of the file, made with what the catalog knows: each row, each way to be known."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import ssl
from pathlib import Path
from typing import Any

import pytest

from headrace.catalog import Catalog
from headrace.catalog.rows.provider import Provider as ProviderRow
from headrace.config.yaml_file import Document
from headrace.errors import ConfigError
from headrace.gateway.building.dialects import client_sides, provider_side
from headrace.gateway.building.passings import passings_of
from headrace.gateway.building.providers import plain_secrets, provider_of
from headrace.gateway.credentials.bearer import BearerToken
from headrace.gateway.settings.provider import GoogleSettings, ProviderSettings
from headrace.gateway.settings.read import parse_settings
from headrace.gateway.settings.reliability import TimeoutSettings
from headrace.gateway.settings.secret import Sources
from headrace.gateway.targets.auth import KeyHeader, NoAuth, Outgoing
from headrace.gateway.targets.provider import Provider
from headrace.gateway.upstream.origin import read_base_url

CATALOG = Catalog.load(())
KEY = "sk-secret-0123456789"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# No client speaks these.
TRANSLATED = ("gemini", "bedrock", "cohere", "mistral", "replicate")
TLS = ssl.create_default_context()


def made(name: str, given: Any = None, **environ: str) -> Provider:
    """As the gateway's file would have it."""
    document = Document({"providers": {name: {} if given is None else given}}, {})
    settings = parse_settings(document, "gateway.yaml").providers[name]
    return provider_of(name, settings, CATALOG, TimeoutSettings(), Sources(environ, Path()), TLS)


def refused(name: str, given: Any = None, **environ: str) -> str:
    """What it says; never the key."""
    with pytest.raises(ConfigError) as caught:
        made(name, given, **environ)
    text = str(caught.value)
    assert text.startswith((f"providers.{name}: ", "gateway.yaml: "))
    assert KEY not in text
    return text


def sent(provider: Provider) -> dict[str, str]:
    """Headers a request goes out with because of its key."""
    credential = provider.auth.pick(0.0)
    assert credential is not None
    outgoing = Outgoing("POST", provider.base.origin.host_header, "/v1/x", (), b"{}")
    return dict(asyncio.run(credential.headers(outgoing)))


def usable_rows() -> list[ProviderRow]:
    return [row for row in CATALOG.providers if row.dialect]


def test_every_row_says_where_and_how() -> None:
    rows = [row for row in CATALOG.providers if row.dialect]
    assert len(rows) > 110
    for row in rows:
        assert row.auth and row.base_url, row.id
        address = re.sub(r"\{[a-z_]+\}", "x", row.base_url)
        base = read_base_url(address)
        if row.self_hosted:
            assert base.origin.host in LOOPBACK, row.id
        else:
            assert base.origin.scheme == "https" and base.origin.host not in LOOPBACK, row.id
            assert not base.path.endswith("/"), row.id
        if row.variant is not None:
            assert row.dialect == "openai-chat", row.id
        if row.key_variable is not None:
            assert re.fullmatch(r"[A-Z0-9_]+", row.key_variable), row.id


@pytest.mark.long
def test_every_row_makes_a_provider() -> None:
    for row in usable_rows():
        side = provider_side(str(row.dialect), row.variant or "generic", ProviderSettings())
        assert row.dialect in (*passings_of(row.dialect, side, completions=True), *TRANSLATED)
        base_url = re.sub(r"\{[a-z_]+\}", "x", str(row.base_url))
        given: dict[str, Any] = {"kind": row.id, "api_key": KEY, "base_url": base_url}
        if row.auth == "google":
            given["google"] = {"project": "p"}
        provider = made("mine", given)
        assert provider.local == (row.self_hosted is True), row.id
        assert KEY in "".join(sent(provider).values()), row.id
        assert KEY not in repr(provider), row.id


# As people name them; what of theirs an address needs.
PEOPLES_NAMES: dict[str, dict[str, Any]] = {
    "OpenAI": {}, "Azure OpenAI": {"address": {"resource": "mine"}}, "Anthropic": {},
    "Gemini": {}, "Vertex": {"google": {"project": "p"}}, "vertex-anthropic":
    {"google": {"project": "p"}}, "Bedrock": {"region": "us-east-1"}, "Cohere": {}, "Mistral": {},
    "Groq": {}, "Together": {}, "Fireworks": {}, "DeepSeek": {}, "DeepInfra": {},
    "Anyscale": {"address": {"service": "mine"}}, "xAI": {}, "OpenRouter": {}, "AI/ML API": {},
    "SiliconFlow": {}, "Cerebras": {}, "SambaNova": {}, "Hugging Face router": {},
    "Hugging Face Inference Endpoints":
    {"address": {"endpoint": "e1", "cloud": "aws"}, "region": "us-east-1"},
    "Azure AI": {"address": {"resource": "mine"}}, "Cloudflare": {"address": {"account_id": "0a"}},
    "Modal": {"address": {"workspace": "w", "app": "a"}}, "Baseten": {}, "NVIDIA": {},
    "Replicate": {}, "Portkey": {}, "helicone-cloud": {}, "Perplexity": {}, "Moonshot": {},
    "Z.ai": {}, "MiniMax": {}, "Alibaba": {}, "Nebius": {}, "Novita": {}, "Hyperbolic": {},
    "github-models": {}, "vercel": {},
}  # fmt: skip
PEOPLES_SERVERS = (
    "headrace", "vLLM", "SGLang", "llama.cpp", "TGI", "TensorRT-LLM", "NIM", "LMDeploy",
    "Xinference", "MLX", "LM Studio", "LocalAI", "Ollama", "ollama-openai", "LiteLLM",
)  # fmt: skip


@pytest.mark.parametrize("name", PEOPLES_NAMES)
def test_every_provider_people_ask_for_is_there(name: str) -> None:
    provider = made("mine", {"kind": name, "api_key": KEY, **PEOPLES_NAMES[name]})
    assert provider.base.origin.scheme == "https" and "{" not in str(provider.base)
    assert KEY in "".join(sent(provider).values()) and not provider.local


@pytest.mark.parametrize("name", PEOPLES_SERVERS)
def test_every_server_people_run_is_there(name: str) -> None:
    assert made("mine", {"kind": name}).local


def test_names_of_an_address_are_checked() -> None:
    made_one = made("cloudflare", {"api_key": KEY, "address": {"account_id": "0a1b"}})
    assert made_one.base.path == "/client/v4/accounts/0a1b/ai/v1"
    text = refused("cloudflare", {"api_key": KEY, "address": {"acount_id": "0a1b"}})
    assert "address: acount_id is not a name in braces of https://api.cloudflare.com/" in text
    text = refused("cloudflare", {"api_key": KEY, "address": {"account_id": "../x"}})
    assert "account_id '../x' cannot be part of" in text


def test_servers_one_runs_are_found_by_their_runtime() -> None:
    for name in ("vllm", "sglang", "llama.cpp", "llama-cpp", "ollama", "lm-studio", "lmstudio",
                 "localai", "tgi", "lmdeploy", "xinference", "mlx", "nim", "headrace"):  # fmt: skip
        provider = made(name)
        assert provider.local and isinstance(provider.auth, NoAuth), name
    assert made("vllm").base.joined("/chat/completions") == "/v1/chat/completions"
    assert made("ollama").side.name == "ollama"
    assert made("gpu", {"kind": "vllm", "base_url": "http://10.0.0.5:9000/v1"}).side.name


def test_a_row_says_address_dialect_variant_and_key() -> None:
    provider = made("groq", GROQ_API_KEY=KEY)
    assert str(provider.base.origin) == "https://api.groq.com"
    assert provider.base.joined("/chat/completions") == "/openai/v1/chat/completions"
    assert set(provider.passes) == {"openai-chat"}
    assert sent(provider) == {"authorization": f"Bearer {KEY}"}


def test_what_is_given_wins_over_the_row() -> None:
    given = {"base_url": "http://127.0.0.1:9/v1", "api_key": "other-key"}
    provider = made("groq", given, GROQ_API_KEY=KEY)
    assert provider.base.origin.port == 9
    assert sent(provider) == {"authorization": "Bearer other-key"}


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("openai", {}, {"authorization": f"Bearer {KEY}"}),
        ("anthropic", {}, {"x-api-key": KEY}),
        ("google", {}, {"x-goog-api-key": KEY}),
        ("azure", {"base_url": "https://mine.openai.azure.com"}, {"api-key": KEY}),
        ("portkey", {}, {"x-portkey-api-key": KEY}),
        ("bedrock", {"region": "eu-west-1"}, {"authorization": f"Bearer {KEY}"}),
        ("vertex", {"google": {"project": "p"}}, {"authorization": f"Bearer {KEY}"}),
        ("ollama", {}, {"authorization": f"Bearer {KEY}"}),  # it asks for none, a proxy may
        ("own", {"base_url": "https://a.b/v1"}, {"authorization": f"Bearer {KEY}"}),
        ("own", {"base_url": "https://a.b", "dialect": "anthropic"}, {"x-api-key": KEY}),
        ("own", {"base_url": "https://a.b", "dialect": "gemini"}, {"x-goog-api-key": KEY}),
        (
            "deepseek",  # whose own row speaks OpenAI's
            {"base_url": "https://api.deepseek.com/anthropic", "dialect": "anthropic"},
            {"x-api-key": KEY},
        ),
    ],
)
def test_headers_of_each_way_to_send_a_key(
    name: str, given: dict[str, Any], expected: dict[str, str]
) -> None:
    assert sent(made(name, {**given, "api_key": KEY})) == expected


def test_token_of_a_row_people_add(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        '[[provider]]\nid = "own-api"\nname = "Own"\nsource = "general-knowledge"\n'
        'as_of = 2026-11-22\nconfidence = "low"\nbase_url = "https://own.example/v1"\n'
        'dialect = "openai-chat"\nauth = "token"\n'
    )
    settings = ProviderSettings(api_key=(KEY,))
    provider = provider_of(
        "own-api", settings, Catalog.load([tmp_path]), TimeoutSettings(), Sources({}, Path()), TLS
    )
    assert sent(provider) == {"authorization": f"Token {KEY}"}


def test_keys_come_from_the_environment_of_the_row_or_are_asked_for() -> None:
    assert sent(made("openai", None, OPENAI_API_KEY=KEY)) == {"authorization": f"Bearer {KEY}"}
    text = refused("openai")
    assert "api_key is missing" in text and "OPENAI_API_KEY" in text
    assert "GEMINI_API_KEY" in refused("gemini", None, GEMINI_API_KEY="  ")
    assert "NO_SUCH" in refused("openai", "env:NO_SUCH")
    # One that is on this machine may need none.
    assert isinstance(made("openai", "http://127.0.0.1:9/v1").auth, NoAuth)


def test_several_keys_go_in_turn() -> None:
    provider = made("openai", {"api_key": ["env:A", "env:B"]}, A="key-a", B="key-b")
    keys = [sent(provider)["authorization"] for _ in range(4)]
    assert keys == ["Bearer key-a", "Bearer key-b"] * 2


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("ftp://a.b/v1", "https://api.example.com/v1"),
        ("https://", "https://api.example.com/v1"),
        ("a.b/v1", "https://api.example.com/v1"),
        (f"https://user:{KEY}@a.b/v1", "use api_key"),
        ("https://a.b/v1?key=1", "query"),
        ("https://a.b/v1#x", "fragment"),
        ("https://a.b:99999/v1", "Port"),
        ("https://bücher.example/v1", "ASCII"),
        ("https://a.b/v1\r\nx: y", "ASCII"),
    ],
)
def test_bad_addresses(address: str, says: str) -> None:
    text = refused("own", {"base_url": address})
    assert "base_url" in text and says in text


def test_an_address_is_missing() -> None:
    assert "base_url is missing: write the URL at which its API begins" in refused(
        "own", {"api_key": KEY}
    )
    text = refused("huggingface", {"api_key": KEY})
    assert "huggingface-endpoints or huggingface-inference" in text or (
        "huggingface-inference or huggingface-endpoints" in text
    )
    assert "helicone-cloud" in refused("helicone", {"api_key": KEY})


def test_names_in_braces_are_peoples_own() -> None:
    text = refused("azure", {"api_key": KEY})
    assert "https://{resource}.openai.azure.com" in text and "in place of those in braces" in text
    assert "{account_id}" in refused("cloudflare", {"api_key": KEY})
    assert "give its region" in refused("bedrock", {"api_key": KEY})
    assert "{resource}" in refused("own", {"base_url": "https://{resource}.x/v1"})


def test_regions_and_locations_are_filled_in() -> None:
    bedrock = made("bedrock", {"region": "eu-west-1"}, AWS_BEARER_TOKEN_BEDROCK=KEY)
    assert bedrock.base.origin.host == "bedrock-runtime.eu-west-1.amazonaws.com"
    for region in ("evil.example/", "a b", "EU", "a@b", "-a", "a.b", ""):
        text = refused("bedrock", {"region": region, "api_key": KEY})
        assert "region" in text
    for location, host in (
        ("global", "aiplatform.googleapis.com"),
        ("europe-west4", "europe-west4-aiplatform.googleapis.com"),
    ):
        google = {"project": "p", "location": location}
        for name in ("google-vertex", "vertex", "google", "gemini", "own"):
            provider = made(name, {"google": google, "api_key": KEY})
            assert provider.base.origin.host == host
            assert sent(provider) == {"authorization": f"Bearer {KEY}"}
    text = refused("vertex", {"google": {"project": "p", "location": "x.y"}, "api_key": KEY})
    assert "location 'x.y'" in text


def test_vertex_needs_a_project_and_a_token() -> None:
    assert "google is missing" in refused("vertex", {"api_key": KEY})
    assert "gcloud auth print-access-token" in refused("vertex", {"google": {"project": "p"}})
    side = provider_side("gemini", "generic", ProviderSettings(google=GoogleSettings(project="p")))
    assert side.name == "gemini"


def test_bedrock_signs_with_what_the_file_or_the_environment_has() -> None:
    keys = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": KEY}
    given = {"region": "us-east-1"}
    for provider in (
        made("bedrock", given, **keys),
        made("bedrock", {**given, "aws": {"access_key_id": "env:AWS_ACCESS_KEY_ID",
             "secret_access_key": "env:AWS_SECRET_ACCESS_KEY"}}, **keys),
    ):  # fmt: skip
        headers = {name.lower(): value for name, value in sent(provider).items()}
        assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
        assert KEY not in repr(headers) and KEY not in repr(provider)
    headers = sent(made("bedrock", given, AWS_SESSION_TOKEN="a-session", **keys))
    assert "a-session" in headers.values()
    text = refused("bedrock", given, AWS_ACCESS_KEY_ID="AKIDEXAMPLE")
    assert "AWS_SECRET_ACCESS_KEY" in text and "AWS_BEARER_TOKEN_BEDROCK" in text
    # A bearer key is what somebody set for just this.
    both = made("bedrock", given, AWS_BEARER_TOKEN_BEDROCK="bearer-key", **keys)
    assert sent(both) == {"authorization": "Bearer bearer-key"}


def test_one_way_to_be_known() -> None:
    aws = {"access_key_id": "a", "secret_access_key": KEY}
    assert "api_key and aws" in refused("bedrock", {"region": "a", "aws": aws, "api_key": KEY})
    assert "bedrock" in refused("openai", {"region": "a", "aws": aws})
    assert "region" in refused("own", {"base_url": "https://a.b", "dialect": "bedrock", "aws": aws})
    entra = {"tenant_id": "t", "client_id": "c", "client_secret": KEY}
    given = {"base_url": "https://mine.openai.azure.com", "entra": entra}
    token = made("azure", given).auth.pick(0.0)
    assert isinstance(token, BearerToken) and KEY not in repr(token)
    assert "api_key and entra" in refused("azure", {**given, "api_key": KEY})
    assert "api_key is there" not in refused("azure", {**given, "aws": aws, "region": "a"})


def test_unknown_kinds_and_dialects_name_the_nearest() -> None:
    text = refused("own", {"kind": "antropic"})
    assert "kind 'antropic' is not in the catalog; did you mean 'anthropic'?" in text
    text = refused("own", {"base_url": "https://a.b", "dialect": "openai-chta"})
    assert "dialect 'openai-chta' is not known; did you mean 'openai-chat'?" in text
    assert "anthropic" in text and "ollama" in text
    with pytest.raises(ConfigError, match=r"variant 'vlm'.*did you mean 'vllm'"):
        provider_side("openai-chat", "vlm", ProviderSettings())


def test_an_address_alone_speaks_what_most_do() -> None:
    provider = made("local", "http://127.0.0.1:8000/v1")
    assert provider.side.name == "openai-chat" and isinstance(provider.auth, NoAuth)


def test_headers_of_the_file() -> None:
    provider = made("own", {"base_url": "https://a.b", "headers": {"X-Team": "blue"}})
    assert provider.headers == (("x-team", "blue"),)
    anthropic = made("anthropic", KEY)
    assert anthropic.headers == (("anthropic-version", "2023-06-01"),)
    other = {"api_key": KEY, "headers": {"Anthropic-Version": "2024-01-01"}}
    assert made("anthropic", other).headers == (("anthropic-version", "2024-01-01"),)
    for bad in ({"a b": "c"}, {"a": "c\r\nd: e"}, {"a": "日本"}, {"": "c"}):
        assert "headers: " in refused("own", {"base_url": "https://a.b", "headers": bad})
    for name in ("Host", "content-length", "Transfer-Encoding", "connection"):
        text = refused("own", {"base_url": "https://a.b", "headers": {name: KEY}})
        assert f"headers: {name.lower()} is written by the gateway itself" in text
    text = refused("openai", {"api_key": KEY, "headers": {"Authorization": f"Bearer {KEY}"}})
    assert "authorization and api_key are both given" in text


def test_keys_are_in_no_error_and_no_repr() -> None:
    provider = made("openai", {"api_key": KEY, "headers": {"x-extra": KEY}})
    credential = provider.auth.pick(0.0)
    assert isinstance(credential, KeyHeader)
    assert repr(credential) == "<authorization with <secret from the configuration>>"
    for value in (provider, credential, provider.auth, *map(repr, dataclasses.fields(provider))):
        assert KEY not in repr(value)
    settings = ProviderSettings(api_key=(KEY,), headers={"authorization": KEY})
    assert KEY not in repr(settings)
    for key in (f"{KEY} with blanks", f"{KEY}\n", f"{KEY}é"):
        assert "characters that a header cannot carry" in refused("openai", {"api_key": key})


def test_keys_in_the_file_are_warned_of() -> None:
    assert plain_secrets("a", ProviderSettings(api_key=("env:A", KEY))) == ("providers.a.api_key",)
    assert plain_secrets("a", ProviderSettings(api_key=("env:A", "file:b"))) == ()


def test_dialects_of_clients() -> None:
    sides = client_sides()
    assert set(sides) == {
        "openai-chat", "openai-completions", "openai-responses", "anthropic", "ollama",
        "ollama-generate",
    }  # fmt: skip
