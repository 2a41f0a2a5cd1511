"""Embeddings of the Gemini API (batchEmbedContents) and of Vertex AI (predict, embedContent).

    place        model                    method               texts in one request
    Gemini API   all                      batchEmbedContents   100
    Vertex AI    gemini-embedding-2 ...   embedContent         1
    Vertex AI    gemini-embedding-001     predict              1
    Vertex AI    text-embedding-005 ...   predict              5, what every region takes

A reply names no model: `EmbeddingReply.model` is "" and who asked knows it. Vectors come as the
provider gives them; shortened ones are not of length 1 there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.errors import RequestError, shown
from headrace.protocol.dialects.float_vectors import packed
from headrace.protocol.dialects.gemini.place import GeminiApi, Place
from headrace.protocol.dialects.gemini.reply.failures import read_failure
from headrace.protocol.dialects.gemini.values import DIALECT
from headrace.protocol.dialects.json_values import encoded, mapping, objects, read_object
from headrace.protocol.dialects.token_count import as_tokens, summed
from headrace.protocol.neutral.dialect import DamagedReplyError, EncodedRequest, Headers
from headrace.protocol.neutral.embedding import EmbeddingCall, EmbeddingExchange, EmbeddingReply
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.usage import TokenUsage

_MOST_TEXTS, _MOST_TEXTS_PREDICTED = 100, 5
_HEADERS = {"content-type": "application/json"}
# Ours to pass on when a Gemini client said so.
_OWN = ("title", "autoTruncate")

# Google's names, and what Cohere and people call the same.
_TASKS = {
    "query": "RETRIEVAL_QUERY",
    "search_query": "RETRIEVAL_QUERY",
    "retrieval_query": "RETRIEVAL_QUERY",
    "document": "RETRIEVAL_DOCUMENT",
    "search_document": "RETRIEVAL_DOCUMENT",
    "retrieval_document": "RETRIEVAL_DOCUMENT",
    "similarity": "SEMANTIC_SIMILARITY",
    "semantic_similarity": "SEMANTIC_SIMILARITY",
    "classification": "CLASSIFICATION",
    "clustering": "CLUSTERING",
    "question_answering": "QUESTION_ANSWERING",
    "fact_verification": "FACT_VERIFICATION",
    "code_retrieval_query": "CODE_RETRIEVAL_QUERY",
}


class GeminiEmbeddings(msgspec.Struct, frozen=True, kw_only=True):
    """Embeddings of Gemini models."""

    place: Place = GeminiApi()
    """The Gemini API, or Vertex AI with project and location."""

    @property
    def name(self) -> str:
        """The dialect's name."""
        return DIALECT

    def write_embeddings(self, call: EmbeddingCall, model: str) -> EmbeddingExchange:
        """The requests, as many as needed; raises RequestError for token ids or an empty input."""
        texts = _texts(call)
        task, dropped = _task(call, model)
        own = {name: call.extra[name] for name in _OWN if name in call.extra}
        if call.dialect != DIALECT:
            own = {}
        dropped += [f"extra.{name}" for name in call.extra if name not in own]
        if call.user is not None:
            dropped.append("user")
        if isinstance(self.place, GeminiApi):
            bodies = [
                _batch(group, call, model, task, own) for group in _groups(texts, _MOST_TEXTS)
            ]
            action = "batchEmbedContents"
        elif _has_task_in_text(model):  # the newest, which Vertex AI does not serve by predict
            bodies = [_embedding(text, call, task, own) for text in texts]
            action = "embedContent"
        else:
            size = 1 if _plain(model).startswith("gemini-") else _MOST_TEXTS_PREDICTED
            bodies = [_prediction(group, call, task, own) for group in _groups(texts, size)]
            action = "predict"
        path = self.place.path(model, action)
        return EmbeddingExchange(
            tuple(EncodedRequest(path, _HEADERS, encoded(body), tuple(dropped)) for body in bodies)
        )

    def read_embeddings(self, bodies: tuple[bytes, ...]) -> EmbeddingReply:
        """The vectors of all replies in order; raises DamagedReplyError if they are none."""
        vectors: list[bytes] = []
        counts: list[int | None] = []
        for body in bodies:
            reply = read_object(body)
            found, told = _vectors(reply)
            if not found:
                raise DamagedReplyError("the reply holds no embeddings")
            vectors += [_packed(vector) for vector in found]
            counts.append(told)
        tokens = summed(counts)
        usage = None if tokens is None else TokenUsage(input_tokens=tokens)
        return EmbeddingReply(model="", vectors=tuple(vectors), usage=usage)

    def read_failure(self, status: int, headers: Headers, body: bytes) -> Failure:
        """As for a chat."""
        return read_failure(status, headers, body)


