"""Files of numbers: checkpoints, tensors and codecs. Knows no arithmetic of models and no text."""
