"""From installed packages to tokens: corpus, tokenizer, packed windows."""
