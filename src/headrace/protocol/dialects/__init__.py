"""Wire formats of chat APIs, each in a folder of its own, read into and written from `neutral`.

    client     the side that clients speak to: reads their calls, writes replies
    provider   the side that speaks to a provider: writes calls, reads its replies
    request/   calls, read and written: messages, tools, reasoning, and the checks of fields
    reply/     replies, whole and streamed, read and written: usage, finish reasons, errors
    the rest   what both use (values, media, ids), and endpoints beside chat (embeddings, models)

A dialect of a dozen files or fewer has no folders; its files have the same names. What several
dialects share is a file beside the folders.
"""
