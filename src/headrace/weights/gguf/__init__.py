"""GGUF files: read, written, and what they say in the words of config.json."""
