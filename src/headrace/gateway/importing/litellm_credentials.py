"""The credentials of LiteLLM's deployments at AWS, Google and Azure, in the form of "
"gateway.yaml."""

from __future__ import annotations

from typing import Any

CARRIED = frozenset(
    (
        "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_profile_name",
        "vertex_project", "vertex_location", "vertex_credentials", "tenant_id", "client_id",
        "client_secret",
    )
)  # fmt: skip
"""Names of its parameters that are read here."""

_AWS = (
    ("aws_access_key_id", "access_key_id"),
    ("aws_secret_access_key", "secret_access_key"),
    ("aws_session_token", "session_token"),
    ("aws_profile_name", "profile"),
)
_ENVIRONMENT = ("os.environ/", "env:")


def credentials_of(params: dict[str, Any]) -> dict[str, Any]:
    """Fields of a provider."""
    found: dict[str, Any] = {}
    if params.get("aws_access_key_id") or params.get("aws_profile_name"):
        found["aws"] = {ours: params[theirs] for theirs, ours in _AWS if params.get(theirs)}
    if params.get("vertex_project") or params.get("vertex_credentials"):
        google = {"location": params.get("vertex_location") or "global"}
        if params.get("vertex_project"):
            google["project"] = params["vertex_project"]
        if params.get("vertex_credentials"):
            google["credentials"] = _google(params["vertex_credentials"])
        found["google"] = google
    if params.get("tenant_id"):
        names = ("tenant_id", "client_id", "client_secret")
        found["entra"] = {name: params[name] for name in names if params.get(name)}
    return found


def _google(given: Any) -> str:
    """Theirs is a file, or a variable that holds the JSON."""
    text = str(given)
    return text if text.startswith(_ENVIRONMENT) else f"file:{text}"
