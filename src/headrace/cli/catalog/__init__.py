"""`headrace catalog`: one file per command."""
