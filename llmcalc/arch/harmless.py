"""Config keys that have no bearing on parameters, cache, operations or bytes, whatever the model.

A pattern names whole keys: nothing that could be a size (a width, a count of heads, layers, groups, experts) may match.
"""

from __future__ import annotations

import re
from functools import cache

# The keys of nearly every file, so that most configs are read without the patterns below.
_USUAL = frozenset(
    """
    architectures model_type torch_dtype dtype transformers_version bos_token_id eos_token_id pad_token_id unk_token_id
    attention_dropout hidden_dropout embd_pdrop attn_pdrop resid_pdrop initializer_range use_cache rms_norm_eps
    layer_norm_eps layer_norm_epsilon norm_eps pretraining_tp rope_theta rope_scaling rope_parameters rope_interleave
    auto_map _name_or_path quantization_config hidden_act partial_rotary_factor norm_topk_prob output_router_logits
    seq_aux ep_size router_aux_loss_coef routed_scaling_factor scoring_func topk_method topk_group n_group
    aux_loss_alpha final_logit_softcapping attn_logit_softcapping query_pre_attn_scalar
    """.split()
)

_PATTERN = r"""
    # tokens and labels
    (\w+_)?token_(id|ids|index|idx|offset) | (\w+_)?(bos|eos|pad|sep|cls|mask|unk|bot|eot)_(token|index|id)
    | (image|video|audio|vision|boi|eoi|boa|eoa)_(token|index) | id2label | label2id | problem_type | finetuning_task
    | tokenizer\w* | language | prefix | ignore_index | (media|video|image)_placeholder\w* | _num_labels
    # training: dropout, initialisation, losses, memory
    | \w*(dropout|droppath|drop_path|drop_rate|pdrop|layerdrop)\w* | \w*initializer\w*
    | (\w+_)?init_(std|device|method|config |scale|range|cutoff_factor)\w* | \w*_?init(ial)?_(scale_)?value
    | initial_\w+_scale | initial_context_length | \w*_init | \w*jitter\w* | \w*_loss | \w*loss_\w+ | \w*_aux
    | aux_\w+ | \w*epsilon\w* | (\w+_)?eps | \w+_eps | pretraining_tp | gradient_checkpoint\w*
    | \w+_checkpoint_enabled | \w+_parallel_enabled | seed | offload\w* | unsloth\w* | task_specific_params
    # positions: how they turn, not how many there are
    | (\w+_)?rope_(theta|scaling|parameters|base|type|ratio|pct|percentage|interleaved?|local_base_freq|freq\w*)
    | (original|use|default|mscale)_rope\w* | rotary_(pct|base|percent|emb_base|embedding_base|value|emb_\w+)
    | mrope_\w+ | use_(rotary|m?rope)\w* | (\w+_)?interleaved? | partial_rotary\w* | original_max_position_embeddings
    | max_timescale
    # numbers that scale activations
    | \w*softcap\w* | \w+_cap | (?!layer_)\w+_scal(e|ing)(_factor)?
    | (?!ffn|channel|depth|mlp)(\w+_)?(multiplier|mscale\w*)
    | scale_(emb|depth|attn\w*|embedding |attention\w*|input|sqrt_depth) | (\w+_)?scaling | logit\w*_scale | clip_\w+
    | swiglu_limit | embed_scale
    # routing
    | (norm|topk)_(topk_prob|method) | (n|topk)_group | topk_group | scoring_func
    | router_(aux\w*|dtype|z\w*|jitter\w* |ignore\w*|type) | moe_router_\w+ | moe_use_aux_free | seq_aux | ep_size
    | router_\w+_coef
    # kernels, numerics, serving
    | (use_)?(flash|mem_eff|triton|pallas|fused)(_\w+)? | use_(te|cute|kernels?)
    | \w*(softmax_in_fp32|in_fp32|fused_softmax|softmax_fusion) | attn_implementation | _attn_implementation\w*
    | sdpa\w* | bf16 | fp16 | fp32 | \w+_(bf16|fp32|fp16) | skip_bias_add\w* | \w*kernel_type
    | use_(parallel_embedding|gradient\w*|qkv_fusion|cache) | cache_implementation | return_dict\w* | torchscript
    | output_(attentions|hidden_states|scores|router_logits|past|\w+_logits) | use_return_dict | use_bfloat16
    | tf_legacy_loss
    # activations: which function, not how wide
    | (\w+_)?(hidden_act|activation|activation_function|act|act_fn|hidden_activation|afn) | \w*normalization
    | layer_norm_type
    # sampling and text generation
    | do_sample | (max|min)_length | temperature | top_[kp] | typical_p | num_beam\w* | num_(return|assist)\w*
    | \w*repetition\w* | length_penalty | early_stopping | \w*no_repeat\w* | \w*diversity\w* | bad_words_ids
    | forced_\w+ | begin_suppress\w* | suppress_tokens | exponential_decay\w* | remove_invalid\w* | pruned_heads
    | cross_attention_hidden_size | is_composition | \w*generation\w* | chunk_size_feed_forward | summary_\w+
    | predict_special_tokens | n_special
    # scans
    | time_step_(min|max|floor|limit|init\w*|scale) | rescale_\w+
    # bookkeeping
    | _(name_or_path|commit_hash|attn\w+|auto_class|from_model_config|comment\w*|experts_implementation) | auto_map
    | version | name_or_path | license\w* | transformers(_|\.)\w+ | model_type | architectures
    | quantization(_config)? | compression_config | is_(encoder_)?decoder | is_llama_config | model_max_length
    | \w*residual_connection\w* | residual_in_fp32 | use_bidirectional\w* | image_(mean|std) | (torch_)?dtype
    """


@cache
def _pattern() -> re.Pattern[str]:
    return re.compile(_PATTERN, re.VERBOSE)


def harmless(key: str) -> bool:
    """Whether a key is known to change no figure."""
    return key in _USUAL or _pattern().fullmatch(key) is not None
