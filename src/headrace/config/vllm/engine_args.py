"""Arguments of vLLM's engine (EngineArgs, AsyncEngineArgs, LLM) that do not exist here by name.

Those of vLLM in 2026, and older ones that scripts still have.
"""

from __future__ import annotations

from headrace.config.vllm.setting import (
    differs,
    not_there_yet,
    renamed,
    table,
    without_effect,
)

_ONE_PROCESS = "a model is computed by one process on one device ({device}, {threads})"
_GRAPHS = "CUDA graphs are of fixed sizes (--enforce-eager omits them); nothing is compiled"
_FILES = "the model's files say it"
_TEXT = "media in prompts are not read; models take text alone"
_LORA = "adapters (LoRA) are not loaded"
_KERNELS = "kernels are chosen with {backend} and {cpu_level}"
_DRAFTS = "it is a field of {speculative_config}"
_STRUCTURED = "grammars are always compiled by llguidance, and what it cannot hold is refused"
_ELSEWHERE = "the KV cache cannot be kept elsewhere; it stays in the memory of this process"
_NO_CODE = "code named by a setting is never run"
_BATCHING = "a step takes tokens of any number of prompts, up to {max_num_batched_tokens}"
_TOKENIZER = "the tokenizer is the one in the model's files"
_GPU = "weights are in the memory of the device that computes from the start"
_STATISTICS = "the engine always counts; LLM.stats and /metrics have the counters"

