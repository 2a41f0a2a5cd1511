"""The gateway's file: short forms, what is not as it must be, and secrets that stay secret."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headrace.config.yaml_file import MAX_VALUES, read_yaml
from headrace.errors import ConfigError
from headrace.gateway.settings.access import AccessSettings, KeySettings
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.provider import AwsSettings, EntraSettings, ProviderSettings
from headrace.gateway.settings.read import MAX_FILE_BYTES, read_settings
from headrace.gateway.settings.secret import Sources, is_plain, read_secret
from headrace.gateway.upstream.origin import read_base_url

KEY = "sk-secret-0123456789"


def read(folder: Path, text: str) -> GatewaySettings:
    path = folder / "gateway.yaml"
    path.write_text(text, encoding="utf-8")
    return read_settings(path)


def refused(folder: Path, text: str) -> str:
    """What it says, from the line on: "3: models.chat: ..."."""
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    said = str(caught.value)
    assert said.startswith(f"{folder / 'gateway.yaml'}:")
    assert KEY not in said
    return said.removeprefix(f"{folder / 'gateway.yaml'}:").strip()


def test_an_empty_file_has_the_defaults(tmp_path: Path) -> None:
    for text in ("", "# nothing\n", "---\n", "{}\n", "null\n"):
        assert read(tmp_path, text) == GatewaySettings()


def test_short_forms(tmp_path: Path) -> None:
    short = """
providers:
  openai: env:OPENAI_API_KEY
  local: http://127.0.0.1:8000/v1
  vllm:
  groq: {api_key: env:GROQ_API_KEY}
models:
  one: openai/gpt-5
  two: [openai/gpt-5, {model: groq/llama, weight: 2}]
  three: {targets: local/m, strategy: price}
aliases: {first: one}
"""
    long = """
providers:
  openai: {api_key: ["env:OPENAI_API_KEY"]}
  local: {base_url: "http://127.0.0.1:8000/v1"}
  vllm: {}
  groq: {api_key: ["env:GROQ_API_KEY"]}
models:
  one: {targets: [{model: openai/gpt-5}]}
  two: {targets: [{model: openai/gpt-5}, {model: groq/llama, weight: 2.0}]}
  three: {targets: [{model: local/m}], strategy: price}
