"""Tasks in lm-evaluation-harness's file format: questions with known answers, asked of a model."""
