"""What files say of tokenizers, as data; headrace.text makes tokenizers of it."""
