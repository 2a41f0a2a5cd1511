"""`headrace gateway` as people start it: serving, reloading, ending; `check` and `explain`."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from click.testing import CliRunner, Result

from headrace.cli.gateway.group import gateway
from tests.cli.gateway_process import Process, started
from tests.gateway.openai_provider import (
    DONE,
    END,
    STREAM_HEAD,
    answers,
    chunk,
    framed,
    usage_chunk,
)
from tests.gateway.upstream.scripted import served

CHAT = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
PATH = "/v1/chat/completions"
SECRET = "sk-test-this-is-secret"


def write(path: Path, origin: object, **more: Any) -> Path:
    """A gateway's file with one model, "chat"."""
    settings = {
        "providers": {"a": f"{origin}/v1"},
        "models": {"chat": [{"model": "a/m", "price": {"input": 1.0, "output": 2.0}}]},
        "access": {"require_key": False},
        **more,
    }
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


class Slow:
    """A provider whose stream stops after its first words until it is let go on."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def answer(self, _number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + framed(chunk({"role": "assistant", "content": "first "})))
        await writer.drain()
        await self.go_on.wait()
        writer.write(framed(chunk({"content": "last"})) + framed(chunk({}, "stop")))
        writer.write(framed(usage_chunk()) + framed(DONE) + END)


async def models_of(process: Process) -> list[str]:
    async with process.client() as client:
        told = (await client.get("/v1/models")).json()
    return [one["id"] for one in told["data"]]


@pytest.mark.process
async def test_it_serves_reloads_and_ends(tmp_path: Path) -> None:
    async with served(answers("Hello there")) as provider:
        config = write(tmp_path / "gateway.yaml", provider.origin)
        async with started(config) as process:
            assert process.announced["models"] == ["chat"]
            async with process.client() as client:
                told = await client.post(PATH, json=CHAT)
                assert told.json()["choices"][0]["message"]["content"] == "Hello there"
                assert told.headers["x-headrace-cost-usd"] == "0.000018000"

                config.write_text("models: {chat: [nobody/m]}\n", encoding="utf-8")
                process.signal(signal.SIGHUP)
                await process.has_logged("was rejected")
                assert "nobody" in process.heard
                assert await models_of(process) == ["chat"]
                assert (await client.post(PATH, json=CHAT)).status_code == 200

                began_s = (await client.get("/health")).json()["uptime_s"]
                foreign = await client.get("/v1/models", headers={"host": "evil.example"})
                assert (foreign.status_code, foreign.json()["error"]["code"]) == (
                    403, "unknown_host",
                )  # fmt: skip
                assert "listen.allowed_hosts" in foreign.json()["error"]["message"]
                moved = {"host": "127.0.0.2", "port": 0}
                write(config, provider.origin, aliases={"gpt-4": "chat"}, listen=moved)
                process.signal(signal.SIGHUP)
                await process.has_logged("was read again")
                assert "changed: aliases.gpt-4, listen.host" in process.heard
                assert "in effect at the next start only: listen.host" in process.heard
                assert (await client.get("/health")).json()["uptime_s"] >= began_s
                assert await models_of(process) == ["chat", "gpt-4"]
                told = await client.post(PATH, json={**CHAT, "model": "gpt-4"})
                assert told.status_code == 200
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0
            assert "Traceback" not in process.heard


@pytest.mark.process
async def test_a_reload_leaves_a_stream_under_way_alone(tmp_path: Path) -> None:
    slow = Slow()
    async with served(slow.answer) as provider:
        config = write(tmp_path / "gateway.yaml", provider.origin)
        async with (
            started(config) as process,
            process.client() as client,
            client.stream("POST", PATH, json={**CHAT, "stream": True}) as reply,
        ):
            pieces = reply.aiter_text()
            text = await anext(pieces)
            config.write_text(
                "models: {}\nproviders: {}\naccess: {require_key: false}\n", encoding="utf-8"
            )
            process.signal(signal.SIGHUP)
            await process.has_logged("was read again")
            assert await models_of(process) == []
            slow.go_on.set()
            text += "".join([one async for one in pieces])
            assert "first " in text and "last" in text and text.endswith("data: [DONE]\n\n")


@pytest.mark.process
async def test_the_end_waits_for_a_stream_under_way(tmp_path: Path) -> None:
    slow = Slow()
    async with served(slow.answer) as provider:
        config = write(tmp_path / "gateway.yaml", provider.origin)
        async with started(config) as process:
            async with (
                process.client() as client,
                client.stream("POST", PATH, json={**CHAT, "stream": True}) as reply,
            ):
                pieces = reply.aiter_text()
                text = await anext(pieces)
                process.signal(signal.SIGTERM)
                await process.takes_no_more()
                slow.go_on.set()
                text += "".join([one async for one in pieces])
            assert "last" in text and text.endswith("data: [DONE]\n\n")
            assert await process.ended() == 0
            assert " outcome=answered status=200 model=chat target=a/m " in process.heard
            assert "Traceback" not in process.heard


@pytest.mark.process
async def test_a_second_signal_cuts_what_is_under_way(tmp_path: Path) -> None:
    slow = Slow()
    async with served(slow.answer) as provider:
        config = write(tmp_path / "gateway.yaml", provider.origin)
        async with started(config) as process:
            async with process.client() as client:
                with pytest.raises(httpx.RemoteProtocolError):
                    async with client.stream("POST", PATH, json={**CHAT, "stream": True}) as reply:
                        async for _ in reply.aiter_text():
                            process.signal(signal.SIGTERM)
                            await process.takes_no_more()
                            process.signal(signal.SIGTERM)
            assert await process.ended() == 0
            assert " outcome=client_gone status=200 model=chat target=a/m " in process.heard
            assert "Traceback" not in process.heard
        slow.go_on.set()


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: {chat: [nobody/m]}\n", "nobody"),
        ("models:\n  chat: 3\n", "gateway.yaml:2"),
        ("nonsense: 1\n", "nonsense"),
        ("models: [", "gateway.yaml"),
    ],
)
async def test_what_cannot_be_started_is_said(tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(text, encoding="utf-8")
    with pytest.raises(AssertionError) as caught:
        async with started(config):
            pass
    assert said in str(caught.value) and "Traceback" not in str(caught.value)


def run(*arguments: object, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(gateway, [str(one) for one in arguments], env=env)


def test_check_of_a_right_file(tmp_path: Path) -> None:
    config = write(tmp_path / "gateway.yaml", "http://127.0.0.1:9")
    told = run("check", "--config", config)
    assert (told.exit_code, told.stdout) == (0, "valid: 1 model, 1 provider\n")
    told = run("check", "--config", config, "--json")
    assert told.exit_code == 0
    assert json.loads(told.stdout) == {"right": True, "models": ["chat"], "warnings": []}


def test_options_before_a_subcommand_are_its_own(tmp_path: Path) -> None:
    config = write(tmp_path / "other.yaml", "http://127.0.0.1:9")
    told = run("--config", config, "--json", "check")
    assert (told.exit_code, json.loads(told.stdout)["models"]) == (0, ["chat"])
    elsewhere = tmp_path / "absent.yaml"
    assert run("--config", elsewhere, "check", "--config", config).exit_code == 0
    assert "absent.yaml" in str(run("--config", elsewhere, "keys", "list").exception)
    told = run("--port", "1", "check", "--config", config)
    assert told.exit_code == 2
    assert "--port is not an option of `headrace gateway check`" in told.stderr


def test_check_warns(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(
        f"providers:\n  a: {{base_url: 'https://a.example/v1', api_key: {SECRET}}}\n"
        "models: {chat: [a/m]}\n",
        encoding="utf-8",
    )
    told = run("check", "--config", config)
    assert told.exit_code == 0
    assert "warning: providers.a.api_key: the secret is written into the file" in told.stdout
    assert "warning: models.chat: the price of a/m is unknown" in told.stdout
    assert SECRET not in told.output
    warnings = json.loads(run("check", "--config", config, "--json").stdout)["warnings"]
    assert len(warnings) == 4 and "headrace catalog import litellm FILE" in warnings[-1]


def test_check_warns_of_keys(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text("{}", encoding="utf-8")
    told = run("check", "--config", config)
    assert told.exit_code == 0 and "needs a key and there are no keys" in told.stdout
    keys = f"master_key: {SECRET}, metrics_key: {SECRET}-to-see"
    text = f"access: {{{keys}, keys: {{ann: {{key: {SECRET}-of-ann}}}}}}"
    config.write_text(text, encoding="utf-8")
    told = run("check", "--config", config)
    assert told.exit_code == 0 and SECRET not in told.output
    assert "warning: access.master_key: the secret is written into the file" in told.stdout
    assert "warning: access.metrics_key: the secret is written into the file" in told.stdout
    assert "warning: access.keys.ann.key: the secret is written into the file" in told.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("providers: {a: 'http://h/v1'}\nmodels:\n  chat: [b/m]\n", ("gateway.yaml:3", "'b'")),
        ("listen:\n  prot: 1\n", ("gateway.yaml:2", "prot", "port")),
        ("listen:\n  port: 70000\n", ("gateway.yaml:2", "port")),
        ("providers:\n  openai: env:NO_SUCH_VARIABLE\n", ("openai", "NO_SUCH_VARIABLE")),
        (
            "access:\n  master_key: env:NO_SUCH_VARIABLE\n",
            ("access.master_key", "NO_SUCH_VARIABLE"),
        ),
        ("access:\n  keys:\n    ann: {key: env:NO_SUCH_VARIABLE}\n", ("ann", "NO_SUCH_VARIABLE")),
        (f"access: {{keys: {{ann: {{key: {SECRET}-of-ann, team: blue}}}}}}\n", ("ann", "blue")),
        (
            "access: {redis: env:NO_SUCH}\ncache: {enabled: true, store: redis}\n",
            ("access.redis", "NO_SUCH"),
        ),
        ("cache: {enabled: true, store: redis, redis: env:NO_SUCH}\n", ("cache.redis", "NO_SUCH")),
        ("admin: {key: env:NO_SUCH}\n", ("admin.key", "NO_SUCH")),
        ("alerts: {url: env:NO_SUCH}\n", ("alerts.url", "NO_SUCH")),
        ("admin: {port: 4000, key: env:NONE}\n", ("gateway.yaml:1", "admin.port", "listen.port")),
        ("providers: {a: '127.0.0.1:8/v1'}\n", ("providers.a", "write http://127.0.0.1:8/v1")),
        ("a: [1\n", ("gateway.yaml",)),
    ],
)
def test_check_of_a_wrong_file(tmp_path: Path, text: str, said: tuple[str, ...]) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(text, encoding="utf-8")
    told = run("check", "--config", config)
    assert told.exit_code == 1 and told.stderr.startswith("not valid: ")
    assert all(one in told.stderr for one in said), told.stderr
    told = run("check", "--config", config, "--json")
    found = json.loads(told.stdout)
    assert told.exit_code == 1 and found["right"] is False
    assert all(one in found["error"] for one in said)


def test_check_names_all_variables_that_are_missing(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(
        "providers: {openai: env:NONE_A}\naccess: {master_key: env:NONE_B}\n"
        "admin: {key: os.environ/NONE_C}\n",
        encoding="utf-8",
    )
    told = run("check", "--config", config)
    assert told.exit_code == 1
    for one in ("NONE_A (providers.openai.api_key.0)", "NONE_B (access.master_key)",
                "NONE_C (admin.key)"):  # fmt: skip
        assert one in told.stderr
    missing = json.loads(run("check", "--config", config, "--json").stdout)["missing_variables"]
    assert sorted(missing) == ["NONE_A", "NONE_B", "NONE_C"]


def two(tmp_path: Path) -> Path:
    """A file with a dear target and a cheap one that takes little."""
    config = tmp_path / "gateway.yaml"
    config.write_text(
        """