ENGINE_ARGS = table(
    # The model and its files
    renamed("download_dir", "models are fetched to the folder that HF_HOME or HF_HUB_CACHE names"),
    renamed("revision", "a revision is part of the model's name: org/name@REVISION"),
    renamed("hf_token", "the token of the hub is read from HF_TOKEN"),
    differs("tokenizer", _TOKENIZER),
    differs("tokenizer_revision", _TOKENIZER),
    differs("tokenizer_mode", _TOKENIZER, "auto"),
    differs("skip_tokenizer_init", "the tokenizer is loaded with the model", False),
    differs("hf_config_path", _FILES),
    differs("hf_overrides", "the model's config is taken as it is; keys that headrace does not "
            "know are passed over with {ignore_config_keys}", {}),
    differs("rope_scaling", _FILES),
    differs("rope_theta", _FILES),
    differs("config_format", _FILES, "auto"),
    differs("load_format", "GGUF and safetensors are recognized", "auto"),
    differs("quantization", "the file says how its weights are quantized", flags=("-q",)),
    differs("trust_remote_code", "code that comes with a model is never run", False),
    differs("code_revision", "code that comes with a model is never run"),
    differs("model_impl", "models are computed by headrace's own code", "auto", "vllm"),
    differs("runner", "models generate text", "auto", "generate"),
    differs("task", "models generate text", "auto", "generate"),
    differs("convert", "models generate text", "auto", "none"),
    not_there_yet("pooler_config", "there are no embeddings; models generate text"),
    not_there_yet("override_pooler_config", "there are no embeddings; models generate text"),
    without_effect("model_loader_extra_config", "weights are mapped from their files"),
    without_effect("safetensors_load_strategy", "weights are mapped from their files"),
    without_effect("ignore_patterns", "only the files that are needed are fetched"),
    without_effect("use_tqdm_on_load", "the logger headrace.llm reports what is fetched"),
    without_effect("pt_load_map_location", "PyTorch's files are not read"),
    without_effect("allow_deprecated_quantization", "the file says how its weights are quantized"),
    without_effect("max_parallel_loading_workers", "weights are mapped from their files"),
    differs("override_generation_config", "{generation_config} takes a file with other values", {}),
    differs("seed", "each request has a seed of its own, which SamplingParams takes"),
    # Memory
    without_effect("swap_space", "nothing is swapped; a preempted request is computed again"),
    without_effect("preemption_mode", "a preempted request is computed again"),
    without_effect("cpu_offload_gb", _GPU),
    without_effect("cpu_offload_params", _GPU),
    not_there_yet("kv_offloading_size", _ELSEWHERE),
    without_effect("kv_offloading_backend", _ELSEWHERE),
    not_there_yet("kv_transfer_config", _ELSEWHERE),
    not_there_yet("kv_events_config", _ELSEWHERE),
    not_there_yet("ec_transfer_config", _ELSEWHERE),
    not_there_yet("calculate_kv_scales", "the cache has no type that needs scales; it holds f32 "
                  "or bf16", False),
    not_there_yet("kv_sharing_fast_prefill", "no layer is skipped for a prompt", False),
    not_there_yet("enable_sleep_mode", "an engine cannot release its memory; it keeps it until it "
                  "ends", False),
    not_there_yet("weight_transfer_config", "weights cannot be replaced while an engine runs; they "
                  "are read once, from files"),
    without_effect("prefix_caching_hash_algo", "the prefix cache compares token ids, not hashes"),
    without_effect("use_v2_block_manager", "there is one block manager"),
    without_effect("disable_hybrid_kv_cache_manager",
                   "layers with a sliding window always keep only what they need"),
    differs("disable_sliding_window", "windows are those of the model", False),
    without_effect("mamba_block_size", "models are transformers"),
    without_effect("mamba_cache_dtype", "models are transformers"),
    without_effect("mamba_ssm_cache_dtype", "models are transformers"),
    without_effect("mamba_cache_mode", "models are transformers"),
    # Scheduling
    differs("enable_chunked_prefill",
            "prompts longer than {max_num_batched_tokens} are always computed in chunks", True),
    without_effect("max_num_partial_prefills", _BATCHING),
    without_effect("max_long_partial_prefills", _BATCHING),
    without_effect("long_prefill_token_threshold", _BATCHING),
    without_effect("scheduler_delay_factor", "a request starts as soon as there is room for it"),
    without_effect("num_scheduler_steps", "each step is scheduled by itself"),
    without_effect("multi_step_stream_outputs", "each step is scheduled by itself"),
    without_effect("disable_async_output_proc", "each step is scheduled by itself"),
    without_effect("num_lookahead_slots", _DRAFTS),
    differs("stream_interval", "every token is sent when it is there", 1),
    differs("scheduler_cls", _NO_CODE),
    # What computes
    without_effect("max_seq_len_to_capture", _GRAPHS),
    without_effect("cudagraph_capture_sizes", _GRAPHS),
    without_effect("max_cudagraph_capture_size", _GRAPHS),
    without_effect("cuda_graph_sizes", _GRAPHS),
    without_effect("compilation_config", _GRAPHS, flags=("-O", "-cc")),
    without_effect("optimization_level", _GRAPHS),
    without_effect("disable_cascade_attn", _KERNELS),
    differs("attention_backend", _KERNELS),
    differs("attention_config", _KERNELS),
    differs("override_attention_dtype", _KERNELS),
    differs("moe_backend", _KERNELS, "auto"),
    differs("linear_backend", _KERNELS, "auto"),
    differs("logprobs_mode", "log probabilities are those of the model, before temperature and "
            "filters", "raw_logprobs"),
    # Several devices
    not_there_yet("tensor_parallel_size", _ONE_PROCESS, 1, flags=("-tp",)),
    not_there_yet("pipeline_parallel_size", _ONE_PROCESS, 1, flags=("-pp",)),
    not_there_yet("prefill_context_parallel_size", _ONE_PROCESS, 1, flags=("-pcp",)),
    not_there_yet("decode_context_parallel_size", _ONE_PROCESS, 1, flags=("-dcp",)),
    not_there_yet("data_parallel_size", _ONE_PROCESS, 1, flags=("-dp",)),
    not_there_yet("data_parallel_size_local", _ONE_PROCESS, 1, flags=("-dpl",)),
    not_there_yet("data_parallel_rank", _ONE_PROCESS, 0, flags=("-dpn",)),
    not_there_yet("data_parallel_start_rank", _ONE_PROCESS, 0, flags=("-dpr",)),
    not_there_yet("data_parallel_hybrid_lb", _ONE_PROCESS, False, flags=("-dph",)),
    not_there_yet("data_parallel_external_lb", _ONE_PROCESS, False, flags=("-dpe",)),
    without_effect("data_parallel_address", _ONE_PROCESS, flags=("-dpa",)),
    without_effect("data_parallel_rpc_port", _ONE_PROCESS, flags=("-dpp",)),
    without_effect("data_parallel_backend", _ONE_PROCESS, flags=("-dpb",)),
    not_there_yet("nnodes", _ONE_PROCESS, 1, flags=("-n",)),
    not_there_yet("node_rank", _ONE_PROCESS, 0, flags=("-r",)),
    without_effect("master_addr", _ONE_PROCESS),
    without_effect("master_port", _ONE_PROCESS),
    without_effect("dcp_kv_cache_interleave_size", _ONE_PROCESS),
    without_effect("cp_kv_cache_interleave_size", _ONE_PROCESS),
    without_effect("distributed_executor_backend", _ONE_PROCESS),
    without_effect("disable_custom_all_reduce", _ONE_PROCESS),
    without_effect("disable_nccl_for_dp_synchronization", _ONE_PROCESS),
    without_effect("worker_use_ray", _ONE_PROCESS),
    without_effect("ray_workers_use_nsight", _ONE_PROCESS),
    without_effect("tokenizer_pool_size", "texts are encoded in threads of the server"),
    without_effect("tokenizer_pool_type", "texts are encoded in threads of the server"),
    without_effect("tokenizer_pool_extra_config", "texts are encoded in threads of the server"),
    differs("worker_cls", _NO_CODE, "auto"),
    differs("worker_extension_cls", _NO_CODE, ""),
    not_there_yet("enable_expert_parallel", _ONE_PROCESS, False, flags=("-ep",)),
    not_there_yet("enable_eplb", _ONE_PROCESS, False),
    without_effect("eplb_config", _ONE_PROCESS),
    without_effect("expert_placement_strategy", _ONE_PROCESS),
    without_effect("all2all_backend", _ONE_PROCESS),
    not_there_yet("enable_dbo", _ONE_PROCESS, False),
    without_effect("ubatch_size", _ONE_PROCESS),
    without_effect("dbo_decode_token_threshold", _ONE_PROCESS),
    without_effect("dbo_prefill_token_threshold", _ONE_PROCESS),
    not_there_yet("enable_fault_tolerance", _ONE_PROCESS, False),
    # What models can do
    renamed("speculative_model", _DRAFTS),
    renamed("num_speculative_tokens", _DRAFTS),
    not_there_yet("enable_lora", _LORA, False),
    without_effect("enable_lora_bias", _LORA),
    without_effect("max_loras", _LORA),
    without_effect("max_lora_rank", _LORA),
    without_effect("max_cpu_loras", _LORA),
    without_effect("lora_dtype", _LORA),
    without_effect("lora_extra_vocab_size", _LORA),
    without_effect("long_lora_scaling_factors", _LORA),
    without_effect("fully_sharded_loras", _LORA),
    without_effect("specialize_active_lora", _LORA),
    not_there_yet("default_mm_loras", _LORA),
    not_there_yet("enable_tower_connector_lora", _LORA, False),
    not_there_yet("enable_prompt_adapter", "prompt adapters are not loaded", False),
    without_effect("max_prompt_adapters", "prompt adapters are not loaded"),
    without_effect("max_prompt_adapter_token", "prompt adapters are not loaded"),
    not_there_yet("enable_prompt_embeds", "prompts cannot be embeddings; they are text or token "
                  "ids", False),
    not_there_yet("enable_return_routed_experts", "which experts computed a token is not returned",
                  False),
    not_there_yet("limit_mm_per_prompt", _TEXT, {}),
    not_there_yet("enable_mm_embeds", _TEXT, False),
    without_effect("interleave_mm_strings", _TEXT),
    without_effect("media_io_kwargs", _TEXT),
    without_effect("mm_processor_kwargs", _TEXT),
    without_effect("mm_processor_cache_gb", _TEXT),
    without_effect("mm_processor_cache_type", _TEXT),
    without_effect("mm_shm_cache_max_object_size_mb", _TEXT),
    without_effect("mm_encoder_tp_mode", _TEXT),
    without_effect("mm_encoder_attn_backend", _TEXT),
    not_there_yet("mm_encoder_only", _TEXT, False),
    without_effect("skip_mm_profiling", _TEXT),
    without_effect("video_pruning_rate", _TEXT),
    without_effect("disable_mm_preprocessor_cache", _TEXT),
    without_effect("disable_chunked_mm_input", _TEXT),
    without_effect("allowed_local_media_path", _TEXT),
    without_effect("allowed_media_domains", _TEXT),
    differs("structured_outputs_config", _STRUCTURED, {}, {"backend": "auto"},
            {"backend": "guidance"}),
    differs("guided_decoding_backend", _STRUCTURED, "auto", "guidance"),
    without_effect("guided_decoding_disable_fallback", "there is no other backend to fall back "
                   "to"),
    differs("reasoning_parser_plugin", f"{_NO_CODE}; `serve` has --reasoning-parser for the "
            "formats that are built in", ""),
    without_effect("enable_reasoning", "reasoning is always separated from the answer where the "
                   "chat template shows its format"),
    differs("logits_processors", f"{_NO_CODE}; SamplingParams has logit_bias, allowed_token_ids "
            "and bad_words_token_ids", []),
    differs("logits_processor_pattern", _NO_CODE),
    differs("io_processor_plugin", _NO_CODE),
    differs("additional_config", _NO_CODE, {}),
    # What is reported
    without_effect("disable_log_stats", _STATISTICS),
    without_effect("disable_log_requests", "requests are logged with {enable_log_requests} alone"),
    without_effect("aggregate_engine_logging", _STATISTICS),
    without_effect("show_hidden_metrics_for_version", "no metric is hidden"),
    without_effect("enable_logging_iteration_details", _STATISTICS),
    without_effect("enable_mm_processor_stats", _TEXT),
    without_effect("cudagraph_metrics", _GRAPHS),
    without_effect("enable_layerwise_nvtx_tracing", _GRAPHS),
    not_there_yet("collect_detailed_traces", "steps have no spans; requests have them "
                  "({otlp_traces_endpoint})"),
    not_there_yet("kv_cache_metrics", "metrics do not say how long blocks live", False),
    without_effect("kv_cache_metrics_sample", "metrics do not say how long blocks live"),
    differs("enable_mfu_metrics", "the metric headrace:last_step_mfu has it, as a share of the "
            "multiply rate that was measured on this machine", False),
    not_there_yet("profiler_config", "steps are not profiled; `headrace bench engine` measures "
                  "prefill and decode", {}),
)  # fmt: skip
