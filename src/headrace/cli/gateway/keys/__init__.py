"""`headrace gateway keys`: one file per command."""
