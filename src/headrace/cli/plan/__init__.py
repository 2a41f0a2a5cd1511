"""`headrace plan`: one file per command."""
