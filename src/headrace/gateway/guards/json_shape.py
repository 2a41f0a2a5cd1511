"""Whether an answer is JSON as a schema wants it."""

from __future__ import annotations

from typing import Any

from headrace.errors import ConfigError
from headrace.gateway.guards.guard import NOTHING, Subject, Verdict


class JsonShape:
    """Patterns of the schema are looked for in linear time, and nothing is fetched for it.

    Raises ConfigError for an invalid schema.
    """

    def __init__(self, schema: Any) -> None:
        try:
            import jsonschema_rs
        except ImportError:
            raise ConfigError(
                "json_schema needs a library that is not installed: pip install "
                "'headrace[guardrails]'"
            ) from None
        try:
            self._validator = jsonschema_rs.validator_for(
                schema, pattern_options=jsonschema_rs.RegexOptions(), offline=True
            )
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            raise ConfigError(f"schema: {str(error).splitlines()[0]}") from None

    async def __call__(self, subject: Subject) -> Verdict:
        """The verdict on each choice with text: one that only calls tools has no shape."""
        texts: dict[int, list[str]] = {}
        for passage in subject.passages:
            if passage.kind == "text":
                texts.setdefault(passage.choice, []).append(passage.text)
        for parts in texts.values():
            if reason := self._wrong("".join(parts)):
                return Verdict(reason)
        return NOTHING

    def _wrong(self, text: str) -> str:
        """What is wrong and where, without the text itself."""
        import msgspec

        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return "the answer is not JSON"
        error = next(self._validator.iter_errors(value), None)
        if error is None:
            return ""
        where = "".join(f".{one}" for one in error.instance_path)
        rule = ".".join(str(one) for one in error.schema_path)
        return f"the answer does not match the schema: ${where} violates {rule}"
