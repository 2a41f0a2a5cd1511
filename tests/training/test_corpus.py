"""The corpus: the same every time, permissive licences alone, no copies, packages held out."""

from __future__ import annotations

import importlib.metadata
import json
from email.message import Message
from pathlib import Path

import pytest

from training.data.corpus import (
    MAX_LINE_CHARACTERS,
    accepted_text,
    installed_package,
    literal_share,
    read_documents,
    split_of,
    standard_library,
    without_licence_header,
    write_corpus,
)
from training.data.duplicates import RUN_LINES, SeenRuns
from training.data.licences import permissive_expression, permissive_licence


def module(seed: int) -> str:
    """Python of about a kilobyte in which every line is of `seed`."""
    return "".join(
        f"def function_{seed}_{i}(value_{seed}):\n    return value_{seed} + {seed * 100 + i}\n\n\n"
        for i in range(12)
    )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_package(
    folder: Path, name: str, header: str, files: dict[str, str], readme: str = ""
) -> importlib.metadata.Distribution:
    """An installed package as pip leaves it, without its hashes."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    write(
        info / "METADATA", f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{header}\n{readme}"
    )
    for path, text in files.items():
        write(folder / path, text)
    listed = [*files, f"{info.name}/METADATA"]
    write(info / "RECORD", "".join(f"{path},,\n" for path in listed))
    return importlib.metadata.Distribution.at(info)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A standard library with one of everything that is left out."""
    root = tmp_path / "library"
    for seed in range(8):
        write(root / f"module_{seed}.py", module(seed))
    write(root / "email" / "message.py", module(50))
    write(root / "near_copy.py", "import os\n" + module(3))
    write(root / "copy_of_held_out.py", module(60) + module(50)[:400])
    write(root / "table.py", "TABLE = (\n" + "    'entry',\n" * 50 + ")\n")
    write(root / "broken.py", "print 'this was Python once'\n" * 20)
    write(root / "_sysconfigdata_x.py", module(70))
    for folder in ("test", "site-packages/package", "package/tests", "_vendor"):
        write(root / folder / "module.py", module(80))
    return root


def test_corpus_is_deterministic_and_leaves_out_what_it_says(library: Path, tmp_path: Path) -> None:
    sizes = [write_corpus([standard_library(library)], tmp_path / out) for out in ("one", "two")]
    assert sizes[0] == sizes[1]
    for name in ("train.jsonl", "heldout.jsonl", "provenance.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    provenance = json.loads((tmp_path / "one" / "provenance.json").read_text())
    (package,) = provenance["packages"]
    assert package["name"] == "python" and package["licence"] == "PSF-2.0"
    splits = {file["path"]: file["split"] for file in package["files"]}
    kept = {f"module_{seed}.py" for seed in range(8)}
    assert splits == {"email/message.py": "heldout"} | dict.fromkeys(kept, "train")
    assert sum(sizes[0].values()) == sum(file["n_bytes"] for file in package["files"])
    assert read_documents(tmp_path / "one", "heldout") == [module(50)]
    assert len(read_documents(tmp_path / "one", "train")) == len(kept)


def test_packages_come_with_their_documents_and_without_their_tests(tmp_path: Path) -> None:
    readme = "# thing\n\n" + "It does one thing, and the text says how.\n" * 10
    files = {
        "thing/__init__.py": module(1),
        "thing/guide.rst": "Guide\n=====\n\n" + "A line of the guide.\n" * 20,
        "thing/tests/test_thing.py": module(2),
        "thing/data.bin": "x" * 500,
        "thing/gone.py": module(3),
    }
    distribution = write_package(tmp_path, "thing", "License-Expression: MIT\n", files, readme)
    (tmp_path / "thing/gone.py").unlink()
    package = installed_package(distribution)
    assert package is not None
    assert (package.name, package.version, package.licence) == ("thing", "1.0", "MIT")
    paths = [path for path, _ in package.files]
    assert paths == ["thing-1.0.dist-info/METADATA", "thing/__init__.py", "thing/guide.rst"]
    write_corpus([package], tmp_path / "corpus")
    assert readme in read_documents(tmp_path / "corpus", "train")


def test_a_large_package_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"big/module_{seed}.py": module(seed) for seed in range(20)}
    distribution = write_package(tmp_path, "big", "License-Expression: MIT\n", files)
    monkeypatch.setattr("training.data.corpus.MAX_PACKAGE_BYTES", 5 * len(module(10)))
    package = installed_package(distribution)
    assert package is not None
    kept = {path for path, _ in package.files if path.endswith(".py")}
    assert 3 <= len(kept) <= 5
    assert kept != set(sorted(files)[: len(kept)])


