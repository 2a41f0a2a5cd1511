"""`headrace bench`: one file per command."""
