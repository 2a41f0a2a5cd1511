"""Where models come from when no path is given: the hub, its cache on this disk, Ollama's store.

The local store is Hugging Face's own cache: what headrace fetches, every other tool sees, and the
other way round. Ollama's store is read, never written. `resolve` is the one place where a MODEL
argument becomes a path.
"""
