"""The one table of how each family's files spell its weights; the notation is explained in :mod:`.names`.

Source: what transformers 5.24 saves (tests/verify) and the published files of the families it does not know. A family
that is not here saves the canonical names.
"""

from __future__ import annotations

# What any family's files may do, whatever the usual spelling.
EVERY = """
.experts.{}.gate_proj + .experts.{}.up_proj ?= .experts.gate_up_proj[] | .experts.gate_up_proj[]'
.experts.{}.down_proj ?= .experts.down_proj[] | .experts.down_proj[]'
.gate_proj + .up_proj ?= .gate_up_proj
self_attn.q_proj + self_attn.k_proj + self_attn.v_proj ?= self_attn.qkv_proj
.LayerNorm.weight ?= .LayerNorm.gamma
.LayerNorm.bias ?= .LayerNorm.beta
"""

_BERT = """
attention.q_proj = attention.self.query
attention.k_proj = attention.self.key
attention.v_proj = attention.self.value
attention.o_proj = attention.output.dense
ffn.up_proj = intermediate.dense
ffn.down_proj = output.dense
cls.predictions.decoder.bias = cls.predictions.bias | cls.predictions.decoder.bias
lm_head.decoder.bias = lm_head.bias | lm_head.decoder.bias
"""

_W123 = """
.experts.{}.gate_proj + .experts.{}.up_proj ?= .experts.gate_up_proj[] | .experts.gate_up_proj[]'
.experts.{}.gate_proj = .experts.{}.w1
.experts.{}.up_proj = .experts.{}.w3
.experts.{}.down_proj = .experts.{}.w2 | .experts.down_proj[] | .experts.down_proj[]'
"""

_MIXTRAL = f"""
{_W123}
mlp. = block_sparse_moe. | mlp.
"""

_GRANITE = """
.experts.{}.gate_proj + .experts.{}.up_proj = .input_linear.weight[] | .experts.gate_up_proj[]
.experts.{}.down_proj = .output_linear.weight[] | .experts.down_proj[]
.gate = .router.layer | .router
mlp.shared_experts.gate_proj + mlp.shared_experts.up_proj = shared_mlp.input_linear
mlp.shared_experts.down_proj = shared_mlp.output_linear
mlp. = block_sparse_moe.
"""

_GPT2 = """
@ transformer.h
model.embed_tokens = transformer.wte
model.embed_positions = transformer.wpe
model.norm = transformer.ln_f
input_layernorm = ln_1
post_attention_layernorm = ln_2
self_attn.q_proj + self_attn.k_proj + self_attn.v_proj = attn.c_attn'
self_attn.o_proj = attn.c_proj'
mlp.up_proj = mlp.c_fc'
mlp.down_proj = mlp.c_proj'
"""

_GPTJ = """
@ transformer.h
model.embed_tokens = transformer.wte
model.norm = transformer.ln_f
input_layernorm = ln_1
mlp.up_proj = mlp.fc_in
mlp.down_proj = mlp.fc_out
"""

_BLOOM = """
@ transformer.h
model.embed_tokens = transformer.word_embeddings
model.embed_layernorm = transformer.word_embeddings_layernorm
model.norm = transformer.ln_f
self_attn.q_proj + self_attn.k_proj + self_attn.v_proj = self_attention.query_key_value
self_attn.o_proj = self_attention.dense
mlp.up_proj = mlp.dense_h_to_4h
mlp.down_proj = mlp.dense_4h_to_h
"""

_T5 = """
shared = shared | encoder.embed_tokens | decoder.embed_tokens
.gate_proj = .wi_0
.up_proj = .wi | .wi_1
.down_proj = .wo
.q_proj = .q
.k_proj = .k
.v_proj = .v
.o_proj = .o
"""

_BART = """
model.shared = model.shared | model.decoder.embed_tokens | model.encoder.embed_tokens
.mlp.up_proj = .fc1
.mlp.down_proj = .fc2
mlp.up_proj = fc1
mlp.down_proj = fc2
.o_proj = .out_proj
"""

