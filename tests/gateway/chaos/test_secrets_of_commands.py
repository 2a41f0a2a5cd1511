"""What `headrace gateway check` and `explain` print of files with secrets, right and wrong."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from headrace.catalog import Catalog
from headrace.cli.gateway.group import gateway
from headrace.errors import HeadraceError
from tests.gateway.chaos.every_secret import MODELS, SECRETS, environment, settings, write_files
from tests.gateway.chaos.spoiled_files import wrong_files
from tests.gateway.chaos.written_secrets import found_in

ORIGIN = "http://127.0.0.1:9"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    write_files(tmp_path, ORIGIN)
    password = SECRETS["postgresql password"]
    given = settings(
        ORIGIN,
        redis=f"redis://:{SECRETS['redis password']}@127.0.0.1:9/0",
        request_log={"store": "postgresql", "url": f"postgresql://me:{password}@127.0.0.1:9/log"},
        alerts=ORIGIN,
    )
    path = tmp_path / "gateway.yaml"
    path.write_text(yaml.safe_dump(given))
    return path


def printed(config: Path, *arguments: str) -> tuple[int, bytes]:
    """Exit status, and all that a person would see; of an error that is none of ours, all of it."""
    told = CliRunner().invoke(gateway, [*arguments, "--config", str(config)], env=environment())
    text = told.output
    if isinstance(told.exception, HeadraceError):
        text += str(told.exception)
    elif told.exception is not None and not isinstance(told.exception, SystemExit):
        text += "".join(traceback.format_exception(told.exception))
    return told.exit_code, text.encode()


@pytest.mark.long
def test_of_a_file_that_is_right(config: Path) -> None:
    told = {}
    for more in ((), ("--json",)):
        status, told[f"check {more}"] = printed(config, "check", *more)
        assert status == 0, told
        for model in MODELS:
            status, told[f"explain {model} {more}"] = printed(config, "explain", model, *more)
            assert status == 0, told
    warned = json.loads(told["check ('--json',)"])["warnings"]
    for place in ("providers.p", "admin.key", "request_log.url"):
        assert any(place in one for one in warned), (place, warned)
    found = found_in(told, SECRETS.values())
    assert not found, "\n".join(found[:10])


@pytest.mark.long
def test_of_files_that_are_wrong(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog.load(())  # to read it anew for each file takes most of the time
    monkeypatch.setattr(Catalog, "load", lambda _folders: catalog)
    told = {}
    wrong = 0
    # Every other one: each secret is wrong in two or three of the ways.
    texts = [*wrong_files(yaml.safe_load(config.read_text()))][::2]
    for number, text in enumerate(texts):
        config.write_text(text)
        for arguments in (("check", "--json"), ("explain", "good", "--json"))[: 1 + number % 2]:
            status, output = printed(config, *arguments)
            assert output and b"Traceback" not in output, output.decode()
            wrong += status != 0
            told[f"{arguments} of file {number}"] = output
    assert wrong > len(told) // 2, (wrong, len(told))
    found = found_in(told, SECRETS.values())
    assert not found, f"{len(found)}\n" + "\n".join(found[:10])
