"""What a checkpoint may hold that changes no result: keys of config.json, derived tensors.

A value is of no effect only where this table says so with a reason; that a value is false says
nothing ("is_causal": false is another model). Null is nothing said. Readers of configs and writers
of files use the same table, so what one lets pass the other does too.

Source: transformers configuration_utils.py (PretrainedConfig's own keys), configs of published
models of the families supported here.
"""

from __future__ import annotations

from collections.abc import Mapping

_ANY = None

HARMLESS_KEYS: Mapping[str, tuple[object, ...] | None] = {
    # how and by what the file was written
    "_name_or_path": _ANY,
    "architectures": _ANY,
    "dtype": _ANY,
    "torch_dtype": _ANY,
    "transformers.js_config": _ANY,
    "transformers_version": _ANY,
    "unsloth_fixed": _ANY,
    "unsloth_version": _ANY,
    # code published beside the weights: never run, as by transformers for a type that it knows
    "auto_map": _ANY,
    # training only
    "attention_dropout": _ANY,
    "attn_pdrop": _ANY,
    "embd_pdrop": _ANY,
    "embedding_dropout": _ANY,
    "hidden_dropout": _ANY,
    "initializer_range": _ANY,
    "output_router_logits": _ANY,
    "router_aux_loss_coef": _ANY,
    "resid_pdrop": _ANY,
    "residual_dropout": _ANY,
    "classifier_dropout": _ANY,
    # transformers' own switches and labels
    "_attn_implementation": _ANY,
    "_attn_implementation_autoset": _ANY,
    "gradient_checkpointing": _ANY,
    "id2label": _ANY,
    "label2id": _ANY,
    "_num_labels": _ANY,
    "output_attentions": _ANY,
    "output_hidden_states": _ANY,
    "output_past": _ANY,
    "output_scores": _ANY,
    "return_dict": _ANY,
    "return_dict_in_generate": _ANY,
    "torchscript": _ANY,
    "use_cache": _ANY,
    # SmolLM's statement that its config is a Llama's, which model_type says
    "is_llama_config": _ANY,
    # heads of GPT-2 that classify, and what pipelines take from its config
    "summary_activation": _ANY,
    "summary_first_dropout": _ANY,
    "summary_proj_to_labels": _ANY,
    "summary_type": _ANY,
    "summary_use_proj": _ANY,
    "task_specific_params": _ANY,
    # where GPT-2 and StarCoder round in half precision; here scores are float32 at least
    "attention_softmax_in_fp32": _ANY,
    "reorder_and_upcast_attn": _ANY,
    "scale_attention_softmax_in_fp32": _ANY,
    # how StarCoder's first code laid out its cache
    "inference_runner": _ANY,
    "max_batch_size": _ANY,
    "max_sequence_length": _ANY,
    "pad_key_length": _ANY,
    "pre_allocate_kv_cache": _ANY,
    "validate_runner_input": _ANY,
    # text side
    "bos_token_id": _ANY,
    "eos_token_id": _ANY,
    "pad_token_id": _ANY,
    "sep_token_id": _ANY,
    "unk_token_id": _ANY,
    "tokenizer_class": _ANY,
    # Defaults of generation, which older versions of transformers wrote into every config.
    "diversity_penalty": (0.0,),
    "do_sample": (False,),
    "early_stopping": (False,),
    "encoder_no_repeat_ngram_size": (0,),
    "length_penalty": (1.0,),
    "max_length": (20,),
    "min_length": (0,),
    "no_repeat_ngram_size": (0,),
    "num_beam_groups": (1,),
    "num_beams": (1,),
    "num_return_sequences": (1,),
    "remove_invalid_values": (False,),
    "repetition_penalty": (1.0,),
    "temperature": (1.0,),
    "tf_legacy_loss": (False,),
    "top_k": (50,),
    "top_p": (1.0,),
    "typical_p": (1.0,),
    # Computes the same in slices; 0 is off.
    "chunk_size_feed_forward": (0,),
    # Which of transformers' cache classes generation uses; results are the same.
    "cache_implementation": _ANY,
    # Slices the same products; other values than 1 were only ever used while training.
    "pretraining_tp": (1,),
    # Encoders and cross attention, which transformers writes out for every decoder.
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    "tie_encoder_decoder": (False,),
    # A decoder alone is one whatever it says.
    "is_decoder": (False, True),
    # No head is cut off.
    "pruned_heads": ({},),
    # Parts that other models of these families have, stated as absent.
    "rope_interleaved": (False,),
    "use_bfloat16": (False,),
    "use_mrope": (False,),
}
"""Keys of config.json of no effect: whatever their value (None), or only with the values given."""

# Buffers that old exports keep although they follow from the config: frequencies, and the causal
# masks of GPT-2 and GPT-NeoX and the score of what it hides.
_DERIVED_SUFFIXES = (
    ".rotary_emb.inv_freq",
    ".attn.bias",
    ".attn.masked_bias",
    ".attention.bias",
    ".attention.masked_bias",
)


def is_harmless(key: str, value: object) -> bool:
    """Whether a key of config.json with this value changes no result."""
    if value is None:
        return True
    if key not in HARMLESS_KEYS:
        return False
    values = HARMLESS_KEYS[key]
    return values is None or value in values


def is_derived(name: str) -> bool:
    """Whether a tensor of this name follows from the config or from another one (`t2d` of a draft
    head from its `d2t`), and may be left out."""
    return name == "t2d" or name.endswith(_DERIVED_SUFFIXES)
