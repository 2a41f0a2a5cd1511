"""The tour of llama.cpp's server tests: its table, its translation, and a run of a small archive.

Their own tests run where HEADRACE_LLAMACPP_SDIST names the sdist. Without it that test does not
exist, as nothing that CI collects may be skipped.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tests.tiny import write_tiny_gguf
from tools.tour.llamacpp import arguments, sdist, translation
from tools.tour.llamacpp.arguments import Unavailable
from tools.tour.llamacpp.run import Outcome, numbered, run
from tools.tour.llamacpp.verdicts import KINDS, Group, Table, compare, expand, load

PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
PRESET = ["--hf-repo", arguments.STORIES, "--ctx-size", "512", "--parallel", "2"]
# A file of tests in the place of theirs, with as much of their module of utilities as it needs.
UTILS = """
import os, subprocess, time, wget, requests

class ServerPreset:
    @staticmethod
    def load_all():
        raise AssertionError("presets are not downloaded")

def match_regex(regex, text):
    return False
"""
CONFTEST = """
import os, subprocess, time, pytest
from utils import *

ServerPreset.load_all()

@pytest.fixture(scope="module")
def post():
    port = os.environ["PORT"]
    arguments = ["--port", port, "--hf-repo", "ggml-org/test-model-stories260K", "--slots",
                 "--parallel", "1", "--ctx-size", "64", "--n-predict", "5", "--temp", "0"]
    server = subprocess.Popen([os.environ["LLAMA_SERVER_BIN_PATH"], *arguments])
    url = f"http://127.0.0.1:{port}"

    def send(path, **body):
        return requests.post(url + path, json=body, timeout=60)

    while True:
        assert server.poll() is None
        try:
            if requests.get(url + "/health", timeout=60).status_code == 200:
                break
        except requests.ConnectionError:
            pass
        time.sleep(0.05)
    send.get = lambda path: requests.get(url + path, timeout=60)
    yield send
    server.terminate()
    server.wait(10)
"""
TESTS = r"""
import json, os, subprocess
import pytest
from utils import *

def test_text(post):
    body = post("/completion", prompt="ab", n_predict=3, ignore_eos=True, return_tokens=True).json()
    assert body["timings"]["prompt_n"] == body["tokens_evaluated"]
    assert body["timings"]["predicted_n"] == len(body["tokens"]) == 3
    assert (body["stop_type"], body["truncated"]) == ("limit", False)
    assert match_regex("other numbers", body["content"])

def test_stream(post):
    reply = post("/completion", prompt="ab", stream=True, ignore_eos=True, n_probs=2).text
    lines = [line for line in reply.splitlines() if line.startswith("data: {")]
    *parts, last = [json.loads(line[6:]) for line in lines]
    assert last["stop"] and last["tokens_predicted"] == 5
    assert sum(len(part["tokens"]) for part in parts) == 5
    (token,) = parts[0]["completion_probabilities"]
    assert len(token["top_logprobs"]) == 2
    assert reply.endswith("\n\n") and "[DONE]" not in reply

def test_to_the_end(post):
    body = post("/completion", prompt="ab", n_predict=-1, ignore_eos=True).json()
    assert body["tokens_evaluated"] + body["tokens_predicted"] == 64
    assert body["truncated"] is True

def test_tokens(post):
    ids = post("/tokenize", content="ab").json()["tokens"]
    assert post("/detokenize", tokens=ids).json() == {"content": "ab"}
    pieces = post("/tokenize", content="ab", with_pieces=True).json()["tokens"]
    assert [piece["id"] for piece in pieces] == ids

def test_chat(post):
    messages = [{"role": "user", "content": "a"}]
    body = post("/chat/completions", model="another", messages=messages).json()
    assert body["usage"]["completion_tokens"] <= 5
    assert body["system_fingerprint"].startswith("b")
    counted = post("/chat/completions/input_tokens", messages=messages).json()
    assert counted["input_tokens"] == body["usage"]["prompt_tokens"]

def test_slots(post):
    assert [slot["is_processing"] for slot in post.get("/slots").json()] == [False]

@pytest.mark.parametrize("text", ["one", "two"])
def test_cases(post, text):
    assert post("/props", text=text).status_code == 200

def test_no_such_model():
    command = [os.environ["LLAMA_SERVER_BIN_PATH"], "--hf-repo", "another/model"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, "unavailable" in done.stderr) == (69, True)
