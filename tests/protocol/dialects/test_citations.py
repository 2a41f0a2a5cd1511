"""What a model cites reaches clients of every dialect that has a form for it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from headrace.protocol.dialects import (
    anthropic,
    bedrock,
    cohere,
    gemini,
    mistral,
    ollama,
    openai_chat,
    openai_responses,
)
from headrace.protocol.dialects.anthropic.reply.citations import write_citations
from headrace.protocol.dialects.openai_chat.reply.citations import cited_pages
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.collect import collected, replayed
from headrace.protocol.neutral.dialect import ReplySide
from headrace.protocol.neutral.event import Event
from headrace.protocol.neutral.part import Text
from headrace.protocol.neutral.reply import ChatReply
from tests.protocol.dialects.anthropic.test_stream_reader import block, start, stop
from tests.protocol.dialects.bedrock import frames
from tests.protocol.dialects.cohere import samples as cohere_samples
from tests.protocol.dialects.mistral import samples as mistral_samples
from tests.protocol.dialects.openai_chat.samples import sse
from tests.protocol.dialects.openai_responses import samples as responses_samples
from tests.protocol.neutral.streams import assert_grammar, read_at_every_cut

CALL = ChatCall(dialect="openai-chat", model="m", messages=())
CHAT = openai_chat.OpenAIChatProvider(openai_chat.PRESETS["generic"])
URL, TITLE, QUOTED = "https://example.org/tea", "On tea", "Tea is a leaf."
TEXT = "Grüße: tea is a leaf [1]."
SPAN = (7, 20)
BYTES = (9, 22)
PAGE = Citation(url=URL, title=TITLE, quoted=QUOTED)


def read(side: ReplySide, body: dict[str, Any], stream: bytes) -> ChatReply:
    """The reply, after asserting that its stream says the same and that no cut changes it."""
    whole = side.read_reply(json.dumps(body).encode())
    events = read_at_every_cut(lambda: side.stream_reader(CALL), stream)
    assert_grammar(events)
    assert texts(collected(side.name, events)) == texts(whole)
    assert cited(collected(side.name, events)) == cited(whole)
    return whole


def texts(reply: ChatReply) -> str:
    return "".join(part.text for part in reply.choices[0].parts if isinstance(part, Text))


def cited(reply: ChatReply) -> tuple[Citation, ...]:
    parts = reply.choices[0].parts
    return tuple(one for part in parts if isinstance(part, Text) for one in part.citations)


def perplexity() -> ChatReply:
    result = {"url": URL, "title": TITLE, "snippet": QUOTED}
    urls = [URL, "https://example.org/other"]
    top = {"id": "r", "model": "m", "citations": urls, "search_results": [result]}
    message = {"role": "assistant", "content": TEXT}
    body = {**top, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    chunks = [
        {**top, "object": "chat.completion.chunk",
         "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in (({"role": "assistant", "content": TEXT[:9]}, None),
                              ({"content": TEXT[9:22]}, None), ({"content": TEXT[22:]}, None),
                              ({}, "stop"))
    ]  # fmt: skip
    return read(CHAT, body, sse(*chunks))


def chat() -> ChatReply:
    fields = {"url": URL, "title": TITLE, "content": QUOTED, "start_index": 7, "end_index": 20}
    note = {"type": "url_citation", "url_citation": fields}
    message = {"role": "assistant", "content": TEXT, "annotations": [note]}
    body = {"id": "r", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    chunks = [
        {"id": "r", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in (({"content": TEXT}, None), ({"annotations": [note]}, None),
                              ({}, "stop"))
    ]  # fmt: skip
    return read(CHAT, body, sse(*chunks))


def responses(annotation: dict[str, Any]) -> ChatReply:
    item = responses_samples.message(TEXT)
    part = {**item["content"][0], "annotations": [annotation]}
    item = {**item, "content": [part]}
    place = {"output_index": 0, "content_index": 0}
    stream = responses_samples.sse(
        {"type": "response.created", "response": responses_samples.response(status="in_progress")},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.output_text.delta", **place, "delta": TEXT},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": responses_samples.response(output=[item])},
    )
    return read(openai_responses.PROVIDER, responses_samples.response(output=[item]), stream)


def messages(citation: dict[str, Any]) -> ChatReply:
    said = {"type": "text", "text": TEXT, "citations": [citation]}
    body = {"id": "r", "content": [said], "stop_reason": "end_turn"}
    stream = start() + block(
        0,
        {"type": "text", "text": "", "citations": []},
        {"type": "citations_delta", "citation": citation},
        {"type": "text_delta", "text": TEXT},
    ) + stop()  # fmt: skip
    return read(anthropic.PROVIDER, body, stream)


def cohere_reply() -> ChatReply:
    document = {"id": "doc:0", "title": TITLE, "text": QUOTED}
    citation = {"start": SPAN[0], "end": SPAN[1], "text": TEXT[slice(*SPAN)],
                "sources": [{"type": "document", "id": "doc:0", "document": document}]}  # fmt: skip
    message = {"role": "assistant", "content": [{"type": "text", "text": TEXT}],
               "citations": [citation]}  # fmt: skip
    delta = cohere_samples.delta
    stream = cohere_samples.stream(
        {"type": "message-start", "id": "r"},
        delta("content-start", 0, content={"type": "text", "text": ""}),
        delta("content-delta", 0, content={"text": TEXT}),
        {"type": "content-end", "index": 0},
        delta("citation-start", 0, citations=citation),
        {"type": "citation-end", "index": 0},
        cohere_samples.message_end(),
    )
    body = {"id": "r", "message": message, "finish_reason": "COMPLETE"}
    return read(cohere.PROVIDER, body, stream)


def bedrock_reply() -> ChatReply:
    citation = {"title": TITLE, "sourceContent": [{"text": QUOTED}],
                "location": {"documentChar": {"documentIndex": 2}}}  # fmt: skip
    content = [{"citationsContent": {"content": [{"text": TEXT}], "citations": [citation]}}]
    message = {"role": "assistant", "content": content}
    body = {"output": {"message": message}, "stopReason": "end_turn"}
    stream = frames.stream(
        frames.START,
        frames.delta(0, {"text": TEXT}),
        frames.delta(0, {"citation": citation}),
        frames.stop(0),
        *frames.ended(),
    )
    return read(bedrock.PROVIDER, body, stream)


def gemini_reply(*, signed: bool = False) -> ChatReply:
    grounding = {
        "groundingChunks": [{"web": {"uri": URL, "title": TITLE}}],
        "groundingSupports": [
            {"segment": {"startIndex": BYTES[0], "endIndex": BYTES[1], "text": TEXT[7:20]},
             "groundingChunkIndices": [0]},
        ],
    }  # fmt: skip
    end = {"finishReason": "STOP", "groundingMetadata": grounding}
    body = {"responseId": "r", "candidates": [{"content": {"parts": [{"text": TEXT}]}, **end}]}
    last = [{"text": "", "thoughtSignature": "c2ln"}] if signed else [{"text": TEXT[9:]}]
    pieces = [
        {"responseId": "r", "candidates": [{"content": {"parts": parts}, **more}]}
        for parts, more in (([{"text": TEXT if signed else TEXT[:9]}], {"groundingMetadata": {}}),
                            (last, end))
    ]  # fmt: skip
    stream = b"".join(b"data: " + json.dumps(piece).encode() + b"\r\n\r\n" for piece in pieces)
    return read(gemini.PROVIDER, body, stream)


def mistral_reply() -> ChatReply:
    content = [
        {"type": "text", "text": TEXT[:20]},
        {"type": "reference", "reference_ids": [1]},
        {"type": "text", "text": TEXT[20:]},
    ]
    stream = mistral_samples.stream(
        mistral_samples.chunk({"role": "assistant", "content": TEXT[:9]}),
        mistral_samples.chunk({"content": [{"type": "text", "text": TEXT[9:20]}, content[1]]}),
        mistral_samples.chunk({"content": TEXT[20:]}),
        mistral_samples.chunk({"content": ""}, "stop"),
    )
    body = json.loads(mistral_samples.reply({"role": "assistant", "content": content}))
    return read(mistral.PROVIDER, body, stream + mistral_samples.DONE)


FILE = {"type": "file_citation", "file_id": "file-1", "filename": "tea.txt", "index": 20}
IN_DOCUMENT = {"type": "char_location", "cited_text": QUOTED, "document_index": 1,
               "document_title": TITLE, "start_char_index": 0, "end_char_index": 14}  # fmt: skip
FOUND = {"type": "web_search_result_location", "url": URL, "title": TITLE, "cited_text": QUOTED,
         "encrypted_index": "x"}  # fmt: skip
URL_NOTE = {"type": "url_citation", "url": URL, "title": TITLE, "start_index": 7, "end_index": 20}
REPLIES = {
    "perplexity": perplexity,
    "chat": chat,
    "responses url": lambda: responses(URL_NOTE),
    "responses file": lambda: responses(FILE),
    "anthropic web": lambda: messages(FOUND),
    "anthropic document": lambda: messages(IN_DOCUMENT),
    "cohere": cohere_reply,
    "bedrock": bedrock_reply,
    "mistral": mistral_reply,
    "gemini": gemini_reply,
    "gemini signed": lambda: gemini_reply(signed=True),
}
HERE = {"start": SPAN[0], "end": SPAN[1]}
NEUTRAL = {
    "perplexity": (
        Citation(start=21, end=24, url=URL, title=TITLE, quoted=QUOTED),
        Citation(url="https://example.org/other"),
    ),
    "chat": (Citation(**HERE, url=URL, title=TITLE, quoted=QUOTED),),
    "responses url": (Citation(**HERE, url=URL, title=TITLE),),
    "responses file": (Citation(start=20, end=20, file_id="file-1", title="tea.txt"),),
    "anthropic web": (PAGE,),
    "anthropic document": (Citation(document="1", title=TITLE, quoted=QUOTED),),
    "cohere": (Citation(**HERE, document="doc:0", title=TITLE, quoted=QUOTED),),
    "bedrock": (Citation(document="2", title=TITLE, quoted=QUOTED),),
    "mistral": (Citation(start=0, end=20, document="1"),),
    "gemini": (Citation(**HERE, url=URL, title=TITLE),),
    "gemini signed": (Citation(**HERE, url=URL, title=TITLE),),
}
WEB = [name for name, citations in NEUTRAL.items() if citations[0].url]


@cache
def reply_of(name: str) -> ChatReply:
    return REPLIES[name]()


def events_of(out: bytes) -> list[dict[str, Any]]:
    lines = [line.removeprefix(b"data: ") for line in out.splitlines()]
    return [json.loads(line) for line in lines if line.startswith(b"{")]


def streamed(side: Any, events: list[Event]) -> list[dict[str, Any]]:
    writer = side.stream_writer(CALL)
    return events_of(b"".join(map(writer.write, events)))


@pytest.mark.parametrize("name", REPLIES)
def test_citations_are_read(name: str) -> None:
    reply = reply_of(name)
    assert texts(reply) == TEXT
    assert cited(reply) == NEUTRAL[name]


@pytest.mark.parametrize("name", REPLIES)
def test_chat_clients_get_pages(name: str) -> None:
    reply = reply_of(name)
    message = json.loads(openai_chat.CLIENT.write_reply(reply, CALL))["choices"][0]["message"]
    assert message["content"] == TEXT
    chunks = streamed(openai_chat.CLIENT, list(replayed(reply)))
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    notes = [note for delta in deltas for note in delta.get("annotations", ())]
    if name == "perplexity":  # a chat already: its lists go on as they are
        assert json.loads(openai_chat.CLIENT.write_reply(reply, CALL))["citations"]
        return
    assert notes == message.get("annotations", [])
    assert bool(notes) == (name in WEB)
    for note in notes:
        inner = note["url_citation"]
        assert (inner["url"], inner["title"]) == (URL, TITLE)
        span = HERE["start"], HERE["end"]
        assert (inner["start_index"], inner["end_index"]) in (span, (0, len(TEXT)))


@pytest.mark.parametrize("name", REPLIES)
def test_responses_clients_get_all(name: str) -> None:
    reply = reply_of(name)
    (item,) = json.loads(openai_responses.CLIENT.write_reply(reply, CALL))["output"]
    (part,) = item["content"]
    assert len(part["annotations"]) == len(NEUTRAL[name])
    note = part["annotations"][0]
    if name in WEB:
        assert (note["type"], note["url"], note["title"]) == ("url_citation", URL, TITLE)
        assert 0 <= note["start_index"] < note["end_index"] <= len(TEXT)
    else:
        assert (note["type"], note["filename"]) == (
            "file_citation",
            NEUTRAL[name][0].title or NEUTRAL[name][0].document,
        )
        assert note["file_id"] == (NEUTRAL[name][0].file_id or NEUTRAL[name][0].document)
    events = streamed(openai_responses.CLIENT, list(replayed(reply)))
    told = [one["annotation"] for one in events if one["type"].endswith("annotation.added")]
    assert told == part["annotations"]


@pytest.mark.parametrize("name", REPLIES)
def test_anthropic_clients_get_all(name: str) -> None:
    reply = reply_of(name)
    (said,) = json.loads(anthropic.CLIENT.write_reply(reply, CALL))["content"]
    assert said["text"] == TEXT
    citations = said["citations"]
    assert len(citations) == len(NEUTRAL[name])
    first = citations[0]
    expected = NEUTRAL[name][0]
    assert first["cited_text"] == (expected.quoted or "")
    if name in WEB:
        assert (first["type"], first["url"]) == ("web_search_result_location", URL)
        assert (first["title"], "encrypted_index" in first) == (TITLE, True)
    else:
        assert (first["type"], first["document_title"]) == (
            "char_location",
            expected.title or expected.document,
        )
        index = expected.document or ""
        assert first["document_index"] == (int(index) if index.isdigit() else 0)
    events = streamed(anthropic.CLIENT, list(replayed(reply)))
    deltas = [one["delta"] for one in events if one["type"] == "content_block_delta"]
    assert [one["citation"] for one in deltas if one["type"] == "citations_delta"] == citations


def test_spans_count_from_the_beginning_of_the_message() -> None:
    """A chat has one text where Anthropic's search has a block for each sentence."""
    blocks = [
        {"type": "text", "text": "Hot "},
        {"type": "text", "text": TEXT, "citations": [FOUND]},
    ]
    body = {"id": "r", "content": blocks, "stop_reason": "end_turn"}
    reply = anthropic.PROVIDER.read_reply(json.dumps(body).encode())
    message = json.loads(openai_chat.CLIENT.write_reply(reply, CALL))["choices"][0]["message"]
    (note,) = message["annotations"]
    inner = note["url_citation"]
    assert (inner["start_index"], inner["end_index"]) == (4, 4 + len(TEXT))
    chunks = streamed(openai_chat.CLIENT, list(replayed(reply)))
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert [delta["annotations"] for delta in deltas if "annotations" in delta] == [[note]]


