"""The HTTP face of an engine: the OpenAI API over Starlette. Text is made and cut here."""
