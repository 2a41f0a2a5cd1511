"""GGUF models by the names of their files."""

from __future__ import annotations

import pytest

from headrace.errors import FetchError
from headrace.weights.store.gguf_group import choose_group, gguf_groups


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Qwen3-0.6B-Q8_0.gguf", "Q8_0"),
        ("qwen2.5-0.5b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("tinyllama.Q5_K_S.gguf", "Q5_K_S"),
        ("gemma-UD-IQ2_XXS.gguf", "UD-IQ2_XXS"),
        ("Llama-3.2-1B-BF16.gguf", "BF16"),
        ("model-f16.gguf", "F16"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("bitnet-TQ1_0.gguf", "TQ1_0"),
        ("Q6_K/big-00001-of-00001.gguf", "Q6_K"),
        ("stories260K.gguf", ""),
    ],
)
def test_the_kind_is_what_the_name_ends_in(name: str, kind: str) -> None:
    [group] = gguf_groups([name])
    assert (group.kind, group.files, group.complete) == (kind, (name,), True)


def test_pieces_are_one_model_in_their_order() -> None:
    names = [f"big-Q4_K_M-0000{number}-of-00003.gguf" for number in (3, 1, 2)]
    [group] = gguf_groups(names)
    assert group.files == tuple(sorted(names))
    assert group.complete
    [partial] = gguf_groups(names[:2])
    assert not partial.complete


def test_what_goes_beside_a_model_is_no_model() -> None:
    assert gguf_groups(["mmproj-model-f16.gguf", "x.imatrix.gguf", "mtp-x.gguf", "README.md"]) == []


def test_two_models_of_a_kind_are_told_apart_by_file() -> None:
    groups = gguf_groups(["a-Q8_0.gguf", "b-Q8_0.gguf", "b-F16.gguf"])
    with pytest.raises(FetchError, match=r"by its file.*a-Q8_0\.gguf, b-Q8_0\.gguf"):
        choose_group(groups, quant="Q8_0", file=None, where="org/x")
    assert choose_group(groups, quant=None, file="b-Q8_0.gguf", where="").files == ("b-Q8_0.gguf",)
    assert choose_group(groups, quant="f16", file=None, where="").files == ("b-F16.gguf",)