def test_marks_name_pages_by_their_number() -> None:
    pages = tuple(Citation(url=f"https://example.org/{number}") for number in range(3))
    found = cited_pages("a [2][1], b [2] [0] [4] [x]", pages)
    spans = [(one.start, one.end, one.url) for one in found]
    assert spans == [
        (2, 5, pages[1].url),
        (5, 8, pages[0].url),
        (12, 15, pages[1].url),
        (None, None, pages[2].url),
    ]
    assert cited_pages("a [1]", ()) == ()


def test_pages_are_not_multiplied_by_texts() -> None:
    """A hostile provider must not fill the memory with 10,000 pages of each of 10,000 texts."""
    urls = [f"https://example.org/{number}" for number in range(10_000)]
    content = [{"type": "text", "text": "a [1]"} for _ in range(10_000)]
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"id": "r", "citations": urls, "choices": [choice]}
    reply = CHAT.read_reply(json.dumps(body).encode())
    assert len(cited(reply)) == 20_000 - 1
    deltas = [{"content": "a [1]"}, {"reasoning_content": "b"}] * 100
    chunks = [
        {"id": "r", "citations": urls[:1000], "choices": [{"index": 0, "delta": delta}]}
        for delta in deltas
    ]
    end = {"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    events = [*(reader := CHAT.stream_reader(CALL)).feed(sse(*chunks, end)), *reader.end()]
    assert len(cited(collected("openai-chat", events))) == 1000 + 99


def test_many_cited_texts_take_no_more_than_their_number() -> None:
    """Lists of annotations that were copied for each text took minutes."""
    said = {"type": "text", "text": "a", "citations": [FOUND]}
    body = {"id": "r", "content": [said] * 5_000, "stop_reason": "end_turn"}
    reply = anthropic.PROVIDER.read_reply(json.dumps(body).encode())
    first = json.loads(openai_chat.CLIENT.write_reply(reply, CALL))
    (choice,) = first["choices"]
    notes = choice["message"]["annotations"]
    places = [note["url_citation"]["start_index"] for note in notes]
    assert places == list(range(5_000))
    assert json.loads(openai_chat.CLIENT.write_reply(reply, CALL)) == first


def test_what_is_not_a_citation_is_passed_by() -> None:
    notes: list[Any] = [1, {}, {"type": "url_citation"}, {"type": "url_citation", "url": 5},
                        {"type": "file_citation"}, {"type": "odd", "url": URL}]  # fmt: skip
    reply = responses_samples.message(TEXT)
    reply["content"][0]["annotations"] = notes
    body = responses_samples.response(output=[reply])
    assert cited(openai_responses.PROVIDER.read_reply(json.dumps(body).encode())) == ()
    backwards = {**URL_NOTE, "start_index": 9, "end_index": 3}
    (citation,) = cited(responses(backwards))
    assert (citation.start, citation.end) == (None, None)


def test_an_id_of_thousands_of_digits_is_not_a_number_of_a_document() -> None:
    for document, number in (("7", 7), ("x", 0), ("٧", 0), ("9" * 30, 0), ("9" * 5000, 0)):
        (written,) = write_citations([Citation(document=document)])
        assert (written["document_index"], written["document_title"]) == (number, document)


def test_ollama_has_no_form_for_them() -> None:
    reply = json.loads(ollama.CLIENT.write_reply(chat(), CALL))
    assert reply["message"] == {"role": "assistant", "content": TEXT}
    assert ollama.CLIENT.cited_sources == frozenset()
