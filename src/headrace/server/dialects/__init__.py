"""Other vendors' chat APIs on the server: a neutral call in, neutral events out.

What a dialect looks like is `headrace.protocol.dialects`' to know; here a call becomes our own
request, and what the engine says becomes events, whatever the dialect.
"""
