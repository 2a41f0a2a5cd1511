"""Only new tokens are computed: a turn of a conversation finds in the cache all that was computed
before it."""

from headrace import LLM, SamplingParams

llm = LLM()  # the small model of the package; LLM("model.gguf") for yours
params = SamplingParams(temperature=0, max_tokens=48)
messages: list[dict[str, str]] = []

for question in ("What does os.path.join do?", "And os.path.split?", "And os.path.exists?"):
    messages.append({"role": "user", "content": question})
    answer = llm.chat(messages, params)
    messages.append({"role": "assistant", "content": answer.text})
    prompt_tokens = len(answer.prompt_token_ids)
    print(
        f"{prompt_tokens:3} prompt tokens, {answer.cached_tokens:3} from the cache, "
        f"{prompt_tokens - answer.cached_tokens:3} computed"
    )
