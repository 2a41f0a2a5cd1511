"""The dense model: attention is PyTorch's, and the whole is transformers' Qwen3."""

from __future__ import annotations

import pytest

from tests.training.toy_training import SHAPE

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="training needs PyTorch")

from training.models.model import QUERY_BLOCK, LanguageModel, causal_attention  # noqa: E402


@pytest.mark.parametrize("length", [1, 5, QUERY_BLOCK, QUERY_BLOCK + 1, 2 * QUERY_BLOCK + 37])
def test_attention_is_pytorchs(length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    q, k, v = (
        torch.randn(2, 3, length, 16, generator=generator, requires_grad=True) for _ in range(3)
    )
    ours = causal_attention(q, k, v)
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    weights = torch.randn(ours.shape, generator=generator)
    ours_back = torch.autograd.grad((ours * weights).sum(), (q, k, v))
    theirs_back = torch.autograd.grad((theirs * weights).sum(), (q, k, v))
    for one, other in zip(ours_back, theirs_back, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_the_model_is_transformers_qwen3() -> None:
    transformers = pytest.importorskip("transformers", reason="the comparison needs transformers")
    torch.manual_seed(1)
    model = LanguageModel(SHAPE)
    with torch.no_grad():
        for parameter in model.parameters():  # norms begin at one, which would hide their names
            parameter.add_(0.05 * torch.randn(parameter.shape))
    peer = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SHAPE.to_hugging_face()))
    missing, unexpected = peer.load_state_dict(model.state_dict(), strict=False)
    assert set(missing) <= {"lm_head.weight"}
    assert not unexpected
    peer.tie_weights()
    ids = torch.randint(SHAPE.vocab_size, (2, QUERY_BLOCK + 44))
    with torch.no_grad():
        torch.testing.assert_close(model(ids), peer.eval()(ids).logits, atol=1e-5, rtol=1e-4)
