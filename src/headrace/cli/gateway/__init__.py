"""`headrace gateway`: one file per command."""
