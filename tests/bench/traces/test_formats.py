"""Traces of every known format: times to the nanosecond, and errors that say where."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.bench.traces.formats import FORMATS, detect, read_trace
from headrace.bench.traces.row import TraceRow
from headrace.errors import ConfigError

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
BURST = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
)


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_azure_2023_to_100_ns(tmp_path: Path) -> None:
    text = AZURE + "2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:46.6805907,396,109"
    trace = read_trace(written(tmp_path, text))
    assert trace.format_name == "azure"
    assert trace.rows == (
        TraceRow(at_ns=0, prompt_tokens=374, output_tokens=44),
        TraceRow(at_ns=700, prompt_tokens=396, output_tokens=109),
    )


def test_azure_2024_with_zones(tmp_path: Path) -> None:
    text = AZURE + (
        "2024-05-11 23:59:59.999999+00:00,1,2\n2024-05-12 02:00:00+02:00,3,4\n"
        "2024-05-12 00:00:01.25+00:00,5,6\n"
    )
    trace = read_trace(written(tmp_path, text))
    assert [row.at_ns for row in trace.rows] == [0, 1_000, 1_250_001_000]


@pytest.mark.parametrize(
    "text",
    [
        BURST + "19440110.0,a,43,GPT-4,906,446,1352,x\n19440161.25,b,2,ChatGPT,36,29,65,x\n",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "7,GPT-4,906,446,1352,x\n58.25,ChatGPT,36,29,65,x\n",
    ],
)
def test_both_layouts_of_burstgpt(tmp_path: Path, text: str) -> None:
    trace = read_trace(written(tmp_path, text))
    assert trace.format_name == "burstgpt"
    assert [(row.at_ns, row.prompt_tokens, row.output_tokens) for row in trace.rows] == [
        (0, 906, 446),
        (51_250_000_000, 36, 29),
    ]


def test_failed_requests_and_disorder_are_told(tmp_path: Path) -> None:
    rows = "9,a,1,m,10,0,10,x\n9,a,1,m,10,5,15,x\n8,a,1,m,11,5,16,x\n8,a,1,m,0,0,0,x\n"
    trace = read_trace(written(tmp_path, BURST + rows))
    assert [(row.at_ns, row.prompt_tokens) for row in trace.rows] == [(0, 11), (10**9, 10)]
    assert trace.notes == (
        "trace.csv: 2 of 4 rows skipped, with no tokens in prompt or answer",
        "trace.csv: rows were not in order of time and have been sorted",
    )


@pytest.mark.parametrize(
    ("text", "ns"),
    [("5", 5 * 10**9), ("5.8926549999999995", 5_892_655_000), ("1e-05", 10_000), ("3.", 3 * 10**9)],
)
def test_seconds_as_programs_print_them(tmp_path: Path, text: str, ns: int) -> None:
    head = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
    trace = read_trace(written(tmp_path, f"{head}0,1,1\n{text},1,1\n"))
    assert trace.duration_ns == ns


@pytest.mark.parametrize("text", ["-1", "nan", "1e999", "", "1:30", "inf"])
def test_seconds_that_are_none(tmp_path: Path, text: str) -> None:
    head = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
    with pytest.raises(ConfigError, match=r":2: arrived_at .*must be seconds"):
        read_trace(written(tmp_path, f"{head}{text},1,1\n"))


def test_parts(tmp_path: Path) -> None:
    rows = "".join(f"{at},0.5,{at + 1},1\n" for at in range(10))
    path = written(tmp_path, "arrived_at,pd,num_prefill_tokens,num_decode_tokens\n" + rows)
    assert len(read_trace(path).rows) == 10
    part = read_trace(path, skip=3, limit=2)
    assert [(row.at_ns, row.prompt_tokens) for row in part.rows] == [(0, 4), (10**9, 5)]
    assert len(read_trace(path, duration_s=4).rows) == 5
    assert read_trace(path, skip=3).digest != read_trace(path).digest == read_trace(path).digest
    for wrong in ({"skip": -1}, {"limit": 0}, {"duration_s": 0}, {"skip": 10}):
        with pytest.raises(ConfigError):
            read_trace(path, **wrong)  # type: ignore[arg-type]


def test_a_part_is_read_without_the_rest(tmp_path: Path) -> None:
    path = written(tmp_path, AZURE + "2024-05-12 00:00:01,5,6\nnonsense\n")
    assert len(read_trace(path, limit=1).rows) == 1


def test_lengths_alone(tmp_path: Path) -> None:
    path = written(tmp_path, "num_prefill_tokens,num_decode_tokens\n5,6\n7,8\n")
    trace = read_trace(path)
    assert (trace.format_name, trace.timed) == ("vidur-lengths", False)
    assert trace.sizes().pairs == ((5, 6), (7, 8))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("2023-11-16 18:15,1,2", "2: TIMESTAMP '2023-11-16 18:15': must be a time"),
        ("2023-02-30 00:00:00,1,2", "is not a time"),
        ("2023-11-16 18:15:46,-1,2", "ContextTokens '-1'"),
        ("2023-11-16 18:15:46,1,x", "GeneratedTokens 'x'"),
        ("2023-11-16 18:15:46,1,99999999999999", "GeneratedTokens"),
        ("2023-11-16 18:15:46,1", "has 2 cells and none for GeneratedTokens"),
        ('"2023', "has 1 cells"),
    ],
)
def test_damaged_rows(tmp_path: Path, row: str, said: str) -> None:
    path = written(tmp_path, AZURE + row)
    with pytest.raises(ConfigError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [1]}', "has 2 bl"),
        ('{"timestamp": -1, "input_length": 5, "output_length": 1, "hash_ids": [1]}', "timestamp"),
        ('{"timestamp": 0, "input_length": 5.5, "output_length": 1, "hash_ids": [1]}', "5.5"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": ["a"]}', "'a'"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": null}', "None"),
        ('{"timestamp": 0, "input_length": 5, "hash_ids": [1]}', "output_length None"),
        ("nonsense", "is not JSON"),
    ],
)
def test_damaged_lines(tmp_path: Path, line: str, said: str) -> None:
    good = '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n'
    path = written(tmp_path, good + line, "trace.jsonl")
    with pytest.raises(ConfigError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert said in str(caught.value)


def test_another_size_of_blocks_is_named(tmp_path: Path) -> None:
    line = '{"timestamp": 3, "input_length": 65, "output_length": 1, "hash_ids": [1, 2]}'
    path = written(tmp_path, line, "trace.jsonl")
    with pytest.raises(ConfigError, match="name the block size"):
        read_trace(path)
    assert read_trace(path, block_tokens=64).block_tokens == 64


def test_what_is_no_trace(tmp_path: Path) -> None:
    for text in ("", "a,b\n1,2\n", "{}", "[" * 100_000, "\x00"):
        with pytest.raises(ConfigError, match="the formats are azure"):
            detect(written(tmp_path, text))
    with pytest.raises(ConfigError, match="must be one of azure"):
        read_trace(written(tmp_path, AZURE), format_name="weka")
    with pytest.raises(ConfigError, match="the chosen part has no requests"):
        read_trace(written(tmp_path, AZURE))
    with pytest.raises(ConfigError, match="has no column 'Timestamp'"):
        read_trace(written(tmp_path, AZURE), format_name="burstgpt")
    with pytest.raises(ConfigError, match="name a file"):
        detect(tmp_path / "absent.csv")
    with pytest.raises(ConfigError, match="ten years"):
        read_trace(written(tmp_path, BURST + "1,a,1,m,1,1,2,x\n999999999999,a,1,m,1,1,2,x\n"))


# Rows, the last one's time, and tokens of prompts and answers: counted apart from this reader.
REAL = {
    "azure-2023/AzureLLMInferenceTrace_conv.csv": ("azure", 19366, 3_501_721_937_000, 22_361_870),
    "azure-2023/AzureLLMInferenceTrace_code.csv": ("azure", 8819, None, 18_059_974),
    "mooncake/conversation_trace.jsonl": ("mooncake", 12031, 3_536_999 * 10**6, 144_793_823),
    "vidur/splitwise_conv.csv": ("vidur", 19366, 3_501_721_937_000, 22_361_870),
    "vidur/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv": (
        "vidur-lengths",
        None,
        0,
        None,
    ),
    "burstgpt/burstgpt_sample.csv": ("burstgpt", None, 3_293 * 10**9, None),
}


@pytest.mark.parametrize("name", sorted(REAL))
def test_real_traces(shared_assets: Path, name: str) -> None:
    path = shared_assets / "traces" / name
    if not path.is_file():
        pytest.skip(f"needs the shared test assets (looked at {path})")
    expected, rows, last_ns, prompt_tokens = REAL[name]
    trace = read_trace(path)
    assert trace.format_name == detect(path) == expected
    assert expected in FORMATS
    assert trace.rows[0].at_ns == 0
    assert rows in (None, len(trace.rows))
    assert last_ns in (None, trace.duration_ns)
    assert prompt_tokens in (None, sum(row.prompt_tokens for row in trace.rows))