"""
FILES = {
    "vendor/llama.cpp/tools/server/tests/utils.py": UTILS,
    "vendor/llama.cpp/tools/server/tests/conftest.py": CONFTEST,
    "vendor/llama.cpp/tools/server/tests/unit/test_small.py": TESTS,
    "vendor/llama.cpp/models/templates/small.jinja": "{{ messages }}",
    "vendor/llama.cpp/src/llama.cpp": "int main() {}",
}


def archive(path: Path, files: dict[str, str], top: str = "llama_cpp_python-0.0.1") -> Path:
    with tarfile.open(path, "w:gz") as out:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(text.encode())
            out.addfile(member, io.BytesIO(text.encode()))
    return path


# The table


def test_every_verdict_has_what_its_kind_needs() -> None:
    table = load()
    assert table.version == sdist.VERSION
    names = [test for group in table.groups for test in group.tests]
    assert len(names) == len(set(names))
    assert len(table.files) + len(table.left) == 27
    assert not set(table.files) & {left.file for left in table.left}
    for group in table.groups:
        assert group.verdict in KINDS
        assert bool(group.reason) == (group.verdict != "pass"), group
        assert bool(group.feature) == (group.verdict == "missing"), group
        assert bool(group.docs) == (group.verdict == "different"), group


def test_what_differs_on_purpose_is_on_the_page() -> None:
    lost = [group.docs for group in load().groups if group.docs and group.docs not in PAGE]
    assert not lost


def test_the_page_has_the_counts() -> None:
    table = load()
    found = re.search(r"<!-- tour -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)
    assert found is not None
    head, _, numbers = found[1].strip().splitlines()
    assert [cell.strip() for cell in head.strip("|").split("|")] == [*KINDS]
    assert [int(cell) for cell in numbers.strip("|").split("|")] == [
        table.counts[kind] for kind in KINDS
    ]
    assert f"{len(table.files)} of the {len(table.files) + len(table.left)} files" in PAGE


def test_cases_are_numbered() -> None:
    assert expand("a.py::test_b#1-3,7") == [f"a.py::test_b#{number}" for number in (1, 2, 3, 7)]
    assert expand("a.py::test_b") == ["a.py::test_b"]
    with pytest.raises(ValueError, match="is not file::function"):
        expand("a.py::test_b#x")
    lines = [
        {"test": f"unit/a.py::test_b[{case}]", "outcome": "passed", "reason": ""}
        for case in ("x::y", "unit/z")
    ]
    assert [outcome.test for outcome in numbered(lines)] == ["a.py::test_b#1", "a.py::test_b#2"]


def test_a_run_is_held_against_the_table() -> None:
    groups = (
        Group("pass", ("a.py::held", "a.py::broken", "a.py::gone")),
        Group("missing", ("a.py::still", "a.py::better", "b.py::other"), "reason", "tools"),
    )
    outcomes = [
        Outcome("a.py::held", "passed", ""),
        Outcome("a.py::broken", "failed", "assert 1 == 2"),
        Outcome("a.py::still", "failed", ""),
        Outcome("a.py::better", "passed", ""),
        Outcome("a.py::new", "passed", ""),
    ]
    compared = compare(Table("1", groups, ()), outcomes, ["a.py"])
    assert [outcome.test for outcome in compared.broken] == ["a.py::broken"]
    assert [outcome.test for outcome in compared.improved] == ["a.py::better"]
    assert [outcome.test for outcome in compared.unknown] == ["a.py::new"]
    assert compared.not_run == ("a.py::gone",)
    assert compared.counts == {"pass": 2, "broken": 1, "missing": 1}
    assert not compared.holds
    fine = compare(Table("1", groups[1:], ()), outcomes[2:4], ["a.py"])
    assert fine.holds


# The command line, the archive and the names


def test_a_command_line_of_llama_server_is_read() -> None:
    settings = arguments.read(
        [*PRESET, "--port", "1", "--no-jinja", "--alias", "a,b", "--reasoning", "off"]
    )
    pairs = dict(zip(settings.serve[::2], settings.serve[1::2], strict=True))
    assert pairs["--max-model-len"] == "256"
    assert pairs["--default-chat-template-kwargs"] == '{"enable_thinking": false}'
    assert settings.serve.count("--served-model-name") == 2
    assert settings.template == arguments.TEMPLATES["chatml"]
    assert arguments.read([*PRESET, "--kv-unified"]).context_tokens == 512
    assert arguments.read([*PRESET, "--chat-template", "written out"]).template == "written out"


@pytest.mark.parametrize(
    "more",
    [["--host", "0.0.0.0"], ["--hf-repo", "a/b"], ["--hf-file", "x"], ["--lora", "x"],
     ["--embedding"]],
)  # fmt: skip
def test_what_the_tour_does_not_have_is_refused(more: list[str]) -> None:
    with pytest.raises(Unavailable):
        arguments.read([*PRESET, *more])


def test_only_tests_and_templates_are_unpacked(tmp_path: Path) -> None:
    tests = sdist.unpack(archive(tmp_path / "small.tar.gz", FILES), tmp_path / "out")
    assert (tests / "unit" / "test_small.py").is_file()
    unpacked = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert unpacked == {"utils.py", "conftest.py", "test_small.py", "small.jinja"}
    with pytest.raises(sdist.NotThere, match=re.escape("has no vendor/llama.cpp")):
        sdist.unpack(archive(tmp_path / "other.tar.gz", {"setup.py": ""}), tmp_path / "other")
    outside = {"vendor/llama.cpp/tools/server/tests/../../../../../../../evil.py": ""}
    with pytest.raises(tarfile.OutsideDestinationError):
        sdist.unpack(archive(tmp_path / "evil.tar.gz", outside), tmp_path / "evil")
    assert not (tmp_path / "evil.py").exists()


def test_the_archive_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(sdist.VARIABLE, raising=False)
    assert sdist.find(None) is None
    with pytest.raises(sdist.NotThere):
        sdist.find(tmp_path)
    path = archive(tmp_path / "llama_cpp_python-0.0.1.tar.gz", {})
    monkeypatch.setenv(sdist.VARIABLE, str(tmp_path))
    assert sdist.find(None) == path
    with pytest.raises(sdist.NotThere):
        sdist.find(tmp_path / "none.tar.gz")


def test_requests_get_the_servers_defaults() -> None:
    def filled(**body: Any) -> dict[str, Any]:
        return translation.with_defaults(body, 0.8, 42, 64, frozenset({"here"}))

    assert filled(model="here") == {
        "model": "here", "temperature": 0.8, "seed": 42, "max_tokens": 64
    }  # fmt: skip
    assert filled(model="gone", n_predict=80, temperature=0, seed=1) == {
        "max_tokens": 80, "temperature": 0, "seed": 1
    }  # fmt: skip

    def native(limit: int, **body: Any) -> dict[str, Any]:
        return translation.native_request(body, 0.8, 42, limit, frozenset())

    defaults = {"temperature": 0.8, "seed": 42}
    assert native(64, n_predict=80, model="gone", grammar="x") == {
        **defaults, "n_predict": 80, "grammar": "x"
    }, "what is refused is passed on"  # fmt: skip
    assert native(-1) == {**defaults, "n_predict": -1}
    assert native(64, n_predict=-1) == {**defaults, "n_predict": -1}
    assert native(64, max_tokens=8) == {**defaults, "n_predict": 8}


# Runs


@pytest.mark.process
def test_a_small_archive_runs_against_a_server(tmp_path: Path) -> None:
    tests = sdist.unpack(archive(tmp_path / "small.tar.gz", FILES), tmp_path)
    model = write_tiny_gguf(tmp_path)
    outcomes = run(tests, ["test_small.py"], model, tmp_path)
    printed = (tmp_path / "output.txt").read_text(encoding="utf-8")
    seen = {outcome.test.partition("::")[2]: outcome for outcome in outcomes}
    failed = {name for name, outcome in seen.items() if outcome.outcome == "failed"}
    assert failed == {"test_cases#1", "test_cases#2"}, printed
    assert {name for name, outcome in seen.items() if outcome.outcome == "passed"} == {
        "test_text", "test_stream", "test_to_the_end", "test_tokens", "test_chat", "test_slots",
        "test_no_such_model",
    }, printed  # fmt: skip
    assert "assert 404 == 200" in seen["test_cases#1"].reason


if os.environ.get(sdist.VARIABLE):

    @pytest.mark.long
    def test_the_whole_tour_holds(tmp_path: Path) -> None:
        found = sdist.find(None)
        assert found is not None
        model = Path(os.environ["HEADRACE_ASSETS"]) / "models/stories260K/stories260K.gguf"
        table = load()
        outcomes = run(sdist.unpack(found, tmp_path), table.files, model, tmp_path)
        compared = compare(table, outcomes, table.files)
        assert compared.holds, compared
        assert not compared.improved, compared.improved
