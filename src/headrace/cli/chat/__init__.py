"""`headrace chat`: the conversation in the terminal."""
