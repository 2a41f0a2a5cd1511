"""An OpenAI-compatible endpoint without a model, whose times and faults are programmed."""
