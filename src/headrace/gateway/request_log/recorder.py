"""The conversion of a line to a record, which contains only what may be stored."""

from __future__ import annotations

from collections.abc import Callable

from headrace.gateway.request_log.assembling import Assemble
from headrace.gateway.request_log.line import Heard, Line
from headrace.gateway.request_log.query import line_at
from headrace.gateway.request_log.record import LoggedBody, LogRecord, WithoutBodies
from headrace.gateway.request_log.redaction import Redaction
from headrace.gateway.request_log.vectors import without_vectors


class Recorder:
    """A maker of records from finished requests. new_suffix: sixteen hexadecimal digits that make a
    line unique within its millisecond.
    """

    def __init__(
        self,
        redaction: Redaction,
        max_body_bytes: int,
        assemble: Assemble,
        new_suffix: Callable[[], str],
    ) -> None:
        self._redaction = redaction
        self._max_body_bytes = max_body_bytes
        self._assemble = assemble
        self._new_suffix = new_suffix

    def record(self, line: Line) -> LogRecord:
        """May take a while: personal data are looked for, and streams are put together."""
        entry, usage = line.entry, line.entry.usage
        request = reply = None
        without_bodies: WithoutBodies = line.without_bodies
        if line.request is not None:
            request = self._whole(line.request, len(line.request))
            reply = None if line.reply is None else self._reply(line, line.reply)
            if reply is None and line.reply is not None and line.reply.bytes:
                without_bodies = "unreadable"
        return LogRecord(
            line=line_at(entry.at_s) + self._new_suffix(),
            id=entry.id,
            at_s=entry.at_s,
            dialect=entry.dialect,
            path=line.path,
            model=entry.model,
            target=entry.target,
            provider=entry.provider,
            outcome=entry.outcome,
            status=entry.status,
            stream=entry.stream,
            total_ms=entry.total_ms,
            first_token_ms=entry.first_token_ms,
            finish=entry.finish,
            input_tokens=None if usage is None else usage.prompt_tokens,
            output_tokens=None if usage is None else usage.completion_tokens,
            cost_nusd=entry.cost_nusd,
            organisation=entry.organisation,
            team=entry.team,
            user=entry.user,
            key=entry.key,
            tags=entry.tags,
            session=self._redaction.text(line.session).text,
            trace_id=line.trace_id,
            variant=entry.variant,
            cache=entry.cache,
            error=self._redaction.text(entry.error).text,
            without_bodies=without_bodies,
            request=request,
            reply=reply,
        )

    def _reply(self, line: Line, heard: Heard) -> LoggedBody | None:
        """The reply's body; None if there was none, or if it can be neither parsed nor scanned."""
        if not heard.bytes:
            return None
        raw = b"".join(heard.pieces)
        if self._redaction.hides_media and line.entry.operation == "embeddings":
            return self._body(without_vectors(raw), heard.bytes, cut=heard.cut, assembled=False)
        if not (line.entry.stream and line.entry.status == 200):
            return self._whole(raw, heard.bytes)
        assembled = self._assemble(line, raw)
        if assembled is not None:
            return self._body(assembled, heard.bytes, cut=heard.cut, assembled=True)
        if self._redaction.hides_text:
            return None  # in its pieces nothing can be found that goes over their borders
        return self._body(raw, heard.bytes, cut=heard.cut, assembled=False)

    def _whole(self, raw: bytes, size: int) -> LoggedBody:
        return self._body(raw, size, cut=len(raw) < size, assembled=False)

    def _body(self, raw: bytes, size: int, *, cut: bool, assembled: bool) -> LoggedBody:
        told = self._redaction.json(raw.decode("utf-8", "replace"))
        kept = told.text.encode("utf-8", "replace")
        text = told.text
        if len(kept) > self._max_body_bytes:
            text, cut = kept[: self._max_body_bytes].decode("utf-8", "ignore"), True
        return LoggedBody(text=text, bytes=size, cut=cut, redacted=told.times, assembled=assembled)
