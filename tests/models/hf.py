"""The tiny models in transformers, in float32. Needs torch and transformers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.models import read_config
from headrace.weights.architectures import known_architecture
from tests.models.cases import GREEDY_STEPS, Case, prompt
from tests.models.whole_folders import write_whole
from tests.tiny import tiny_checkpoint, tiny_config, tiny_weights, write_tiny_hf
from tests.tiny_families import tiny_family


class Reference(NamedTuple):
    """What transformers makes of a case.

    prompt, greedy: token ids. logits: f32[len(prompt) + steps - 1, vocab] of one pass over all of
    them but the last. smallest_gap: least distance of the two largest logits in the greedy steps.
    """

    prompt: list[int]
    greedy: list[int]
    logits: npt.NDArray[np.float32]
    smallest_gap: float


def hf_model(case: Case, seed: int) -> Any:
    """The family's ...ForCausalLM with the case's weights, computing attention step by step."""
    import torch
    import transformers

    kind: Any = transformers.AutoModelForCausalLM
    if (outer := getattr(tiny_family(case.family), "OUTER", None)) is not None:
        kind = getattr(transformers, outer["architectures"][0])
        with TemporaryDirectory() as folder:
            path = write_whole(Path(folder), case.family, seed, outer, **case.shape)
            return kind.from_pretrained(
                path, attn_implementation="eager", dtype=torch.float32, local_files_only=True
            ).eval()
    # Where it has no class, that of a family with the same arithmetic.
    same_as = getattr(tiny_family(case.family), "SAME_AS", case.family)
    stored = known_architecture(case.family)
    forms = stored is not None and stored.has_folder_forms and same_as == case.family
    if forms or read_config(tiny_checkpoint(case.family, **case.shape)).experts is not None:
        # It joins the experts of a folder itself, and knows the folder's other forms.
        with TemporaryDirectory() as folder:
            path = write_tiny_hf(Path(folder), case.family, seed=seed, **case.shape)
            stated = json.loads((path / "config.json").read_text(encoding="utf-8"))
            (path / "config.json").write_text(
                json.dumps({**stated, "model_type": same_as}), encoding="utf-8"
            )
            return kind.from_pretrained(
                path, attn_implementation="eager", dtype=torch.float32, local_files_only=True
            ).eval()
    stated = tiny_config(case.family, **case.shape)
    if "block_configs" in stated:
        from tests.models.hf_blocks import llama_of_blocks

        return llama_of_blocks(stated, tiny_weights(stated, seed))
    config = transformers.AutoConfig.for_model(**{**stated, "model_type": same_as})
    model = kind.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    state = {name: torch.tensor(v) for name, v in tiny_weights(stated, seed).items()}
    missing = model.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys
    assert set(missing.missing_keys) <= {"lm_head.weight"}, missing.missing_keys
    model.tie_weights()
    return model


def full_logits(model: Any, ids: Sequence[int]) -> npt.NDArray[np.float32]:
    """f32[len(ids), vocab] of one pass."""
    import torch

    with torch.no_grad():
        out = model(torch.tensor([list(ids)]), use_cache=False).logits[0]
    return np.asarray(out.numpy(), np.float32)


def logits_of_text(case: Case, seed: int, ids: Sequence[int]) -> npt.NDArray[np.float32]:
    """Logits f32[len(ids), vocab] of one pass over a text."""
    return full_logits(hf_model(case, seed), ids)


def run_case(case: Case, seed: int) -> Reference:
    """Greedy continuation with the KV cache, then all logits in one pass."""
    import torch

    model = hf_model(case, seed)
    prompt_ids = prompt(seed)
    fed, cache, tokens, gaps = prompt_ids, None, [], []
    with torch.no_grad():
        for _ in range(GREEDY_STEPS):
            out = model(torch.tensor([fed]), past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            best, second = out.logits[0, -1].topk(2).values.tolist()
            gaps.append(best - second)
            fed = [int(out.logits[0, -1].argmax())]
            tokens += fed
    return Reference(prompt_ids, tokens, full_logits(model, prompt_ids + tokens[:-1]), min(gaps))