providers: {dear: 'http://127.0.0.1:9/v1', cheap: 'http://127.0.0.1:10/v1'}
models:
  chat:
    strategy: price
    targets:
      - {model: dear/m, price: {input: 5, output: 9}}
      - {model: cheap/m, price: {input: 1, output: 2}, context_tokens: 1000}
""",
        encoding="utf-8",
    )
    return config


def test_explain(tmp_path: Path) -> None:
    config = two(tmp_path)
    told = run("explain", "chat", "--config", config, env={"COLUMNS": "160"})
    assert told.exit_code == 0 and "tried in this order" in told.stdout
    assert told.stdout.index("cheap/m") < told.stdout.index("dear/m")
    found = json.loads(run("explain", "chat", "--config", config, "--json").stdout)
    assert [one["target"] for one in found["candidates"]] == ["cheap/m", "dear/m"]
    assert all(one["reasons"] and one["model"] == "chat" for one in found["candidates"])
    assert found["left_out"] == []


def test_explain_of_a_request(tmp_path: Path) -> None:
    config, body = two(tmp_path), tmp_path / "body.json"
    prompt = [{"role": "user", "content": "river " * 5000}]
    body.write_text(json.dumps({"messages": prompt}), encoding="utf-8")
    told = run("explain", "chat", "--config", config, "--request", body, "--json")
    found = json.loads(told.stdout)
    assert [one["target"] for one in found["candidates"]] == ["dear/m"]
    (left,) = found["left_out"]
    assert left["target"] == "cheap/m" and "1,000" in left["reason"]
    told = run("explain", "chat", "--config", config, "--request", body, env={"COLUMNS": "160"})
    assert "not tried" in told.stdout and left["reason"][:20] in told.stdout
    body.write_text('{"provider": {"only": ["dear"]}}', encoding="utf-8")
    found = json.loads(
        run("explain", "chat", "--config", config, "--request", body, "--json").stdout
    )
    assert [one["target"] for one in found["candidates"]] == ["dear/m"]


@pytest.mark.parametrize(
    ("model", "body", "said"),
    [("cht", "{}", "chat"), ("chat", "[]", "object"), ("chat", '{"provider": 3}', "provider")],
)
def test_explain_of_what_is_wrong(tmp_path: Path, model: str, body: str, said: str) -> None:
    request = tmp_path / "body.json"
    request.write_text(body, encoding="utf-8")
    told = run("explain", model, "--config", two(tmp_path), "--request", request)
    assert told.exit_code != 0
    assert said in str(told.exception) + told.output


def test_explain_asks_nobody(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as provider:
        provider.setblocking(False)
        url = f"http://127.0.0.1:{provider.getsockname()[1]}/v1"
        config = tmp_path / "gateway.yaml"
        config.write_text(json.dumps({"providers": {"own": url}, "models": {"chat": ["own/m"]}}))
        told = run("explain", "chat", "--config", config, "--json")
        assert [one["target"] for one in json.loads(told.stdout)["candidates"]] == ["own/m"]
        with pytest.raises(BlockingIOError):
            provider.accept()
