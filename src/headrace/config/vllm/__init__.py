"""vLLM's settings that headrace has under another name, without effect, or not at all.

The one table behind the command line, `LLM`, `AsyncLLM` and `SamplingParams`: whoever comes from
vLLM reads in the refusal what to write here.
"""
