"""A neighbour's prefix is shared while it runs: 16 requests of one step compute it once."""

from headrace import LLM, SamplingParams

llm = LLM()  # the small model of the package; LLM("model.gguf") for yours
shared = [1 + index % 200 for index in range(512)]
prompts = [[*shared, *range(300 + request, 316 + request)] for request in range(16)]

results = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=8), progress=False)

prompt_tokens = sum(len(result.prompt_token_ids) for result in results)
cached_tokens = sum(result.cached_tokens for result in results)
print(f"16 requests began together with {prompt_tokens:,} prompt tokens, 512 of them shared")
print(f"{prompt_tokens - cached_tokens:,} tokens were computed; nothing was in the cache before")
