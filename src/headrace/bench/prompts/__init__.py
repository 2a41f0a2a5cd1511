"""Where prompts come from: drawn to a length, read from files, with images, salts and prefixes."""
