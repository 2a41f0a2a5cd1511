"""Kinds for the matrices of a model that fit a size, or a divergence, chosen by measurement.

`candidates` are the kinds that each matrix may get; `variants` the model with some of its matrices
in other kinds, and how far its outputs are from the model's own; `measurements` a file of these
divergences; `estimate` those that were not measured; `fit` the choice.
"""
