"""Personal data and secrets in text: where they are, and a text without them."""