aliases: {first: one}
"""
    settings = read(tmp_path, short)
    assert settings == read(tmp_path, long)
    assert settings.providers["openai"].api_key == ("env:OPENAI_API_KEY",)
    assert [one.weight for one in settings.models["two"].targets] == [1.0, 2.0]
    assert settings.models["three"].strategy == "price"


def test_a_bare_list_of_targets_is_tried_in_its_order(tmp_path: Path) -> None:
    text = """
    providers: {a: env:A, b: env:B}
    models:
      bare: [a/m, b/m]
      settings: [{model: a/m, order: 1}, b/m]
      weights: [{model: a/m, weight: 2}, b/m]
      whole: {targets: [a/m, b/m]}
    """
    models = read(tmp_path, text).models
    assert {name: model.strategy for name, model in models.items()} == {
        "bare": "ordered", "settings": "ordered", "weights": "weighted", "whole": "weighted",
    }  # fmt: skip


def test_json_is_yaml(tmp_path: Path) -> None:
    assert read(tmp_path, '{"listen": {"port": 0}}').listen.port == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lisen: {}\n", "1: lisen: unknown name; did you mean 'listen'?"),
        ("listen:\n  prot: 1\n", "2: listen.prot: unknown name; did you mean 'port'?"),
        ("zzz: 1\n", "1: zzz: unknown name; there are listen, access, providers"),
        (
            "providers: {a: {}}\nmodels:\n  m:\n  - a/x\n  - {model: a/y,\n     wieght: 2}\n",
            "6: models.m.targets.1.wieght: unknown name; did you mean 'weight'?",
        ),
        (
            "providers: {a: {}}\nmodels:\n  gpt-4.1:\n    targets:\n    - model: a/x\n"
            "      price: {input: 1,\n        ouput: 2}\n",
            "7: models.gpt-4.1.targets.0.price.ouput: unknown name; did you mean 'output'?",
        ),
        ("providers:\n  a:\n    kynd: b\n", "3: providers.a.kynd: unknown name"),
    ],
)
def test_unknown_names(tmp_path: Path, text: str, says: str) -> None:
    assert says in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("listen:\n  port: eighty\n", "2: listen.port: 'eighty': a whole number is expected"),
        ("listen:\n  port: 70000\n", "2: listen.port: 70000: a whole number <= 65535 is expected"),
        ("listen:\n\n  port:\n", "3: listen.port: nothing: a whole number is expected"),
        ("listen: 80\n", "1: listen: 80: it must be `name: value` lines"),
        ("- a\n- b\n", "a list: it must be `name: value` lines"),
        ("models:\n  m:\n", "2: models.m: nothing: it must be `name: value` lines"),
        ("models:\n  m: {targets: []}\n", "2: models.m.targets: at least 1 must be given"),
        ("models:\n  m: {}\n", "2: models.m: has no targets"),
        ("models: [a]\n", "1: models: a list: it must be `name: value` lines"),
        ("models:\n  m: {targets: 5}\n", "2: models.m.targets: 5: it must be a list"),
        ("retries: {attempts: 0}\n", "1: retries.attempts: 0: a whole number >= 1 is expected"),
        ("retries:\n  backoff_s: .inf\n", "2: retries.backoff_s: inf: it must be a finite number"),
        ("breaker:\n  share: .nan\n", "2: breaker.share: nan: it must be a finite number"),
        ("timeouts: {connect_s: -1}\n", "1: timeouts.connect_s: -1: a number > 0 is expected"),
        ("catalog: [1]\n", "1: catalog[0]: text is expected"),
        (
            "providers: {a: {}}\nmodels:\n  m:\n  - {model: a/x,\n    quantization: q4}\n",
            "5: models.m.targets.0.quantization: 'q4' is not one of int4, int8,",
        ),
        ("providers:\n  1: {}\n", "2: providers.1: 1: text is expected; quote it: '1'"),
        ("listen:\n  host: 80\n", "2: listen.host: 80: text is expected; quote it: '80'"),
        ("pass_unknown_models: 1\n", "pass_unknown_models: 1: true or false is expected"),
    ],
)
def test_wrong_values(tmp_path: Path, text: str, says: str) -> None:
    assert says in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("listen: {}\nlisten: {}\n", "2: 'listen' is given twice, in lines 1 and 2"),
        (
            "models:\n  m: {targets: a}\n  n: {targets: a}\n  m: {targets: b}\n",
            "4: 'm' is given twice, in lines 2 and 4",
        ),
        (
            "models:\n  m:\n  - model: a/b\n    weight: 1\n    weight: 2\n",
            "5: 'weight' is given twice",
        ),
        (
            "providers: {a: {}}\nmodels:\n  m: [a/x, a/y, a/x]\n",
            "3: models.m.targets.2: 'a/x' is listed twice; give it a higher weight",
        ),
    ],
)
def test_what_is_there_twice(tmp_path: Path, text: str, says: str) -> None:
    assert says in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("aliases:\n  a: m\n", "2: aliases.a: 'm' is not a model of this file"),
        (
            "providers: {p: {}}\nmodels: {gpt-5: p/x}\naliases:\n  a: gtp-5\n",
            "4: aliases.a: 'gtp-5' is not a model of this file; did you mean 'gpt-5'?",
        ),
        (
            "providers: {p: {}}\nmodels: {m: p/x}\naliases: {m: m}\n",
            "3: aliases.m: a model has that name",
        ),
        (
            "providers: {openai: {}}\nmodels:\n  m:\n  - opnai/x\n",
            "4: models.m.targets.0: 'opnai' is not a provider of this file; did you mean 'openai'?",
        ),
        ("models:\n  m: gpt\n", "2: models.m.targets.0: 'gpt' is not `provider/model`"),
        (
            "providers: {p: {}}\nmodels:\n  m: p/\n",
            "3: models.m.targets.0: 'p/' is not `provider/model`",
        ),
        (
            "providers: {p: {}}\nmodels:\n  m:\n    targets: p/x\n    fallbacks: [m]\n",
            "5: models.m.fallbacks: a model cannot be its own fallback",
        ),
        (
            "providers: {p: {}}\nmodels:\n  main: p/x\n  m: {targets: p/x,\n"
            "    context_fallbacks: [mian]}\n",
            "5: models.m.context_fallbacks: 'mian' is not a model of this file; "
            "did you mean 'main'?",
        ),
    ],
)
def test_names_that_lead_nowhere(tmp_path: Path, text: str, says: str) -> None:
    assert says in refused(tmp_path, text)


def test_fallbacks_may_name_models_aliases_and_targets(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        "providers: {p: {}}\naliases: {b: n}\nmodels:\n  n: p/n\n"
        "  m: {targets: p/m, fallbacks: [n, b, p/other], policy_fallbacks: [n]}\n",
    )
    assert settings.models["m"].fallbacks == ("n", "b", "p/other")


def test_aliases_of_yaml(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        "providers: {p: {}}\n"
        "models:\n  a: &a {targets: [p/x], strategy: price}\n  b: *a\n"
        "  c: {<<: *a, strategy: ordered}\n",
    )
    models = settings.models
    assert models["a"] == models["b"] and models["b"].targets == models["c"].targets
    assert models["c"].strategy == "ordered"


def test_circles_and_bombs_of_aliases(tmp_path: Path) -> None:
    circle = refused(tmp_path, "models: &m\n  a: [*m]\n")
    assert "an alias in it refers back to it" in circle and circle.startswith("1:")
    assert "refers back" in refused(tmp_path, "a: &a [*a]\n")
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
    )
    assert f"at most {MAX_VALUES:,} are read" in refused(tmp_path, bomb)
    merged = "a0: &a0 {k: v}\n" + "".join(
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 10)
    )
    assert f"at most {MAX_VALUES:,} are read" in refused(tmp_path, merged)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [\n", "not valid YAML"),
        ("a: b: c\n", "1: not valid YAML, in column 5: a second `name: value`"),
        ("\tlisten: {}\n", "not valid YAML"),
        ("a: *nobody\n", "`*nobody` refers to an anchor that the file does not have"),
        ("a: !!python/object:os.system x\n", "not valid YAML"),
        ("? [a, b]\n: c\n", "not valid YAML"),
        ("a: 2026-02-31\n", "not usable YAML"),
        ("a: !!timestamp foo\n", "not usable YAML"),
        pytest.param("[" * 5000, "YAML", marks=pytest.mark.long),
        ("{}\n---\n{}\n", "has 2 documents; keep one"),
        ("a: \x07\n", "not valid YAML"),
    ],
)
def test_what_is_no_file_of_settings(tmp_path: Path, text: str, says: str) -> None:
    assert says in refused(tmp_path, text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--config .*nothing\.yaml"):
        read_settings(tmp_path / "nothing.yaml")
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match="--config"):
        read_settings(path)
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ConfigError, match="--config"):
        read_settings(path)


def test_lines_of_every_document() -> None:
    one, two = read_yaml("a: 1\n---\nb:\n- c: 2\n", "x.yaml")
    assert one.lines == {"a": 1} and two.lines == {"b": 3, "b.0": 4, "b.0.c": 4}
    assert read_yaml("a: 1\na: 2\n", "x.yaml")[0].loaded == {"a": 2}
    assert read_yaml("", "x.yaml") == ()


@pytest.mark.parametrize(
    "text",
    [
        f"providers: {KEY}\n",
        f"providers: [{KEY}]\n",
        f"providers:\n- openai: {KEY}\n",
        f"providers:\n  openai: [{KEY}]\n",
        f"providers:\n  openai: {{api_key: [[{KEY}]]}}\n",
        f"providers:\n  openai: {{api_key: {{a: {KEY}}}}}\n",
        f"providers:\n  openai: {{aws: {KEY}}}\n",
        f"providers:\n  openai: {{entra: {KEY}}}\n",
        f"providers:\n  openai: {{entra: {{client_secret: {KEY}}}}}\n",
        f"providers:\n  openai: {{headers: {KEY}}}\n",
        f"providers:\n  openai: {{headers: {{a: [{KEY}]}}}}\n",
        f"access: {KEY}\n",
        f"access:\n  master_key: [{KEY}]\n",
        f"models: &m\n- {KEY}\n- *m\n",
        f"- {KEY}\n",
        f"listen: {{a: {KEY}, a: {KEY}}}\n",
    ],
)
def test_secrets_in_the_wrong_place_are_not_shown(tmp_path: Path, text: str) -> None:
    refused(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "providers:\n  a: 8675309\n",
        "providers:\n  a: {api_key: 8675309}\n",
        "providers:\n  a: {api_key: [8675309]}\n",
        "providers:\n  a: {aws: {access_key_id: 8675309}}\n",
        "access:\n  master_key: 8675309\n",
        "access:\n  keys: {a: {key: 8675309}}\n",
    ],
)
def test_secrets_that_are_numbers_are_not_shown(tmp_path: Path, text: str) -> None:
    said = refused(tmp_path, text)
    assert "8675309" not in said and (" expected" in said or "a number: it must be" in said)
    assert said.startswith("2:")


def test_settings_do_not_show_their_secrets() -> None:
    aws = AwsSettings(access_key_id=KEY, secret_access_key=KEY, session_token=KEY)
    entra = EntraSettings(tenant_id="t", client_id="c", client_secret=KEY)
    settings = GatewaySettings(
        access=AccessSettings(master_key=KEY, keys={"k": KeySettings(key=KEY)}),
        providers={"a": ProviderSettings(api_key=(KEY,), aws=aws, entra=entra)},
    )
    for one in (settings, aws, entra, settings.access, settings.access.keys, settings.providers):
        assert KEY not in repr(one) and KEY not in str(one)
    assert msgspec.structs.replace(settings).providers["a"].api_key == (KEY,)


def test_secrets_of_environment_file_and_text(tmp_path: Path) -> None:
    sources = Sources({"A": f" {KEY}\n", "EMPTY": "  "}, tmp_path)
    (tmp_path / "key").write_text(f"  {KEY}  \nmore\n")
    (tmp_path / "empty").write_text("\n\n")
    for text, source in (
        ("env:A", "the variable A"),
        ("os.environ/A", "the variable A"),
        ("file:key", f"the file {tmp_path / 'key'}"),
        (f"file:{tmp_path / 'key'}", f"the file {tmp_path / 'key'}"),
        (KEY, "the configuration"),
    ):
        secret = read_secret(text, sources)
        assert secret.reveal() == KEY and secret.source == source
        assert KEY not in repr(secret)
        assert is_plain(text) == (text == KEY)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "env:NONE",
            "the environment has no NONE: set it (a running gateway has to be restarted for that), "
            "write file:PATH, or remove what needs it",
        ),
        ("env:EMPTY", "the environment has no EMPTY"),
        ("env:", "not the name of a variable"),
        (f"env:{KEY}", "not the name of a variable"),
        ("file:empty", "its first line is empty"),
        ("file:nothing", "nothing"),
        ("file:.", "file:"),
        (f"{KEY} x", "the secret from the configuration has characters"),
        (f"{KEY}\r\nx: y", "characters that a header cannot carry"),
        (f"{KEY}ü", "characters that a header cannot carry"),
        ("env:BAD", "the secret from the variable BAD has characters"),
        ("${A_KEY}", "${A_KEY} is not read from the environment: write env:A_KEY"),
    ],
)
def test_secrets_that_are_none(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "empty").write_text("")
    sources = Sources({"EMPTY": " ", "BAD": f"{KEY}\x00"}, tmp_path)
    with pytest.raises(ConfigError) as caught:
        read_secret(text, sources)
    assert says in str(caught.value) and KEY not in str(caught.value)


def test_an_address_without_its_scheme_is_no_key(tmp_path: Path) -> None:
    for text in ("127.0.0.1:8000/v1", "localhost", "engine-1:8000", "api.example.com/v1"):
        settings = read(tmp_path, f"providers: {{local: '{text}'}}\n")
        assert settings.providers["local"].base_url == text
        with pytest.raises(ConfigError, match=f"write http://{text}"):
            read_base_url(text)
    for text in ("env:8", "file:1/key", "sk-ant-a.b", KEY, "os.environ/A"):
        assert read(tmp_path, f"providers: {{a: '{text}'}}\n").providers["a"].api_key == (text,)


def test_two_listeners_on_one_port(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "0.0.0.0"):
        text = f"listen: {{port: 4001, host: {host}}}\nadmin:\n  port: 4001\n  key: env:K\n"
        said = refused(tmp_path, text)
        assert said.startswith("3: admin.port: 4001 is also listen.port")
    for text in (
        "listen: {port: 0}\nadmin: {port: 0, key: env:K}\n",
        "listen: {port: 4001, host: 127.0.0.2}\nadmin: {key: env:K}\n",
    ):
        assert read(tmp_path, text).admin is not None


def test_words_that_are_none_are_told_the_known_and_the_nearest(tmp_path: Path) -> None:
    text = "providers: {a: {}}\nmodels:\n  m:\n    targets: [a/x]\n    strategy: S\n"
    said = refused(tmp_path, text.replace("S", "cheapest"))
    assert said.startswith("5: models.m.strategy: 'cheapest' is not one of weighted, ordered,")
    assert refused(tmp_path, text.replace("S", "wieghted")).endswith("did you mean 'weighted'?")