_FC12 = """
mlp.up_proj = mlp.fc1
mlp.down_proj = mlp.fc2
"""

_LFM = f"""
{_W123}
feed_forward.gate_proj = feed_forward.w1
feed_forward.up_proj = feed_forward.w3
feed_forward.down_proj = feed_forward.w2
self_attn.o_proj ?= self_attn.out_proj
self_attn.q_norm ?= self_attn.q_layernorm
self_attn.k_norm ?= self_attn.k_layernorm
feed_forward.gate.e_score_correction_bias = feed_forward.expert_bias
"""

_NORMS_GLM4 = """
post_attention_layernorm = post_self_attn_layernorm
pre_feedforward_layernorm = post_attention_layernorm
post_feedforward_layernorm = post_mlp_layernorm
mlp.gate_proj + mlp.up_proj = mlp.gate_up_proj
"""

_SHARED = """
.shared_experts.gate_proj ?= .shared_expert.gate_proj
.shared_experts.up_proj ?= .shared_expert.up_proj
.shared_experts.down_proj ?= .shared_expert.down_proj
"""

_SHARED_MLP = """
.shared_experts.gate_proj = .shared_mlp.gate_proj
.shared_experts.up_proj = .shared_mlp.up_proj
.shared_experts.down_proj = .shared_mlp.down_proj
"""

_BAILING = """
model.embed_tokens = model.word_embeddings
self_attn.q_proj + self_attn.k_proj + self_attn.v_proj = attention.query_key_value
self_attn.o_proj = attention.dense
self_attn.q_norm = attention.query_layernorm
self_attn.k_norm = attention.key_layernorm
mlp.gate.e_score_correction_bias = mlp.gate.expert_bias
attention.o_proj = attention.dense
"""

