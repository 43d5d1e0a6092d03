"""Config keys that have no bearing on parameters, cache, operations or bytes, whatever the model."""

from __future__ import annotations

import re

# Endings and patterns of keys about training, sampling, tokens, losses, kernels and file bookkeeping.
_PATTERN = re.compile(
    r"""^_ | _token_ids?$ | ^(bos|eos|pad|sep|cls|mask|unk|image|video|audio|vision|boi|eoi|boa|eoa)_(token|index)
    | drop(out|path)? | pdrop$ | initializer | init_ | ^init | _init$ | _eps$ | ^eps | epsilon | loss | aux | jitter
    | ^use_cache$ | ^(torch_)?dtype$ | transformers_version | ^auto_map$ | ^name_or_path$ | ^task_specific | pretraining_tp
    | ^rope_ | _rope_ | _rope$ | rotary | ^id2label$ | ^label2id$ | ^problem_type$ | ^finetuning_task$ | ^tokenizer
    | ^output_ | ^return_dict | ^torchscript$ | ^use_return_dict$ | ^prefix$ | ^chunk_size_feed | generation
    | ^(do_sample|max_length|min_length|temperature|top_p|typical_p|num_beams|num_return|num_assist|repetition|length_p
    |early_stopping|no_repeat|diversity|bad_words|forced_|begin_suppress|suppress|encoder_no_repeat|exponential_decay
    |remove_invalid|tf_legacy|use_bfloat16|pruned_heads|cross_attention_hidden_size|is_composition)
    | softcap | _cap$ | scal(e|ing)(_factor|r)?$ | multiplier$ | mscale | ^scale_ | ^summary_ | flash | kernel_type
    | ^norm_topk_prob$ | ^(n|num|topk)_group | ^topk_ | scoring_func | ^router_ | seq_aux | ^ep_size$ | ^is_decoder$
    | ^use_(fused|mem_eff|triton|te|parallel|gradient|pallas) | offload | ^seed$ | ^quantization | ^compression_config
    | ^attn_implementation | ^_attn | ^sdpa | bf16$ | ^fp(16|32)$ | ^version$ | ^model_max_length$ | clip_ | ^clip
    | ^time_step_(min|max|floor|limit|init|scale) | ^rescale | gradient_checkpoint | ^language$ | ^license | unk_id$
    | ^partial_ | mrope | interleave$ | interleaved$ | ^video_ | ^image_(mean|std|token) | ^use_qkv_fusion$
    | ^residual_in_fp32$ | ^(hidden|mlp)_act | ^activation | _act$ | hidden_activation | act_fn | ^afn$ | ^logit
    | attention_type$ | ^layer_norm_type | normalization | ^unsloth | ^model_type$ | ^architectures$ | ^transformers
    """,
    re.VERBOSE,
)


def harmless(key: str) -> bool:
    """Whether a key is known to change no figure."""
    return _PATTERN.search(key) is not None
