"""`headrace eval`: one file per command, or per pair that shares its options."""