def test_a_package_of_another_licence_stays_out(tmp_path: Path) -> None:
    header = "License-Expression: GPL-3.0-only\n"
    distribution = write_package(tmp_path, "strict", header, {"strict/__init__.py": module(1)})
    assert installed_package(distribution) is None


@pytest.mark.parametrize(
    ("package", "path", "split"),
    [
        ("python", "email/message.py", "heldout"),
        ("python", "json/decoder.py", "train"),
        ("requests", "requests/api.py", "heldout"),
        ("flask", "flask/email.py", "train"),
    ],
)
def test_the_split_goes_by_package(package: str, path: str, split: str) -> None:
    assert split_of(package, path) == split


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("x = 1\n", "short.py"),
        ("x = 1\n" * 50_000, "long.py"),
        (module(1) + "#" * (MAX_LINE_CHARACTERS + 1), "wide.py"),
        (module(1) + "# ü\n" * 40, "foreign.py"),
        ("# Auto-generated by a program\n" + module(1), "generated.py"),
        (module(1) + "# <|im_end|>\n", "control.py"),
        (module(1) + "# <think>\n", "control.py"),
    ],
)
def test_files_that_teach_little_are_left_out(text: str, name: str) -> None:
    assert accepted_text(module(1).encode(), name) == module(1)
    assert accepted_text(text.encode(), name) is None


def test_bytes_that_are_no_utf_8_are_left_out() -> None:
    assert accepted_text(module(1).encode() + b"# \xff\n") is None


def test_licence_headers_are_cut_and_other_comments_stay() -> None:
    header = "#!/usr/bin/env python\n# Copyright 2020 Somebody.\n#\n# Licensed as you like.\n\n"
    assert without_licence_header(header + module(1)) == module(1)
    plain = "# How to add.\n\n" + module(1)
    assert without_licence_header(plain) == plain


def test_literal_share_counts_lines_of_tables() -> None:
    assert literal_share("a = [\n    1,\n    2,\n]\nprint(a)\n") == pytest.approx(4 / 6)
    assert literal_share('"""A docstring."""\n\n\ndef f():\n    return 1\n') == 0.0


@pytest.mark.parametrize(
    ("expression", "permissive"),
    [
        ("MIT", True),
        ("Apache-2.0 OR GPL-2.0-only", True),
        ("MIT AND GPL-2.0-only", False),
        ("(MIT OR Apache-2.0)", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("LGPL-3.0-or-later", False),
    ],
)
def test_expressions(expression: str, permissive: bool) -> None:
    assert permissive_expression(expression) is permissive


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ([("License-Expression", "BSD-3-Clause")], "BSD-3-Clause"),
        ([("License-Expression", "GPL-3.0-only"), ("License", "MIT")], None),
        ([("Classifier", "License :: OSI Approved :: MIT License")], "MIT"),
        (
            [
                ("Classifier", "License :: OSI Approved :: MIT License"),
                ("Classifier", "License :: OSI Approved :: Apache Software License"),
            ],
            "Apache-2.0 AND MIT",
        ),
        (
            [
                ("Classifier", "License :: OSI Approved :: MIT License"),
                ("Classifier", "License :: OSI Approved :: GNU General Public License (GPL)"),
            ],
            None,
        ),
        ([("License", "BSD 3-Clause License\n\nCopyright")], "BSD-3-Clause"),
        ([("Classifier", "License :: OSI Approved :: BSD License")], "BSD"),
        ([("License", "Mozilla Public License 2.0")], None),
        ([("License", "my own")], None),
        ([("Classifier", "License :: OSI Approved")], None),
        ([], None),
    ],
)
def test_what_metadata_says_of_the_licence(
    fields: list[tuple[str, str]], licence: str | None
) -> None:
    metadata = Message()
    for name, value in fields:
        metadata[name] = value
    assert permissive_licence(metadata) == licence


def test_near_duplicates_are_seen_in_runs_of_lines() -> None:
    seen = SeenRuns()
    assert seen.share_seen(module(1)) == 0.0
    seen.add(module(1))
    assert seen.share_seen(module(1)) == 1.0
    assert seen.share_seen(module(2)) == 0.0
    # Indentation and blank lines do not hide a copy, one changed line spoils its runs alone.
    lines = module(1).splitlines()
    moved = "\n\n".join("    " + line for line in lines)
    assert seen.share_seen(moved) == 1.0
    changed = [line for line in lines if line]
    n_runs = len(changed) - RUN_LINES + 1
    changed[12] = "pass"
    share = seen.share_seen("\n".join(changed))
    assert share == pytest.approx((n_runs - RUN_LINES) / n_runs)
    # A text of a single run is too short to call it a copy.
    seen.add("import os\n")
    assert seen.share_seen("import os\n") == 0.0
