"""`headrace gateway guard-test`: what the file's guardrails would do about a text."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.visible import visible
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.gateway.guards.guard import Guard, Side

_MOST_CHARS = 16 * 2**20


@click.command("guard-test", short_help="Show what each guardrail would do with a text.")
@click.argument("text", default="-")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=Path("gateway.yaml"),
    help="The gateway's file. [default: gateway.yaml]",
)
@click.option("--guardrail", "names", multiple=True, help="Only this guardrail. [may be repeated]")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each guardrail.")
@click.pass_context
def guard_test(
    ctx: click.Context, text: str, config: Path, names: tuple[str, ...], as_json: bool
) -> None:
    """Show what each guardrail of the file would do with TEXT, or with standard input.

    No model is called and nothing is stored; webhooks and functions of your own are called. Each
    guardrail sees the original text, not what the previous ones make of it. For allowed_tools TEXT
    is the name of a tool, for json_schema the answer, for max_tokens the prompt.

    \b
    headrace gateway guard-test "write to ada@example.com"
    headrace gateway guard-test --guardrail no-secrets - < prompt.txt
    headrace gateway guard-test --guardrail shape '{"a": 1}' --json

    Exit status 0: it would pass, perhaps changed; 1: a guardrail would refuse it.
    """
    from headrace.gateway.building.guards import guardrails_of
    from headrace.gateway.settings.read import read_settings
    from headrace.gateway.settings.secret import Sources

    sources = Sources(os.environ, config.parent)
    guardrails = guardrails_of(read_settings(config), sources, time.time)
    if guardrails is None:
        raise ConfigError(f"{config}: it has no guardrails")
    wanted = guardrails.of((), (), names or [one.name for one in guardrails.all])
    if text == "-":
        text = sys.stdin.read(_MOST_CHARS)
    found = asyncio.run(_results(wanted, text))
    for one in found:
        click.echo(json.dumps(one) if as_json else _line(one))
    ctx.exit(int(any(one["action"] in ("block", "failed") for one in found)))


async def _results(guards: tuple[Guard, ...], text: str) -> list[dict[str, Any]]:
    found = []
    for guard in guards:
        found += [await _result(guard, side, text) for side in sorted(guard.on)]
        close = getattr(guard.look, "close", None)
        if close is not None:
            close()
    return found


async def _result(guard: Guard, side: Side, text: str) -> dict[str, Any]:
    from headrace.gateway.guards.action import GuardBlockedError
    from headrace.gateway.guards.check_text import check_text
    from headrace.gateway.guards.guard import Subject
    from headrace.gateway.guards.text_span import TextSpan
    from headrace.gateway.routing.estimate import BYTES_PER_TOKEN, utf8_bytes

    role = guard.roles[0] if guard.roles else "user"
    subject = Subject(
        on=side,
        passages=(TextSpan((), role if side == "input" else "assistant", "text", text),),
        tools=(text,) if guard.tools is not None else (),
        input_tokens=utf8_bytes(text) // BYTES_PER_TOKEN,
    )
    told = {"guardrail": guard.name, "on": side, "action": "pass", "reason": "", "text": text}
    try:
        passed = await check_text((guard,), subject)
    except GuardBlockedError as error:
        return {**told, "action": error.acted.action, "reason": error.acted.reason, "text": None}
    if not passed.acted:
        return told
    acted = passed.acted[0]
    after = passed.subject.passages[0].text
    return {**told, "action": acted.action, "reason": acted.reason, "text": after}


def _line(one: dict[str, Any]) -> str:
    reason = f": {one['reason']}" if one["reason"] else ""
    line = f"{one['guardrail']} on {one['on']}: {one['action']}{reason}"
    return visible(line) + (f"\n  {visible(one['text'])}" if one["action"] == "redact" else "")
