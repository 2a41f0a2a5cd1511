"""The trainer of headrace's embedded model: corpus, tokenizer, model, training, export."""
