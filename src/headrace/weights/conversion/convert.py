"""Writing a checkpoint into the other container, or the same one with another codec.

Values change only by the codec asked for, and those of Gemma's norms by the rounding of the 1 that
GGUF files have added. What a container cannot say is refused by name; what is
lost without changing a result is told in the notes of the result.
"""

from headrace.weights.conversion.both_ways import ConversionResult
from headrace.weights.conversion.to_gguf import convert_to_gguf, write_gguf
from headrace.weights.conversion.to_hf_folder import write_hf_folder

__all__ = ["ConversionResult", "convert_to_gguf", "write_gguf", "write_hf_folder"]
