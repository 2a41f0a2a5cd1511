"""A tool loop in one process: the model calls a function, and answers with what it returned."""

import json

from headrace import LLM, SamplingParams


def get_weather(city: str) -> dict[str, object]:
    """A real tool looks it up."""
    return {"sky": "clear", "degrees": 7}


FUNCTIONS = {"get_weather": get_weather}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}]

llm = LLM()  # the small model of the package; LLM("model.gguf") for yours
params = SamplingParams(temperature=0, max_tokens=200)
messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
for _ in range(4):  # a model that always calls would go on for ever
    answer = llm.chat(messages, params, tools=TOOLS)
    messages.append(answer.message)
    for call in answer.tool_calls:
        print(call.name, call.arguments)
        result = FUNCTIONS[call.name](**json.loads(call.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
    if not answer.tool_calls:
        print(answer.content)
        break
