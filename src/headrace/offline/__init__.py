"""What LLM and AsyncLLM share: prompts to ids, outputs to results, and how far a call is."""