# llama.cpp's names, whatever the family (gguf-py ``tensor_mapping.py``, ``conversion/``).
_ALTUP = "model.{ours}.0 + model.{ours}.1 + model.{ours}.2 = {theirs}~"
_GGUF = f"""
@ blk
model.embed_tokens = token_embd
model.embed_positions = position_embd
model.embed_layernorm = token_embd_norm
model.embedding_norm = token_embd_norm
model.embed_tokens_per_layer = per_layer_token_embd
model.per_layer_model_projection = per_layer_model_proj
model.per_layer_projection_norm = per_layer_proj_norm
{_ALTUP.format(ours="altup_projections", theirs="altup_proj")}
{_ALTUP.format(ours="altup_unembed_projections", theirs="altup_unembd_proj")}
model.norm = output_norm
model.final_layernorm = output_norm
backbone.embeddings = token_embd
backbone.norm_f = output_norm
lm_head = output
input_layernorm = attn_norm
norm = attn_norm
operator_norm = attn_norm
ffn_norm = ffn_norm
pre_feedforward_layernorm = ffn_norm
pre_ff_layernorm = ffn_norm
post_feedforward_layernorm = post_ffw_norm
post_attention_layernorm = ffn_norm | post_attention_norm
per_layer_input_gate = inp_gate
per_layer_projection = proj
post_per_layer_input_norm = post_norm
altup.correct_output_scale = altup_correct_scale.weight
altup.correction_coefs = altup_correct_coef
altup.prediction_coefs = altup_predict_coef
altup.modality_router = altup_router
altup.router_norm = altup_router_norm
laurel.linear_left = laurel_l
laurel.linear_right = laurel_r
laurel.post_laurel_norm = laurel_post_norm
linear_attn.in_proj_qkvz = attn_qkv & attn_gate | ssm_in
linear_attn.in_proj_ba = ssm_ba | ssm_beta_alpha
linear_attn.in_proj_qkv = attn_qkv
linear_attn.in_proj_z = attn_gate
linear_attn.in_proj_b = ssm_beta
linear_attn.in_proj_a = ssm_alpha
linear_attn.dt_bias = ssm_dt.bias
conv.in_proj = shortconv.in_proj
conv.out_proj = shortconv.out_proj
conv.conv = shortconv.conv
self_attn.gate_proj = attn_gate
self_attn.sinks = attn_sinks.weight
.q_proj + .k_proj + .v_proj ?= .attn_qkv
.q_proj = .attn_q
.k_proj = .attn_k
.v_proj = .attn_v
.o_proj = .attn_output
.indexer.k_norm = .indexer.k_norm
.q_norm = .attn_q_norm
.k_norm = .attn_k_norm
.q_a_proj = .attn_q_a
.q_b_proj = .attn_q_b
.q_a_layernorm = .attn_q_a_norm
.kv_a_proj_with_mqa = .attn_kv_a_mqa
.kv_a_layernorm = .attn_kv_a_norm
.kv_b_proj = .attn_k_b & attn_v_b | .attn_kv_b
.indexer.wq_b = .indexer.attn_q_b
.indexer.wk = .indexer.attn_k
.indexer.weights_proj = .indexer.proj
.experts.{{}}.gate_proj + .experts.{{}}.up_proj ?= .ffn_gate_up_exps.weight[]
.experts.{{}}.gate_proj = .ffn_gate_exps.weight[]
.experts.{{}}.up_proj = .ffn_up_exps.weight[]
.experts.{{}}.down_proj = .ffn_down_exps.weight[]
.shared_experts.gate_proj = .ffn_gate_shexp
.shared_experts.up_proj = .ffn_up_shexp
.shared_experts.down_proj = .ffn_down_shexp
.shared_expert_gate = .ffn_gate_inp_shexp
.gate.e_score_correction_bias = .exp_probs_b.bias | .exp_probs_b
.gate = .ffn_gate_inp
.gate_proj + .up_proj ?= .ffn_up
.gate_proj = .ffn_gate
.up_proj = .ffn_up
.down_proj = .ffn_down
.in_proj = .ssm_in
.out_proj = .ssm_out
.conv1d = .ssm_conv1d
.x_proj = .ssm_x
.dt_proj = .ssm_dt
.dt_bias = .ssm_dt.bias
.A_log = .ssm_a
.D = .ssm_d
.dt_layernorm = .ssm_dt_norm
.b_layernorm = .ssm_b_norm
.c_layernorm = .ssm_c_norm
mtp.eh_proj = nextn.eh_proj
mtp.fc = nextn.eh_proj
mtp.enorm = nextn.enorm
mtp.pre_fc_norm_embedding = nextn.enorm
mtp.hnorm = nextn.hnorm
mtp.pre_fc_norm_hidden = nextn.hnorm
mtp.shared_head.norm = nextn.shared_head_norm
mtp.norm = nextn.shared_head_norm
mtp.embed_tokens = nextn.embed_tokens
mtp.shared_head.head = nextn.shared_head_head
mamba.norm = ssm_norm~
mixer.norm = ssm_norm~
linear_attn.norm = ssm_norm
mlp. = .
feed_forward. = .
block_sparse_moe. = .
shared_mlp. = .
self_attn. = .
mixer. = .
mamba. = .
linear_attn. = .
moe. = .
"""

# Vision and audio towers, whoever wraps them.
_TOWER = """
self_attn.q_proj + self_attn.k_proj + self_attn.v_proj ?= attn.qkv | self_attn.qkv
self_attn.q_proj ?= attention.q_proj
self_attn.k_proj ?= attention.k_proj
self_attn.v_proj ?= attention.v_proj
self_attn.o_proj ?= attn.proj | self_attn.out_proj | attention.projection_layer | attention.o_proj
mlp.up_proj ?= mlp.fc1 | mlp.linear_fc1 | feed_forward.up_proj
mlp.down_proj ?= mlp.fc2 | mlp.linear_fc2 | feed_forward.down_proj
mlp.gate_proj ?= feed_forward.gate_proj
.position_embeddings.weight ?= .position_embeddings
.positional_embedding_vlm.weight ?= .positional_embedding_vlm
"""

_GGUF_SANDWICH = "post_attention_layernorm = post_attention_norm"

