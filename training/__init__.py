"""The trainer of headrace's family of small models: corpus, tokenizer, runs, figures, export."""
