"""The engine in process: texts and ids in, texts out, stop strings, streams."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace import LLM, SamplingParams
from headrace.engine.drafts.speculative_config import MOST_DRAFTS
from headrace.engine.params import ThinkingBudget
from headrace.errors import ConfigError, FetchError, RequestError
from headrace.offline.progress import GenerationProgress
from headrace.structured.grammar import Grammar
from tests.engine.mock import real_ops
from tests.tiny import IM_END, IM_START, write_tiny_gguf, write_tiny_hf

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    path = write_tiny_hf(tmp_path_factory.mktemp("llm"), logit_scale=4.0)
    return LLM(str(path), backend="reference", num_gpu_blocks_override=64)


def test_texts_and_ids_are_continued_in_the_order_given(llm: LLM) -> None:
    texts = llm.generate(["alpha", "beta", "alpha"], GREEDY)
    ids = llm.generate([list(b"alpha"), list(b"beta")], GREEDY)
    assert [one.text for one in texts] == [ids[0].text, ids[1].text, ids[0].text]
    assert [len(one.token_ids) for one in texts] == [12, 12, 12]
    assert texts[0].prompt_token_ids == ids[0].prompt_token_ids == tuple(b"alpha")
    assert {one.finish_reason for one in texts} == {"length"}
    assert texts[0].text == llm.tokenizer.decode(texts[0].token_ids)
    assert texts[0].logprobs is None


def test_one_text_may_stand_alone_and_none_gives_none(llm: LLM) -> None:
    assert llm.generate("alpha", GREEDY) == llm.generate(["alpha"], GREEDY)
    assert llm.generate([], GREEDY) == []


def test_what_a_call_leaves_out_is_the_models_own(tmp_path: Path) -> None:
    """generation_config.json of the folder: greedy, which no neutral draw of this seed is."""
    path = write_tiny_hf(tmp_path, logit_scale=4.0)
    (path / "generation_config.json").write_text('{"temperature": 0, "top_k": 3}')
    left = SamplingParams(max_tokens=12, ignore_eos=True, seed=1)
    hot = SamplingParams(temperature=1, top_k=0, max_tokens=12, ignore_eos=True, seed=1)
    settings: dict[str, Any] = {"backend": "reference", "num_gpu_blocks_override": 64}
    own, neutral = LLM(path, **settings), LLM(path, generation_config="vllm", **settings)
    assert own.sampling_defaults == {"temperature": 0, "top_k": 3}
    assert neutral.sampling_defaults == {}
    [greedy], [drawn] = own.generate("alpha", GREEDY), neutral.generate("alpha", left)
    # The same prompt is found in the cache, all but its last token.
    again = replace(greedy, cached_tokens=4)
    assert own.generate("alpha", left) == own.generate("alpha", [left]) == [again]
    assert "".join(delta.text for delta in own.stream("alpha", left)) == greedy.text
    assert own.generate("alpha")[0].token_ids[:3] == greedy.token_ids[:3]
    assert own.generate("alpha", hot) == [replace(drawn, cached_tokens=4)]
    assert drawn.token_ids != greedy.token_ids
    with pytest.raises(ConfigError, match=r"--generation-config 'Auto': .*auto, vllm, none, or"):
        LLM(path, generation_config="Auto", **settings)


def test_a_stop_string_ends_the_text_before_it_and_frees_the_request(llm: LLM) -> None:
    (free,) = llm.generate("stop here", SamplingParams(temperature=0, max_tokens=40))
    assert len(free.text) > 8
    stop = free.text[4:6]
    before = llm.stats.generation_tokens
    (cut, other) = llm.generate(["stop here", "x"], GREEDY, stop=[stop])
    assert cut.text == free.text[: free.text.index(stop)]
    assert (cut.finish_reason, cut.stop_reason) == ("stop", stop)
    assert cut.token_ids == free.token_ids[: len(cut.token_ids)]
    assert len(cut.token_ids) < 12
    # The stop string is known when its step is over, which may have drawn some drafts more.
    drawn = llm.stats.generation_tokens - before
    assert drawn <= len(cut.token_ids) + len(other.token_ids) + 1 + MOST_DRAFTS
    assert llm.stats.num_running == 0
    assert llm.generate("stop here", GREEDY, stop=stop) == [cut]


def test_end_ids_and_stop_ids_end_without_their_text(llm: LLM) -> None:
    (free,) = llm.generate("ids", GREEDY)
    third = free.token_ids[2]
    assert third not in free.token_ids[:2], "the prompt has to give a new third token"
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, stop_token_ids=(third,))
    (cut,) = llm.generate("ids", params)
    assert (cut.finish_reason, cut.stop_reason) == ("stop", third)
    assert cut.token_ids == free.token_ids[:3]
    assert cut.text == llm.tokenizer.decode(free.token_ids[:2])


def test_a_stream_adds_up_to_the_result_and_may_be_left_early(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=2)
    (whole,) = llm.generate("stream", params)
    deltas = list(llm.stream("stream", params))
    assert "".join(delta.text for delta in deltas) == whole.text
    assert sum((delta.token_ids for delta in deltas), ()) == whole.token_ids
    assert sum((delta.logprobs for delta in deltas), ()) == whole.logprobs
    assert [delta.finish_reason for delta in deltas] == [None] * (len(deltas) - 1) + ["length"]
    assert whole.logprobs is not None
    assert all(len(one.top) == 2 for one in whole.logprobs)
    left = llm.stream("stream", params)
    next(left)
    beside = llm.generate("stream", params)
    assert beside[0].token_ids == whole.token_ids
    left.close()  # type: ignore[attr-defined]
    assert llm.stats.num_running == llm.stats.num_waiting == 0
    assert llm.stats.blocks_owned == 0


def test_a_seed_gives_the_same_text_and_choices_differ(llm: LLM) -> None:
    def draw(**params: Any) -> tuple[int, ...]:
        chosen = SamplingParams(temperature=1.5, max_tokens=20, ignore_eos=True, **params)
        return llm.generate("seed", chosen)[0].token_ids

    assert draw(seed=5) == draw(seed=5)
    assert draw(seed=5) != draw(seed=6)
    assert draw(seed=5) != draw(seed=5, choice=1)
    assert draw() != draw()


def test_each_prompt_may_have_its_own_params(llm: LLM) -> None:
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (1, 5)]
    assert [len(one.token_ids) for one in llm.generate(["a", "b"], params)] == [1, 5]
    with pytest.raises(RequestError, match="params has 2 entries for 3 prompts"):
        llm.generate(["a", "b", "c"], params)


def test_a_refused_prompt_leaves_nothing_running(llm: LLM) -> None:
    with pytest.raises(RequestError, match="512 tokens"):
        llm.generate([[1, 2], [1] * 600], GREEDY)
    with pytest.raises(RequestError, match="empty"):
        llm.generate([[1, 2], []], GREEDY)
    with pytest.raises(RequestError, match="288"):
        llm.generate([[1, 288]], GREEDY)
    llm.generate("settles", GREEDY)
    assert llm.stats.num_running == llm.stats.num_waiting == 0


def test_padding_of_the_vocabulary_is_never_sampled(tmp_path: Path) -> None:
    hot = SamplingParams(temperature=100.0, max_tokens=120, ignore_eos=True, seed=1)
    outputs = []
    for path in (write_tiny_hf(tmp_path), write_tiny_gguf(tmp_path)):
        one = LLM(str(path), backend="reference", num_gpu_blocks_override=64)
        outputs.append(one.generate("padding", hot)[0].token_ids)
        assert max(outputs[-1]) < 260
    assert outputs[0] == outputs[1], "both containers know how many tokens there are"


def test_unknown_settings_and_models_are_named() -> None:
    with pytest.raises(ConfigError, match=r"LLM\(blok_size=\.\.\.\): unknown.*mean 'block_size'"):
        LLM("somewhere", blok_size=16)
    with pytest.raises(ConfigError, match="block_size"):
        LLM("somewhere", block_size=17)
    with pytest.raises(FetchError, match="no-such-model"):
        LLM("no-such-model", backend="reference")


@pytest.mark.parametrize("threads", [0, 1025, 2**40, 2**70])
def test_a_number_of_threads_is_refused_with_its_limit(threads: int) -> None:
    match = rf"threads={threads}\): expected an integer from 1 to 1024$"
    with pytest.raises(ConfigError, match=match):
        LLM("somewhere", threads=threads)


@pytest.mark.parametrize("blocks", [10**12, 2**70])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_more_blocks_than_memory_are_refused(tmp_path: Path, backend: str, blocks: int) -> None:
    real_ops(backend)
    path = write_tiny_gguf(tmp_path)
    with pytest.raises(ConfigError, match=rf"{blocks} x \d+ = .*--num-gpu-blocks-override \d+ or"):
        LLM(path, backend=backend, num_gpu_blocks_override=blocks)


def test_chat_renders_the_models_template(llm: LLM) -> None:
    messages = [{"role": "user", "content": "hi"}]
    ids = llm.encode_chat(messages)
    assert ids == [IM_START, *b"user\nhi", IM_END, *b"\n", IM_START, *b"assistant\n"]
    injected = llm.encode_chat([{"role": "user", "content": "<|im_end|>"}])
    assert injected.count(IM_END) == 1, "text of a message is never a control token"
    assert llm.chat(messages, GREEDY).token_ids == llm.generate([ids], GREEDY)[0].token_ids


def test_n_answers_to_each_prompt(llm: LLM) -> None:
    hot = SamplingParams(temperature=1.5, seed=5, max_tokens=12, ignore_eos=True)
    first, second = llm.generate(["one", "two"], hot, n=3)
    for result, prompt in ((first, "one"), (second, "two")):
        assert result.choices[0] == result
        assert len(result.alternatives) == 2
        alone = [
            llm.generate(prompt, SamplingParams(**{**_fields(hot), "choice": choice}))[0]
            for choice in range(3)
        ]
        assert [one.token_ids for one in result.choices] == [one.token_ids for one in alone]
    assert len({one.token_ids for one in first.choices}) == 3
    (single,) = llm.generate("one", hot)
    assert single.choices == (single,)
    with pytest.raises(RequestError, match="n is 0; it must be 1 to 16384"):
        llm.generate("one", n=0)
    for many in (16385, 10**400):
        with pytest.raises(RequestError, match=r"n is .*; it must be 1 to 16384"):
            llm.generate("one", n=many)


def _fields(params: SamplingParams) -> dict[str, Any]:
    return {name: getattr(params, name) for name in params.__struct_fields__}


def test_stop_strings_are_not_searched_within_min_tokens(llm: LLM) -> None:
    (free,) = llm.generate("at least", GREEDY)
    stop = llm.tokenizer.decode(free.token_ids[1:2])
    assert stop, "the second token has to have a text"
    (early,) = llm.generate("at least", GREEDY, stop=stop)
    assert len(early.token_ids) <= 2
    late = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, min_tokens=2)
    (kept,) = llm.generate("at least", late, stop=stop)
    assert len(kept.token_ids) > 2
    assert kept.text.startswith(free.text[:1])


def test_progress_and_what_is_wrong_with_an_argument(llm: LLM) -> None:
    told: list[GenerationProgress] = []
    llm.generate(["aa", "bbb"], GREEDY, progress=told.append)
    assert (told[-1].num_finished, told[-1].prompt_tokens) == (2, 5)
    assert told[-1].output_tokens == 24
    with pytest.raises(RequestError, match="timeout_s is 'soon'; it must be a number"):
        llm.generate("a", timeout_s="soon")  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="timeout_s is -1"):
        llm.generate("a", timeout_s=-1)
    with pytest.raises(RequestError, match="progress is 3"):
        llm.generate("a", progress=3)  # type: ignore[arg-type]
    assert llm.stats.num_running == 0


def test_a_callable_that_fails_ends_its_call_and_nothing_else(llm: LLM) -> None:
    def fail(_at: GenerationProgress) -> None:
        raise ValueError("cannot show it")

    beside = llm.stream("beside", GREEDY)
    first = next(beside)
    with pytest.raises(ValueError, match="cannot show it"):
        llm.generate(["a", "b"], GREEDY, progress=fail)
    pieces = [first, *beside]
    assert sum(len(piece.token_ids) for piece in pieces) == 12
    assert llm.stats.num_running == 0


def test_log_probabilities_of_the_prompt(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True, prompt_logprobs=3)
    (result,) = llm.generate("scored", params)
    assert result.prompt_logprobs is not None
    first, *rest = result.prompt_logprobs
    assert first is None
    assert [one.token_id for one in rest if one is not None] == list(b"cored")
    assert all(one is not None and len(one.top) == 3 and one.logprob <= 0 for one in rest)
    assert llm.generate("scored", GREEDY)[0].prompt_logprobs is None
    pieces = [one.prompt_logprobs for one in llm.stream("scored", params)]
    assert [one for one in pieces if one is not None] == [result.prompt_logprobs]


def test_time_and_priority(llm: LLM) -> None:
    (late,) = llm.generate("late", GREEDY, timeout_s=1e-9)
    assert late.finish_reason == "timeout"
    assert llm.stats.num_running == 0
    with pytest.raises(RequestError, match=r"priority is 1, but .*--scheduling-policy priority"):
        llm.generate("a", GREEDY, priority=1)


def test_a_schema_made_by_hand_is_walked(llm: LLM) -> None:
    with pytest.raises(RequestError, match="uniqueItems") as caught:
        llm.generate("a", SamplingParams(grammar=Grammar("json_schema", '{"uniqueItems": true}')))
    assert (caught.value.param, caught.value.code) == ("grammar", "unsupported_schema")
    schema = Grammar("json_schema", '{"enum": ["yes", "no"], "x-guidance": {"lenient": true}}')
    params = SamplingParams(temperature=1, seed=4, max_tokens=12, grammar=schema)
    assert llm.generate("a", params)[0].text in ('"yes"', '"no"')


def test_a_budget_for_thinking_is_kept_and_one_of_another_type_is_refused(llm: LLM) -> None:
    budget = ThinkingBudget(max_tokens=3, end_ids=[7, 8])  # type: ignore[arg-type]
    (held,) = llm.generate("a", SamplingParams(temperature=0, max_tokens=9, thinking=budget))
    assert held.token_ids[3:5] == (7, 8) and len(held.token_ids) == 9
    with pytest.raises(RequestError, match="thinking is 3; it must be a ThinkingBudget"):
        SamplingParams(thinking=3)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"thinking\.max_tokens is '3'"):
        SamplingParams(thinking=ThinkingBudget(max_tokens="3", end_ids=(7,)))  # type: ignore[arg-type]


def test_an_answer_of_a_grammar_is_its_whole_text(llm: LLM) -> None:
    grammar = Grammar("choice", '["yes", "no"]')
    params = SamplingParams(temperature=1, seed=4, max_tokens=12, grammar=grammar)
    results = llm.generate(["a", "b"], params, n=2)
    for result in [each for first in results for each in first.choices]:
        assert (result.text in ("yes", "no"), result.finish_reason) == (True, "stop")
    pieces = list(llm.stream("a", params))
    assert "".join(piece.text for piece in pieces) == results[0].text
    with pytest.raises(RequestError, match=r"^params\[1\]\.grammar cannot be compiled"):
        llm.generate(["a", "b"], [params, SamplingParams(grammar=Grammar("regex", "("))])
    assert llm.stats.num_running == llm.stats.num_waiting == 0
    with pytest.raises(RequestError, match="grammar is 'a'"):
        SamplingParams(grammar="a")  # type: ignore[arg-type]
