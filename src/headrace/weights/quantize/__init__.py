"""Making smaller files: which kind each tensor gets, and the file written tensor by tensor.

`roles` says what a tensor does by its name, and which tensors stay as they are; `mixes` is the
table of kinds by role; `plan` the kind of every tensor of one model; `importance` the file of
importance; `write` the file, resumable.
"""
