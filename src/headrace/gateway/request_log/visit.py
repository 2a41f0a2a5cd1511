"""The recording of a request: whether it is stored, with or without bodies, and what is stored in
the end."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from fnmatch import fnmatchcase

from headrace.errors import RequestError
from headrace.gateway.accounts.caller import Caller
from headrace.gateway.request_log.line import Heard, Line
from headrace.gateway.request_log.record import WithoutBodies
from headrace.gateway.request_log.recording_sink import RecordingSink
from headrace.gateway.request_log.store import RequestLog
from headrace.gateway.serving.entry import Entry
from headrace.gateway.serving.incoming import Incoming, Sink
from headrace.gateway.settings.request_log import RequestLogSettings
from headrace.gateway.telemetry.tracing import trace_headers
from headrace.protocol.json_object import JsonObject

# A token of a stream has some four characters and is told in some two hundred bytes.
_STREAM_BYTES_PER_KEPT = 16
_SESSION_HEADERS = ("x-session-id", "x-headrace-session", "helicone-session-id")
_MOST_SESSION_CHARS = 256
# What clients of others send to keep their words out of logs, and what it says then. Sources:
# docs.helicone.ai "Omit Logs"; portkey.ai/docs "Do not track"; docs.litellm.ai "Redact messages".
_LEAVES_BODIES_OUT = (
    ("x-headrace-log", ("off", "false", "0", "no")),
    ("helicone-omit-request", ("true",)),
    ("helicone-omit-response", ("true",)),
    ("x-portkey-debug", ("false",)),
    ("x-litellm-enable-message-redaction", ("true",)),
)
_HASHES = 2**64


class RequestLogging:
    """The log, with the settings that choose the requests it keeps."""

    def __init__(self, settings: RequestLogSettings, log: RequestLog) -> None:
        self._settings = settings
        self._log = log

    def visit(self, incoming: Incoming, sink: Sink) -> LogVisit | None:
        """The recording of a request; None for one that is not stored."""
        if not self._keeps(incoming):
            return None
        settings = self._settings
        return LogVisit(settings, self._log, incoming, sink, without_bodies(settings, incoming))

    def post(self, incoming: Incoming, *, counts: bool = False) -> PostVisit | None:
        """The recording of a request that is answered whole; None for one that is not stored.
        counts: whether the answer is a number of tokens."""
        if not self._keeps(incoming) or (counts and not self._settings.counts):
            return None
        return PostVisit(
            self._settings, self._log, incoming, without_bodies(self._settings, incoming)
        )

    def _keeps(self, incoming: Incoming) -> bool:
        settings = self._settings
        return (
            _matches(incoming.model, settings.models)
            and is_of(incoming.caller, settings.keys, settings.teams)
            # Clients choose their ids, and not the nanosecond.
            and is_sampled(f"{incoming.id} {incoming.received_ns}", settings.sample)
        )


class LogVisit:
    """The recording of one request. sink: the sink it listens to."""

    def __init__(
        self,
        settings: RequestLogSettings,
        log: RequestLog,
        incoming: Incoming,
        sink: Sink,
        without: WithoutBodies,
    ) -> None:
        self._settings = settings
        self._log = log
        self._incoming = incoming
        self._without = without
        self._recording: RecordingSink | None = None
        self.sink = sink
        if not without:
            # A whole answer is in memory as it is; it is cut when it was looked through.
            most = _STREAM_BYTES_PER_KEPT * settings.max_body_bytes
            self._recording = RecordingSink(sink, most if incoming.stream else _HASHES)
            self.sink = self._recording

    def asks(self, incoming: Incoming) -> None:
        """Replace the request by the one that guardrails redacted."""
        self._incoming = incoming

    def ended(self, entry: Entry) -> None:
        """Give it to the log."""
        heard = None if self._recording is None else self._recording.heard
        self._log.take(_line(self._settings, entry, self._incoming, self._without, heard))


class PostVisit:
    """A request whose answer is one body. Told of its ledger's line (`noted`) and of what the
    client hears (`told`), in any order; where there is no line, nothing is kept."""

    def __init__(
        self,
        settings: RequestLogSettings,
        log: RequestLog,
        incoming: Incoming,
        without: WithoutBodies,
    ) -> None:
        self._settings = settings
        self._log = log
        self._incoming = incoming
        self._without = without
        self._entry: Entry | None = None
        self._body = b""

    def asks(self, body: JsonObject) -> None:
        """Replace the request by the one that guardrails redacted."""
        self._incoming = dataclasses.replace(self._incoming, body=body)

    def noted(self, entry: Entry) -> None:
        """The ledger's line."""
        self._entry = entry

    def told(self, body: bytes) -> None:
        """An answer, or why there is none."""
        self._body = body

    def ended(self) -> None:
        """Give it to the log."""
        if self._entry is None:
            return
        body = self._body
        heard = None if self._without else Heard([body] if body else [], len(body), cut=False)
        self._log.take(_line(self._settings, self._entry, self._incoming, self._without, heard))


def _line(
    settings: RequestLogSettings,
    entry: Entry,
    incoming: Incoming,
    without: WithoutBodies,
    heard: Heard | None,
) -> Line:
    """heard: None where bodies are not kept."""
    if settings.bodies == "errors" and entry.outcome == "answered":
        heard, without = None, without or "settings"
    return Line(
        entry=entry,
        path=incoming.path,
        session=_session(incoming),
        trace_id=_trace_id(incoming.headers),
        without_bodies=without,
        request=None if heard is None else incoming.body.body,
        reply=heard,
    )


def is_of(
    caller: Caller | None, keys: tuple[str, ...] | None, teams: tuple[str, ...] | None
) -> bool:
    """Whether it is one of the keys or the teams; of all where none are named."""
    if keys is None and teams is None:
        return True
    if caller is None:
        return False
    return _matches(caller.key_id, keys or ()) or _matches(caller.team or "", teams or ())


def is_sampled(request_id: str, sample: float) -> bool:
    """Whether the request is in the sample: by a hash of the id, the same in every process."""
    if sample >= 1:
        return True
    digest = hashlib.blake2b(request_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest) < sample * _HASHES


def without_bodies(settings: RequestLogSettings, incoming: Incoming) -> WithoutBodies:
    """Why its bodies are not kept; "" where they are."""
    caller = incoming.caller
    if (caller is not None and caller.data_policy.zero_retention) or _wants_no_retention(incoming):
        return "zero_retention"
    if settings.bodies == "none":
        return "settings"
    for name, values in _LEAVES_BODIES_OUT:
        if incoming.headers.get(name, "").strip().lower() in values:
            return "client"
    return ""


def _wants_no_retention(incoming: Incoming) -> bool:
    if "provider" not in incoming.body:
        return False
    try:
        preferences = incoming.body.decoded("provider")
    except RequestError:
        return True  # nobody can say what it asks for
    return isinstance(preferences, Mapping) and preferences.get("zdr") not in (None, False)


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(glob in ("*", name) or fnmatchcase(name, glob) for glob in globs)


def _session(incoming: Incoming) -> str:
    for name in _SESSION_HEADERS:
        if told := incoming.headers.get(name, ""):
            return told[:_MOST_SESSION_CHARS]
    return ""


def _trace_id(headers: Mapping[str, str]) -> str:
    """The id of the client's trace."""
    told = trace_headers(headers)
    return told[0][1].split("-")[1] if told else ""