TABLE: dict[str, str] = {
    "gguf": _GGUF,
    "tower": _TOWER,
    "gguf:gemma4_text": """
        post_attention_layernorm = post_attention_norm
        post_feedforward_layernorm_1 = post_ffw_norm_1
        pre_feedforward_layernorm_2 = pre_ffw_norm_2
        post_feedforward_layernorm_2 = post_ffw_norm_2
        moe.gate.per_expert_scale = ffn_down_exps.scale
        layer_scalar = layer_output_scale.weight
    """,
    "gguf:falcon_h1": "pre_ff_layernorm.weight = ffn_norm",
    "gguf:apertus": """
        mlp.act_fn.alpha_p = -
        mlp.act_fn.alpha_n = -
        mlp.act_fn.beta = -
        mlp.act_fn.eps = -
    """,
    **{f"gguf:{family}": _GGUF_SANDWICH for family in (
        "gemma2", "gemma3_text", "gemma3n_text", "olmo2", "olmo3", "exaone4", "afmoe", "glm4")},
    "afmoe": """
        pre_feedforward_layernorm = pre_mlp_layernorm
        post_feedforward_layernorm = post_mlp_layernorm
        mlp.gate.e_score_correction_bias = mlp.expert_bias
        mlp.gate = mlp.router.gate
    """,
    "apertus": """
        input_layernorm = attention_layernorm
        post_attention_layernorm = feedforward_layernorm
    """,
    "aria_text": """
        mlp.experts.{}.gate_proj + mlp.experts.{}.up_proj = mlp.experts.fc1.weight[]'
        mlp.experts.{}.down_proj = mlp.experts.fc2.weight[]'
        mlp.gate = mlp.router
    """,
    "albert": """
        attention.q_proj = albert_layers.0.attention.query
        attention.k_proj = albert_layers.0.attention.key
        attention.v_proj = albert_layers.0.attention.value
        attention.o_proj = albert_layers.0.attention.dense
        attention.output.LayerNorm = albert_layers.0.attention.LayerNorm
        ffn.up_proj = albert_layers.0.ffn
        ffn.down_proj = albert_layers.0.ffn_output
        output.LayerNorm = albert_layers.0.full_layer_layer_norm
        predictions.decoder.bias = predictions.bias | predictions.decoder.bias
    """,
    "baichuan": "self_attn.q_proj + self_attn.k_proj + self_attn.v_proj = self_attn.W_pack",
    "bailing_hybrid": _BAILING, "bailing_moe": _BAILING, "bailing_moe_linear": _BAILING, "sarvam_moe": _BAILING,
    "bart": _BART, "plbart": _BART, "mbart": _BART, "blenderbot": _BART, "blenderbot-small": _BART, "pegasus": _BART,
    "marian": _BART, "m2m_100": _BART, "whisper": _BART,
    "bert": _BERT, "ernie": _BERT, "roberta": _BERT, "xlm-roberta": _BERT, "camembert": _BERT, "electra": _BERT,
    "data2vec-text": _BERT,
    "biogpt": """
        @ biogpt.layers
        model.embed_tokens = biogpt.embed_tokens
        model.embed_positions = biogpt.embed_positions
        model.norm = biogpt.layer_norm
        lm_head = output_projection
        input_layernorm = self_attn_layer_norm
        post_attention_layernorm = final_layer_norm
        mlp.up_proj = fc1
        mlp.down_proj = fc2
        self_attn.o_proj = self_attn.out_proj
    """,
    "bloom": _BLOOM,
    "chatglm": """
        @ transformer.encoder.layers
        model.embed_tokens = transformer.embedding.word_embeddings
        model.norm = transformer.encoder.final_layernorm
        lm_head = transformer.output_layer
        self_attn.q_proj + self_attn.k_proj + self_attn.v_proj = self_attention.query_key_value
        self_attn.o_proj = self_attention.dense
        mlp.gate_proj + mlp.up_proj = mlp.dense_h_to_4h
        mlp.down_proj = mlp.dense_4h_to_h
    """,
    "codegen": _GPTJ + """
        self_attn.q_proj + self_attn.k_proj + self_attn.v_proj = attn.qkv_proj
        self_attn.o_proj = attn.out_proj
    """,
    "ctrl": """
        @ transformer.h
        model.embed_tokens = transformer.w
        model.norm = transformer.layernorm
        self_attn.q_proj = multi_head_attention.Wq
        self_attn.k_proj = multi_head_attention.Wk
        self_attn.v_proj = multi_head_attention.Wv
        self_attn.o_proj = multi_head_attention.dense
        mlp.up_proj = ffn.0
        mlp.down_proj = ffn.2
        input_layernorm = layernorm1
        post_attention_layernorm = layernorm2
    """,
    "dbrx": """
        @ transformer.blocks
        model.embed_tokens = transformer.wte
        model.norm = transformer.norm_f
        input_layernorm = norm_attn_norm.norm_1
        post_attention_layernorm = norm_attn_norm.norm_2
        self_attn.q_proj + self_attn.k_proj + self_attn.v_proj = norm_attn_norm.attn.Wqkv
        self_attn.o_proj = norm_attn_norm.attn.out_proj
        .experts.{}.gate_proj = .experts.mlp.w1[flat]
        .experts.{}.up_proj = .experts.mlp.v1[flat]
        .experts.{}.down_proj = .experts.mlp.w2[flat]'
        mlp.gate = ffn.router.layer
        mlp. = ffn.
    """,
    "deberta-v2": """
        attention.q_proj = attention.self.query_proj
        attention.k_proj = attention.self.key_proj
        attention.v_proj = attention.self.value_proj
        attention.o_proj = attention.output.dense
        attention.pos_key_proj = attention.self.pos_key_proj
        attention.pos_query_proj = attention.self.pos_query_proj
        ffn.up_proj = intermediate.dense
        ffn.down_proj = output.dense
        cls.predictions.decoder.bias = cls.predictions.bias | cls.predictions.decoder.bias
        lm_predictions.lm_head.decoder.bias = lm_predictions.lm_head.bias
    """,
    "deepseek_v4": """
        model.hc_head.fn = model.hc_head.hc_fn | hc_head_fn
        model.hc_head.base = model.hc_head.hc_base | hc_head_base
        model.hc_head.scale = model.hc_head.hc_scale | hc_head_scale
        lm_head = head
        attn_hc.fn = hc_attn_fn
        attn_hc.base = hc_attn_base
        attn_hc.scale = hc_attn_scale
        ffn_hc.fn = hc_ffn_fn
        ffn_hc.base = hc_ffn_base
        ffn_hc.scale = hc_ffn_scale
        input_layernorm = attn_norm
        post_attention_layernorm = ffn_norm
        self_attn.sinks = attn.attn_sink
        self_attn.q_a_proj = attn.wq_a
        self_attn.q_a_norm = attn.q_norm
        self_attn.q_b_proj = attn.wq_b
        self_attn.kv_proj = attn.wkv
        self_attn.kv_norm = attn.norm | attn.kv_norm
        self_attn.o_a_proj = attn.wo_a
        self_attn.o_b_proj = attn.wo_b
        .compressor.gate_proj = .compressor.wgate
        .compressor.kv_proj = .compressor.wkv
        .gate_proj = .w1
        .up_proj = .w3
        .down_proj = .w2
        .compressor.kv_norm = .compressor.norm
        .compressor.position_bias = .compressor.ape
        mlp. = ffn.
        self_attn. = attn.
    """,
    "distilbert": """
        attention.q_proj = attention.q_lin
        attention.k_proj = attention.k_lin
        attention.v_proj = attention.v_lin
        attention.o_proj = attention.out_lin
        attention.output.LayerNorm = sa_layer_norm
        ffn.up_proj = ffn.lin1
        ffn.down_proj = ffn.lin2
        output.LayerNorm = output_layer_norm
    """,
    "ernie4_5_moe": "mlp.gate.e_score_correction_bias = mlp.moe_statics.e_score_correction_bias",
    "exaone": """
        @ transformer.h
        model.embed_tokens = transformer.wte
        model.norm = transformer.ln_f
        input_layernorm = ln_1
        post_attention_layernorm = ln_2
        self_attn.o_proj = attn.attention.out_proj
        mlp.gate_proj = mlp.c_fc_0
        mlp.up_proj = mlp.c_fc_1
        mlp.down_proj = mlp.c_proj
        self_attn. = attn.attention.
    """,
    "exaone_moe": "mlp.gate.e_score_correction_bias = mlp.e_score_correction_bias",
    "falcon": _BLOOM + """
        input_layernorm = input_layernorm | ln_attn
        post_attention_layernorm = post_attention_layernorm | ln_mlp
    """,
    "gemma4_text": """
        moe.gate.scale = router.scale
        moe.gate.per_expert_scale = router.per_expert_scale
        moe.gate = router.proj
        moe. = .
    """,
    "glm": "mlp.gate_proj + mlp.up_proj = mlp.gate_up_proj",
    "glm4": _NORMS_GLM4, "glm4v_text": _NORMS_GLM4,
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2.replace("'", ""),
    "gpt_neo": """
        @ transformer.h
        model.embed_tokens = transformer.wte
        model.embed_positions = transformer.wpe
        model.norm = transformer.ln_f
        input_layernorm = ln_1
        post_attention_layernorm = ln_2
        self_attn.q_proj = attn.attention.q_proj
        self_attn.k_proj = attn.attention.k_proj
        self_attn.v_proj = attn.attention.v_proj
        self_attn.o_proj = attn.attention.out_proj
        mlp.up_proj = mlp.c_fc
        mlp.down_proj = mlp.c_proj
    """,
    "gpt_neox": """
        @ gpt_neox.layers
        model.embed_tokens = gpt_neox.embed_in
        model.norm = gpt_neox.final_layer_norm
        lm_head = embed_out
        self_attn.q_proj + self_attn.k_proj + self_attn.v_proj = attention.query_key_value
        self_attn.o_proj = attention.dense
        mlp.up_proj = mlp.dense_h_to_4h
        mlp.down_proj = mlp.dense_4h_to_h
    """,
    "gpt_oss": """
        .experts.{}.gate_proj + .experts.{}.up_proj = .experts.gate_up_proj[]'
        .experts.{}.down_proj = .experts.down_proj[]'
        mlp.gate = mlp.router
    """,
    "gptj": _GPTJ + """
        self_attn.o_proj = attn.out_proj
        self_attn. = attn.
    """,
    "granitemoe": _GRANITE, "granitemoe_swa": _GRANITE, "granitemoeshared": _GRANITE,
    "granitemoehybrid": _GRANITE.replace("mlp.experts", "block_sparse_moe.experts")
    .replace("mlp.gate", "block_sparse_moe.gate").replace("mlp.shared_experts", "block_sparse_moe.shared_experts") + """
        shared_mlp.gate_proj + shared_mlp.up_proj = shared_mlp.input_linear
        shared_mlp.down_proj = shared_mlp.output_linear
    """,
    "hunyuan_v1_dense": """
        self_attn.q_norm = self_attn.query_layernorm
        self_attn.k_norm = self_attn.key_layernorm
    """,
    "hunyuan_v1_moe": _SHARED_MLP + """
        self_attn.q_norm = self_attn.query_layernorm
        self_attn.k_norm = self_attn.key_layernorm
        mlp.gate = mlp.gate.wg
    """,
    "hy_v3": _SHARED_MLP + """
        mlp.gate.e_score_correction_bias = mlp.expert_bias
        mlp.gate = mlp.router.gate
    """,
    "hyperclovax": """
        post_attention_layernorm = post_norm1 | post_attention_layernorm
        pre_feedforward_layernorm = post_attention_layernorm
        post_feedforward_layernorm = post_norm2
    """,
    "internlm2": """
        model.embed_tokens = model.tok_embeddings
        lm_head = output
        self_attn.q_proj + self_attn.k_proj + self_attn.v_proj = attention.wqkv
        self_attn.o_proj = attention.wo
        mlp.gate_proj = feed_forward.w1
        mlp.up_proj = feed_forward.w3
        mlp.down_proj = feed_forward.w2
        input_layernorm = attention_norm
        post_attention_layernorm = ffn_norm
    """,
    "jamba": "feed_forward.gate = feed_forward.router",
    "jetmoe": """
        mlp.experts.{}.gate_proj + mlp.experts.{}.up_proj = mlp.input_linear.weight[]
        mlp.experts.{}.down_proj = mlp.output_linear.weight[]
        mlp.gate = mlp.router.layer
        mlp.output_bias = mlp.bias
        self_attn.experts.{}.input = self_attention.experts.input_linear.weight[]
        self_attn.experts.{}.output = self_attention.experts.output_linear.weight[]
        self_attn.experts.router = self_attention.experts.router.layer
        self_attn. = self_attention.
    """,
    "kimi_linear": _W123 + """
        mlp. ?= block_sparse_moe.
    """,
    "lara_mini": _SHARED + """
        .in_proj_qkv + .in_proj_z + .in_proj_b + .in_proj_a = .in_proj
        linear_attn.norm = linear_attn.out_norm
    """,
    "lfm2": _LFM, "lfm2_moe": _LFM, "lfm3": _LFM,
    "llama4_text": _SHARED.replace("?=", "=") + """
        .experts.{}.gate_proj + .experts.{}.up_proj = .experts.gate_up_proj[]' | .experts.gate_up_proj[]
        .experts.{}.down_proj = .experts.down_proj[]' | .experts.down_proj[]
        feed_forward.gate = feed_forward.router
    """,
    "longcat_flash": """
        mlp.gate.e_score_correction_bias = mlp.router.e_score_correction_bias
        mlp.gate = mlp.router.classifier
    """,
    "minimax": _W123 + """
        self_attn.q_proj + self_attn.k_proj + self_attn.v_proj ?= self_attn.qkv_proj
        self_attn.o_proj ?= self_attn.out_proj
        self_attn.g_proj = self_attn.output_gate
        mlp. = block_sparse_moe.
    """,
    "minimax_m2": _MIXTRAL + """
        mlp.gate.e_score_correction_bias = block_sparse_moe.e_score_correction_bias
    """,
    "mixtral": _MIXTRAL, "phimoe": _MIXTRAL,
    "modernbert": """
        attn.q_proj + attn.k_proj + attn.v_proj = attn.Wqkv
        attn.o_proj = attn.Wo
        mlp.gate_proj + mlp.up_proj = mlp.Wi
        mlp.down_proj = mlp.Wo
    """,
    "mpnet": """
        attention.q_proj = attention.attn.q
        attention.k_proj = attention.attn.k
        attention.v_proj = attention.attn.v
        attention.o_proj = attention.attn.o
        attention.output.LayerNorm = attention.LayerNorm
        ffn.up_proj = intermediate.dense
        ffn.down_proj = output.dense
        lm_head.decoder.bias = lm_head.bias | lm_head.decoder.bias
    """,
    "mpt": """
        @ transformer.blocks
        model.embed_tokens = transformer.wte
        model.norm = transformer.norm_f
        input_layernorm = norm_1
        post_attention_layernorm = norm_2
        self_attn.q_proj + self_attn.k_proj + self_attn.v_proj = attn.Wqkv
        self_attn.o_proj = attn.out_proj
        mlp. = ffn.
    """,
    "nanochat": _FC12,
    "nomic_bert": """
        @ nomic_bert.encoder.layers
        cls.predictions.decoder.bias = cls.predictions.bias | cls.predictions.decoder.bias
        nomic_bert.embeddings.LayerNorm = nomic_bert.emb_ln
        self_attn.q_proj + self_attn.k_proj + self_attn.v_proj = attn.Wqkv
        self_attn.o_proj = attn.out_proj
        mlp.gate_proj = mlp.fc12
        mlp.up_proj = mlp.fc11
        mlp.down_proj = mlp.fc2
        post_attention_layernorm = norm1
        post_mlp_layernorm = norm2
    """,
    "olmo_hybrid": """
        input_layernorm = attention_layer_norm
        post_attention_layernorm ?= feedforward_layer_norm
    """,
    "openai-gpt": """
        model.embed_tokens = transformer.tokens_embed
        model.embed_positions = transformer.positions_embed
        attention_norm = ln_1
        output_norm = ln_2
    """ + _GPT2,
    "openelm": """
        @ transformer.layers
        model.embed_tokens = transformer.token_embeddings
        model.norm = transformer.norm
        input_layernorm = attn_norm
        post_attention_layernorm = ffn_norm
        self_attn.q_proj + self_attn.k_proj + self_attn.v_proj = attn.qkv_proj
        self_attn.o_proj = attn.out_proj
        mlp.gate_proj + mlp.up_proj = ffn.proj_1
        mlp.down_proj = ffn.proj_2
        self_attn. = attn.
    """,
    "opt": """
        @ model.decoder.layers
        model.embed_tokens = model.decoder.embed_tokens
        model.embed_positions = model.decoder.embed_positions
        model.norm = model.decoder.final_layer_norm
        model.project_in = model.decoder.project_in
        model.project_out = model.decoder.project_out
        input_layernorm = self_attn_layer_norm
        post_attention_layernorm = final_layer_norm
        attention_norm = self_attn_layer_norm
        output_norm = final_layer_norm
        mlp.up_proj = fc1
        mlp.down_proj = fc2
        self_attn.o_proj = self_attn.out_proj
    """,
    "persimmon": """
        model.norm = model.final_layernorm
        self_attn.q_proj + self_attn.k_proj + self_attn.v_proj = self_attn.query_key_value
        self_attn.o_proj = self_attn.dense
        self_attn.q_norm = self_attn.q_layernorm
        self_attn.k_norm = self_attn.k_layernorm
        mlp.up_proj = mlp.dense_h_to_4h
        mlp.down_proj = mlp.dense_4h_to_h
    """,
    "phi": _FC12 + """
        model.norm = model.final_layernorm
        self_attn.o_proj = self_attn.dense
        self_attn.q_norm = self_attn.q_layernorm
        self_attn.k_norm = self_attn.k_layernorm
    """,
    "phi3": """
        mlp.gate_proj + mlp.up_proj = mlp.gate_up_proj
        self_attn.q_proj + self_attn.k_proj + self_attn.v_proj = self_attn.qkv_proj
    """,
    "qwen": """
        @ transformer.h
        model.embed_tokens = transformer.wte
        model.norm = transformer.ln_f
        input_layernorm = ln_1
        post_attention_layernorm = ln_2
        self_attn.q_proj + self_attn.k_proj + self_attn.v_proj = attn.c_attn
        self_attn.o_proj = attn.c_proj
        mlp.gate_proj = mlp.w2
        mlp.up_proj = mlp.w1
        mlp.down_proj = mlp.c_proj
    """,
    "qwen2_moe": _SHARED, "qwen3_next": _SHARED, "qwen3_5_moe_text": _SHARED, "qwen3_vl_moe_text": _SHARED,
    "rwkv": "lm_head = head",
    "starcoder2": """
        mlp.up_proj = mlp.c_fc
        mlp.down_proj = mlp.c_proj
    """,
    "switch_transformers": """
        .experts.{}.up_proj = .experts.expert_{}.wi
        .experts.{}.down_proj = .experts.expert_{}.wo
        .mlp.gate = .mlp.router.classifier
        .DenseReluDense.up_proj = .mlp.wi
        .DenseReluDense.down_proj = .mlp.wo
    """ + _T5,
    "t5": _T5, "mt5": _T5, "umt5": _T5, "longt5": _T5,
    "vaultgemma": "post_attention_layernorm = pre_feedforward_layernorm",
    "xglm": """
        model.norm = model.layer_norm
        input_layernorm = self_attn_layer_norm
        post_attention_layernorm = final_layer_norm
        mlp.up_proj = fc1
        mlp.down_proj = fc2
        self_attn.o_proj = self_attn.out_proj
    """,
    "xlstm": """
        ffn.gate_proj = ffn.proj_up_gate
        ffn.up_proj = ffn.proj_up
        ffn.down_proj = ffn.proj_down
    """,
    "zaya": "mlp.gate.e_score_correction_bias = mlp.gate.balancing_biases",
}  # fmt: skip
