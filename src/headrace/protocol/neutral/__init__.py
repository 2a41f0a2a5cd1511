"""One neutral form for all chat dialects, so that each is translated only to and from it.

`call` is what a client wants, `reply` what a model answers, `event` the same answer as it comes,
`usage` what it took, `failure` why there is none. A dialect's folder beside this one reads its own
wire format into these and writes them back; `dialect` is what such a folder has to offer.
"""
