"""Making a store as Ollama has it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

MODEL = "application/vnd.ollama.image.model"
BASE = "registry.ollama.ai/library"


def write_ollama(
    store: Path, name: str, layers: dict[str, bytes], *, base: str = BASE, tag: str = "latest"
) -> Path:
    """A manifest of layers by media type, and its blobs; gives the manifest's path."""
    listed = []
    (store / "blobs").mkdir(parents=True, exist_ok=True)
    for kind, content in layers.items():
        digest = hashlib.sha256(content).hexdigest()
        (store / "blobs" / f"sha256-{digest}").write_bytes(content)
        listed.append({"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)})
    manifest = store / "manifests" / base / name / tag
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": listed}))
    return manifest
