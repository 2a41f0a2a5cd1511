"""`headrace bench load`: its flags, and what they are read into."""
