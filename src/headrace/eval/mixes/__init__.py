"""Kinds for the matrices of a model that fit a size, or a divergence, chosen by measurement.

`candidates` are the kinds that each matrix may get, with their errors; `variants` the model in a
mix of kinds, and how far its outputs are from the model's own; `measurements` a file of these
divergences; `sensitivity` what they say about each matrix; `fit` the choice.
"""
