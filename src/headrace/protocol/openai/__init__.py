"""The OpenAI API's wire format, with vLLM's additions that headrace honours."""
