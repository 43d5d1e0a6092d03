"""Config keys that have no bearing on parameters, cache, operations or bytes, whatever the model."""

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
    seq_aux ep_size router_aux_loss_coef routed_scaling_factor scoring_func topk_method topk_group n_group aux_loss_alpha
       final_logit_softcapping attn_logit_softcapping query_pre_attn_scalar
    """.split()
)

# Endings and patterns of keys about training, sampling, tokens, losses, kernels and file bookkeeping.
_PATTERN = r"""
    ^_ | _token_ids?$ | ^(bos|eos|pad|sep|cls|mask|unk|image|video|audio|vision|boi|eoi|boa|eoa)_(token|index)
    | drop(out|path)? | pdrop$ | initializer | init_ | ^init | _init$ | _eps$ | ^eps | epsilon | loss | aux | jitter
    | ^use_cache$ | ^(torch_)?dtype$ | transformers_version | ^auto_map$ | ^name_or_path$ | ^task_specific
    | pretraining_tp
    | ^rope_ | _rope_ | _rope$ | rotary | ^id2label$ | ^label2id$ | ^problem_type$ | ^finetuning_task$ | ^tokenizer
    | ^output_ | ^return_dict | ^torchscript$ | ^use_return_dict$ | ^prefix$ | ^chunk_size_feed | generation
    | ^(do_sample|max_length|min_length|temperature|top_p|typical_p|num_beams|num_return|num_assist|repetition|length_p
    |early_stopping|no_repeat|diversity|bad_words|forced_|begin_suppress|suppress|encoder_no_repeat|exponential_decay
    |remove_invalid|tf_legacy|use_bfloat16|pruned_heads|cross_attention_hidden_size|is_composition)
    | softcap | _cap$ | scal(e|ing)(_factor|r)?$ | multiplier$ | mscale | ^scale_ | ^summary_ | flash | kernel_type
    | ^norm_topk_prob$ | ^(n|num|topk)_group | ^topk_ | scoring_func | ^router_ | seq_aux | ^ep_size$
    | ^is_(encoder_)?decoder$
    | ^use_(fused|mem_eff|triton|te|parallel|gradient|pallas) | offload | ^seed$ | ^quantization | ^compression_config
    | ^attn_implementation | ^_attn | ^sdpa | bf16$ | ^fp(16|32)$ | ^version$ | ^model_max_length$ | clip_ | ^clip
    | ^time_step_(min|max|floor|limit|init|scale) | ^rescale | gradient_checkpoint | ^language$ | ^license | unk_id$
    | ^partial_ | mrope | interleave$ | interleaved$ | ^video_ | ^image_(mean|std|token) | ^use_qkv_fusion$
    | ^residual_in_fp32$ | ^(hidden|mlp)_act | ^activation | _act$ | hidden_activation | act_fn | ^afn$ | ^logit
    | in_fp32 | ^masked_softmax_fusion$ | ^skip_bias_add | residual_connection | ^cache_implementation$ | ^original_max_
    | ^n_special$ | ^predict_special | checkpoint_enabled$ | parallel_enabled$ | ^is_llama_config$ | ^use_bidirectional
    | attention_type$ | ^layer_norm_type | normalization | ^unsloth | ^model_type$ | ^architectures$ | ^transformers
    """


@cache
def _pattern() -> re.Pattern[str]:
    return re.compile(_PATTERN, re.VERBOSE)


def harmless(key: str) -> bool:
    """Whether a key is known to change no figure."""
    return key in _USUAL or _pattern().search(key) is not None
