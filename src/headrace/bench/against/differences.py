"""In what two servers' models evidently differ: names, kinds of weights, sizes of their files.

Names may be aliases: a difference is a reason to look, and none is no proof of the same model.
"""

from __future__ import annotations

import re

from headrace.bench.against.peer import ServerFacts

_KIND = re.compile(
    r"(?<![a-z0-9])(iq|q|tq|mxfp|nvfp|int|bf|fp|f)(\d{1,2})((?:_[a-z0-9]+)*)(?![a-z0-9])",
    re.IGNORECASE,
)
_SIZE = re.compile(r"(?<![a-z0-9.])((?:\d+x)?\d+(?:\.\d+)?[bm])(?![a-z0-9])", re.IGNORECASE)
_OF_A_HUB = re.compile(r"models--[^/]+?--([^/]+)/")
_NOT_A_NAME = re.compile(r"(?:sha256-)?[0-9a-f]{32,}")
_PIECE_OF_MANY = re.compile(r"-\d{5}-of-\d{5}")
_ANY_MODEL = ("model", "ggmlmodel")
_CLOSE_BITS = 2
"""Files named after a kind hold some tensors in others: Q4_K_M has many bytes of Q6_K."""
_SAME_SIZE = 0.02
"""Files of one model may differ by so much, as by what is stored beside the weights."""


def differences(ours: ServerFacts, peer: ServerFacts) -> list[str]:
    """Of "names", "sizes", "kinds of weights", "numbers of parameters" and "bytes of weights", what
    differs where both are known."""
    names = _name(ours.model), _name(peer.model)
    sizes = _size(names[0]), _size(names[1])
    stems = _stem(names[0]), _stem(names[1])
    found = []
    if all(stems) and stems[0] not in stems[1] and stems[1] not in stems[0]:
        found.append("names")
    if all(sizes) and sizes[0] != sizes[1]:
        found.append("sizes")
    if _kinds_differ(_kind(names[0]), _kind(names[1]), ours.weights, peer.weights):
        found.append("kinds of weights")
    if _apart(ours.parameters, peer.parameters):
        found.append("numbers of parameters")
    if _apart(ours.weight_bytes, peer.weight_bytes):
        found.append("bytes of weights")
    return found


def _apart(ours: int | None, peer: int | None) -> bool:
    if not ours or not peer:
        return False
    return abs(ours - peer) > _SAME_SIZE * max(ours, peer)


def _name(model: str | None) -> str:
    """Without its folders; empty where it is a checksum alone."""
    if model is None:
        return ""
    of_hub = _OF_A_HUB.search(model)
    name = of_hub[1] if of_hub else model.rstrip("/").rpartition("/")[2]
    if of_hub and model.lower().endswith(".gguf"):
        name = model.rpartition("/")[2]
    return "" if _NOT_A_NAME.fullmatch(name) else name


def _stem(name: str) -> str:
    """Letters and digits of a name without the kind of its weights; empty where any model may be
    called so."""
    bare = _KIND.sub("", _PIECE_OF_MANY.sub("", name)).lower()
    stem = re.sub(r"[^a-z0-9]", "", bare.removesuffix(".gguf").removesuffix(":latest"))
    return "" if stem in _ANY_MODEL else stem


def _size(name: str) -> str:
    found = _SIZE.search(name)
    return found[1].lower() if found else ""


def _kind(text: str | None) -> str:
    found = _KIND.search(text or "")
    return found[0].upper().replace("FP16", "F16").replace("FP32", "F32") if found else ""


def _kinds_differ(ours: str, peer: str, our_weights: str | None, peer_weights: str | None) -> bool:
    if our_weights and peer_weights:
        return our_weights != peer_weights
    if ours and peer:
        return ours != peer
    bits = _bits(our_weights or ours), _bits(peer_weights or peer)
    return all(bits) and abs(bits[0] - bits[1]) > _CLOSE_BITS


def _bits(kind: str) -> int:
    found = _KIND.search(kind)
    return int(found[2]) if found else 0
