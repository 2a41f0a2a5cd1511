"""`headrace gateway requests`, `show` and `replay`, beside a gateway that runs."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from headrace.cli.gateway.group import gateway
from tests.cli.gateway_process import started
from tests.gateway.openai_provider import Answer, answers, body_of, completion, reply
from tests.gateway.upstream.scripted import served

HI = {"role": "user", "content": "Hi, bob@example.com"}
Run = Callable[..., Result]


def config_in(folder: Path, origin: str, log: str) -> Path:
    path = folder / "gateway.yaml"
    path.write_text(
        f"listen: {{port: 0}}\naccess: {{require_key: false}}\n"
        f"providers: {{a: {{base_url: '{origin}/v1', dialect: openai-chat}}}}\n"
        "models:\n"
        "  chat: {targets: [{model: a/big, price: {input: 10, output: 20}}]}\n"
        "  small: {targets: [{model: a/little, price: {input: 1, output: 2}}]}\n"
        f"request_log: {log}\n",
        encoding="utf-8",
    )
    return path


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def command(*arguments: str, code: int = 0) -> Result:
        config = tmp_path / "gateway.yaml"
        result = CliRunner().invoke(
            gateway, [arguments[0], "--config", str(config), *arguments[1:]]
        )
        assert result.exit_code == code, result.output + repr(result.exception)
        return result

    return command


def by_model() -> Answer:
    """Tells which model it is, and what it was asked."""

    async def answer(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        asked = body_of(request)
        if asked.get("stream"):
            await answers("I am big")(number, request, writer)
            return
        text = f"I am {asked['model']}"
        writer.write(reply(200, completion(text, asked["model"])))

    return answer


@pytest.mark.process
async def test_what_was_asked_is_found_shown_and_replayed(run: Run, tmp_path: Path) -> None:
    async with served(by_model()) as provider:
        config = config_in(tmp_path, provider.origin, "{enabled: true, redact: {pii: []}}")
        async with started(config) as process:
            async with httpx.AsyncClient(base_url=process.url, timeout=30) as client:
                asked = {"model": "chat", "messages": [HI], "stream": True, "seed": 7}
                told = await client.post("/v1/chat/completions", json=asked)
                assert told.status_code == 200
                one = told.headers["x-request-id"]
                ollama = {"model": "chat", "messages": [{"role": "user", "content": "Ollama?"}]}
                other = (await client.post("/api/chat", json=ollama)).headers["x-request-id"]
                await logged(client, 2)
            listed = [json.loads(line) for line in run("requests", "--json").output.splitlines()]
            assert [record["id"] for record in listed] == [other, one]
            (found,) = run("requests", "--text", "BOB@example", "--json").output.splitlines()
            assert json.loads(found)["id"] == one
            shown = run("show", one).output
            assert (
                "was streamed" in shown and '"content": "I am big ' in shown and "$0.00018" in shown
            )
            given = ["--url", process.url, "--model", "small,chat"]
            (line,) = (
                await asyncio.to_thread(run, "replay", one, *given, "--json")
            ).output.splitlines()
            replayed = json.loads(line)
            people = (await asyncio.to_thread(run, "replay", one, *given)).output
            async with httpx.AsyncClient(base_url=process.url, timeout=30) as client:
                refused = {"model": "nobody", "messages": [HI]}
                told = await client.post("/v1/chat/completions", json=refused)
                assert told.status_code == 404
                bad = {"model": "chat", "messages": [HI], "provider": {"only": ["nobody"]}}
                assert (await client.post("/v1/chat/completions", json=bad)).status_code >= 400
                await logged(client, 8)
            lines = run("requests", "--limit", "8", "--json").output.splitlines()
            several = (await asyncio.to_thread(run, "replay", *given, "--limit", "2")).output
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0
            assert "Traceback" not in process.heard
    requests = [body_of(one) for one in provider.requests]
    assert [one["model"] for one in requests[2:4]] == ["little", "big"]
    assert requests[2] == {**asked, "model": "little", "stream": False}
    then, (now, same) = replayed["then"], replayed["now"]
    assert then["text"].strip() == "I am big" and then["cost_nusd"] == 180_000
    assert (now["text"], now["target"], now["cost_nusd"]) == ("I am little", "a/little", 18_000)
    assert (now["input_tokens"], now["output_tokens"], now["status"]) == (12, 3, 200)
    assert same["target"] == "a/big"
    taken = {record["total_ms"] for record in map(json.loads, lines) if record["session"]}
    assert {now["total_ms"], same["total_ms"]} < taken, "by the log, as the time of then"
    assert "omitted: 2 that were refused or failed" in several
    assert "-I am big" in people and "+I am little" in people and "0.000018" in people
    rows = [line.split() for line in several.splitlines() if "│" in line]
    assert [(row[1], row[3], row[5]) for row in rows] == [
        ("then", "2", "2"),
        ("small", "2", "2"),
        ("chat", "2", "2"),
    ]


async def logged(client: httpx.AsyncClient, count: int) -> None:
    async with asyncio.timeout(20):
        while True:
            told = (await client.get("/health")).json()["request_log"]
            if told["written"] == count:
                assert told["lost"] == 0 and told["error"] == ""
                return
            await asyncio.sleep(0.01)


@pytest.mark.process
async def test_what_cannot_be_replayed(run: Run, tmp_path: Path) -> None:
    log = "{enabled: true, max_body_bytes: 1024, redact: {pii: [email]}}"
    async with served(answers()) as provider:
        config = config_in(tmp_path, provider.origin, log)
        async with started(config) as process:
            async with httpx.AsyncClient(base_url=process.url, timeout=30) as client:
                ids = []
                for more, headers in (
                    ({}, {}),
                    ({"user": "x" * 2000}, {}),
                    ({}, {"x-headrace-log": "off"}),
                ):
                    asked = {"model": "chat", "messages": [HI], **more}
                    told = await client.post("/v1/chat/completions", json=asked, headers=headers)
                    ids.append(told.headers["x-request-id"])
                await logged(client, 3)
            given = ["--url", process.url, "--model", "small"]
            redacted, cut, without = ids
            said = await asyncio.to_thread(
                lambda: run("replay", redacted, *given, code=1).exception
            )
            assert "1 values of its body were redacted" in str(said)
            even = await asyncio.to_thread(run, "replay", redacted, *given, "--even-if-redacted")
            assert "values had been replaced" in even.output
            for one, words in ((cut, "was cut after 1,024 of"), (without, "not kept (client)")):
                said = await asyncio.to_thread(
                    lambda one=one: run("replay", one, *given, code=1).exception
                )
                assert words in str(said)
            nothing = run("show", "no-such", code=1)
            assert "the request log has no such request" in str(nothing.exception)
            assert "Kept are" not in str(nothing.exception)
            sent = len(provider.requests)
            many = await asyncio.to_thread(run, "replay", *given)
            assert len(provider.requests) == sent and many.output.count("omitted: ") == 3
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0
    part = log.replace("true,", "true, sample: 0.1, models: [chat, 'gpt-*'],")
    config.write_text(config.read_text().replace(log, part))
    said = run("show", "no-such", code=1).exception
    kept = "By its settings the log keeps only: 0.1 of all requests (sample); models chat, gpt-*"
    assert kept in str(said)
    gone = ["--url", process.url, "--model", "small", "--even-if-redacted"]
    said = run("replay", redacted, *gone, code=1).exception
    assert "the gateway is not reachable" in str(said)


def test_without_a_log(run: Run, tmp_path: Path) -> None:
    config_in(tmp_path, "http://127.0.0.1:9", "{}")
    for command in (("requests",), ("show", "x"), ("replay", "--model", "small")):
        said = str(run(*command, code=1).exception)
        assert "there is no such file; a gateway that starts with `request_log: {enabled: " in said


async def ask(client: httpx.AsyncClient, text: str) -> str:
    body = {"model": "chat", "messages": [{"role": "user", "content": text}]}
    told = await client.post("/v1/chat/completions", json=body)
    assert told.status_code == 200
    return told.headers["x-request-id"]


@pytest.mark.process
async def test_a_reload_changes_what_is_kept(run: Run, tmp_path: Path) -> None:
    async with served(answers()) as provider:
        config = config_in(tmp_path, provider.origin, "{enabled: true}")
        async with started(config) as process:
            async with process.client() as client:
                first = await ask(client, "mail x@y.example")
                await logged(client, 1)
                log = "{enabled: true, redact: {pii: [email]}, retention_days: 9, max_waiting: 5}"
                config_in(tmp_path, provider.origin, log)
                process.signal(signal.SIGHUP)
                await process.has_logged("the configuration was read again")
                assert "in effect at the next start only: request_log." in process.heard
                second = await ask(client, "mail x@y.example")
                await logged(client, 2)
                config_in(tmp_path, provider.origin, "{enabled: false}")
                process.signal(signal.SIGHUP)
                async with asyncio.timeout(20):
                    while process.heard.count("the configuration was read again") < 2:
                        await asyncio.sleep(0.01)
                third = await ask(client, "nobody keeps this")
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0
    assert "x@y.example" in run("show", first).output
    shown = run("show", second).output
    assert "mail [EMAIL]" in shown and "1 values replaced" in shown
    run("show", third, code=1)


@pytest.mark.process
async def test_several_workers_write_to_one_log(run: Run, tmp_path: Path) -> None:
    async with served(answers()) as provider:
        config = config_in(tmp_path, provider.origin, "{enabled: true}")
        told = config.read_text(encoding="utf-8").replace("port: 0", "port: 0, workers: 2")
        config.write_text(told, encoding="utf-8")
        async with started(config) as process:
            ids = set()
            for _ in range(10):  # a connection each, so that both workers have some
                async with process.client() as client:
                    ids |= {await ask(client, "Hi") for _ in range(3)}
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0, process.heard
            assert "Traceback" not in process.heard
    listed = run("requests", "--limit", "100", "--json").output.splitlines()
    assert {json.loads(line)["id"] for line in listed} == ids and len(listed) == 30


def test_check_looks_at_the_log_and_makes_none(run: Run, tmp_path: Path) -> None:
    config_in(tmp_path, "http://127.0.0.1:9", "{enabled: true, path: no/log}")
    assert "create it first" in run("check", code=1).output
    config_in(tmp_path, "http://127.0.0.1:9", "{enabled: true, path: log}")
    run("check")
    assert not (tmp_path / "log").exists()
    url = "postgresql://me:hunter2secret@127.0.0.1/log"
    config_in(tmp_path, "http://127.0.0.1:9", f"{{enabled: true, store: postgresql, url: '{url}'}}")
    said = run("check").output
    assert "request_log.url: the secret is written into the file" in said and "hunter2" not in said
    config_in(tmp_path, "http://127.0.0.1:9", "{enabled: true, redact: {patterns: {a: '('}}}")
    assert "request_log.redact.patterns.a: " in run("check", code=1).output
