"""What `headrace serve` says to people and programs once the model can be used."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from headrace.config.server_settings import ServerConfig
from headrace.engine.memory.report import memory_report
from headrace.engine.sampling.defaults import SamplingDefaults, described, in_full
from headrace.http.host_names import is_loopback

if TYPE_CHECKING:
    from headrace.server.state import ServerState

logger = logging.getLogger(__name__)


class Times(NamedTuple):
    """Seconds from the call of `serve`, and of phases of engine and server, which run side by side.

    The engine's begin with its process ("spawn"), the server's with the call.
    """

    ready_s: float
    engine_phases_s: dict[str, float]
    server_phases_s: dict[str, float]


class _Announcement(msgspec.Struct, frozen=True):
    """The line that `--json` prints. `url` has no path; `phases_s` are the engine's; times are as
    in Times."""

    url: str
    model: str
    ready_s: float
    max_model_len: int
    default_sampling_params: dict[str, float]
    phases_s: dict[str, float]
    server_phases_s: dict[str, float]


def warn_of_strangers(config: ServerConfig) -> None:
    """Log that whoever reaches an address beyond this machine can use a server without keys."""
    if config.uds is None and not config.api_key and not is_loopback(config.host):
        logger.warning(
            "--host %s is reachable from other machines and no --api-key is set: anyone who "
            "can reach it can use the model",
            config.host or "''",
        )


def announce(state: ServerState, url: str, times: Times, as_json: bool) -> None:
    """Print the one line, for people or as JSON; the log gets the arithmetic of memory."""
    model = state.serving().model
    for line in memory_report(model.engine.info):
        logger.info("%s", line)
    logger.info("%s", _defaults_line(model.sampling_defaults))
    if model.left_out:
        logger.warning("left out of the model: %s; text alone is read", model.left_out)
    if not model.tokenizer.has_text:
        logger.warning(
            "the model has no tokenizer: prompts are token ids, and so are answers "
            "(return_token_ids)"
        )
    logger.debug(
        "ready in %.2f s; engine: %s; server: %s",
        times.ready_s,
        _listed(times.engine_phases_s),
        _listed(times.server_phases_s),
    )
    if as_json:
        facts = _Announcement(
            url,
            model.name,
            round(times.ready_s, 4),
            model.limits.context_tokens,
            in_full(model.sampling_defaults),
            times.engine_phases_s,
            times.server_phases_s,
        )
        line = msgspec.json.encode(facts).decode()
    else:
        at = url if url.startswith("unix:") else f"{url}/v1"
        # A browser cannot open a socket in the file system.
        has_page = at != url and state.config.enable_docs
        page = f", chat at {url}/" if has_page else ""
        line = f"headrace serves {model.name} at {at}{page} (ready in {times.ready_s:.2f} s)"
    print_line(line)


def print_line(line: str) -> None:
    """Write to stdout; a server goes on where nobody takes what it prints."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError) as error:  # absent; full or broken; closed
        logger.warning("cannot write to stdout (%s): %s", error, line)
        _silence_stdout()


def _silence_stdout() -> None:
    """Lead stdout nowhere: what waits in its buffer would fail again when Python ends."""
    with suppress(AttributeError, OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _defaults_line(defaults: SamplingDefaults) -> str:
    if not defaults:
        return "sampling defaults: neutral (temperature 1, no filter)"
    return (
        f"sampling defaults: {described(defaults)}, for requests that name no value "
        "(--generation-config vllm: neutral values)"
    )


def _listed(phases_s: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.3f} s" for name, seconds in phases_s.items())