def _texts(call: EmbeddingCall) -> list[str]:
    texts: list[str] = []
    for at, entry in enumerate(call.inputs):
        if not isinstance(entry, str):
            raise RequestError(
                f"input[{at}] is a list of token ids; Gemini embeds only text: send the text",
                param="input",
                code="unsupported_input",
            )
        texts.append(entry)
    if not texts:
        raise RequestError("input: is empty; send at least one text", param="input")
    return texts


def _task(call: EmbeddingCall, model: str) -> tuple[str | None, list[str]]:
    if call.task is None:
        return None, []
    task = _TASKS.get(call.task.lower())
    if task is None:
        raise RequestError(
            f"task {shown(call.task)} is not one of {', '.join(sorted(_TASKS))}", param="task"
        )
    # It is told in the text there ("task: ... | query: ..."), which is not ours to change.
    return (None, ["task"]) if _has_task_in_text(model) else (task, [])


def _batch(
    texts: list[str], call: EmbeddingCall, model: str, task: str | None, own: dict[str, Any]
) -> dict[str, Any]:
    name = model if "/" in model else f"models/{model}"
    return {"requests": [{"model": name, **_embedding(text, call, task, own)} for text in texts]}


def _embedding(
    text: str, call: EmbeddingCall, task: str | None, own: dict[str, Any]
) -> dict[str, Any]:
    body: dict[str, Any] = {"content": {"parts": [{"text": text}]}, **own}
    if task is not None:
        body["taskType"] = task
    if call.dimensions is not None:
        body["outputDimensionality"] = call.dimensions
    return body


def _prediction(
    texts: list[str], call: EmbeddingCall, task: str | None, own: dict[str, Any]
) -> dict[str, Any]:
    beside: dict[str, Any] = {} if task is None else {"task_type": task}
    if "title" in own:
        beside["title"] = own["title"]
    body: dict[str, Any] = {"instances": [{"content": text, **beside} for text in texts]}
    parameters: dict[str, Any] = {}
    if call.dimensions is not None:
        parameters["outputDimensionality"] = call.dimensions
    if "autoTruncate" in own:
        parameters["autoTruncate"] = own["autoTruncate"]
    if parameters:
        body["parameters"] = parameters
    return body


def _vectors(reply: dict[str, Any]) -> tuple[list[Any], int | None]:
    """The lists of numbers and the tokens they took, of any of the three methods."""
    if "predictions" in reply:
        held = [
            mapping(prediction.get("embeddings")) for prediction in objects(reply["predictions"])
        ]
        counts = [mapping(embedding.get("statistics")).get("token_count") for embedding in held]
        tokens = summed(as_tokens(count, or_text=True) for count in counts)
        return [embedding.get("values") for embedding in held], tokens
    if "embedding" in reply:
        found = [mapping(reply["embedding"]).get("values")]
    else:
        found = [embedding.get("values") for embedding in objects(reply.get("embeddings"))]
    told = mapping(reply.get("usageMetadata")).get("promptTokenCount")
    return found, as_tokens(told, or_text=True)


def _packed(values: Any) -> bytes:
    if not isinstance(values, list) or not values:
        raise DamagedReplyError("an embedding is not a list of numbers")
    return packed(values)


def _groups(texts: list[str], size: int) -> list[list[str]]:
    return [texts[at : at + size] for at in range(0, len(texts), size)]


def _plain(model: str) -> str:
    return model.rpartition("/")[2].lower()


def _has_task_in_text(model: str) -> bool:
    name = _plain(model)
    return name.startswith("gemini-embedding-") and not name.endswith("-001")
