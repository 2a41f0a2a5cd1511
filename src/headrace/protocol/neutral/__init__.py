"""One form for what all chat dialects say, so that each is translated to and from it alone.

`call` is what a client wants, `reply` what a model answers, `event` the same answer as it comes,
`usage` what it took, `failure` why there is none. A dialect's folder beside this one reads its own
wire format into these and writes them back; `dialect` is what such a folder has to offer.
"""
