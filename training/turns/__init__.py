"""Questions and answers made from the corpus, in the family's chat template."""
