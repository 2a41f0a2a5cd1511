"""The same bits whatever the batch: tokens and log probabilities alone, and among 31 others."""

from headrace import LLM, SamplingParams

llm = LLM(enable_prefix_caching=False)  # so that nothing is read from a run before
params = [
    SamplingParams(temperature=0.8, seed=seed, max_tokens=24, logprobs=2) for seed in range(32)
]
prompts = [f"def function_{seed}(" + "argument, " * seed for seed in range(32)]

together = llm.generate(prompts, params, progress=False)
alone = [llm.generate(prompt, own)[0] for prompt, own in zip(prompts, params, strict=True)]

same = sum(
    (result.token_ids, result.logprobs) == (other.token_ids, other.logprobs)
    for result, other in zip(together, alone, strict=True)
)
print(f"{same} of 32 requests have equal tokens and equal log probabilities, to the last bit")
