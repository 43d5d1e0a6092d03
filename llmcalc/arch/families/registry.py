"""Which module reads which ``model_type``."""

from __future__ import annotations

_DENSE = (
    "llama mistral ministral ministral3 internlm internlm2 internlm3 baichuan xverse orion minicpm cwm helium arcee "
    "iquestcoder exaone granite granite_swa seed_oss smollm3 hyperclovax qwen2 qwen3 gemma gemma2 vaultgemma "
    "gemma3_text olmo olmo2 olmo3 exaone4 apertus phi3 glm glm4 hunyuan_v1_dense nemotron ernie4_5 bitnet nanochat "
    "starcoder2 jais2 phi persimmon gpt2 gpt_bigcode gpt_neo openai-gpt gpt_neox gptj codegen biogpt xglm ctrl bloom "
    "stablelm cohere cohere2 doge diffllama"
)

_EXPERTS = (
    "mixtral qwen2_moe qwen3_moe qwen3_vl_moe_text qwen3_omni_moe_text olmoe flex_olmo phimoe gpt_oss granitemoe "
    "granitemoe_swa granitemoeshared glm4_moe glm4v_moe_text solar_open sarvam_moe dots1 minimax_m2 ernie4_5_moe "
    "hunyuan_v1_moe hy_v3 exaone_moe afmoe aria_text mellum"
)

READERS: dict[str, str] = dict.fromkeys(_DENSE.split(), "dense")
READERS |= dict.fromkeys(_EXPERTS.split(), "moe")
_LATENT = (
    "deepseek_v2 deepseek_v3 kimi_k2 deepseek_v32 glm_moe_dsa glm4_moe_lite mistral4 sarvam_mla axk1 minicpm3 youtu"
)
READERS |= dict.fromkeys(_LATENT.split(), "latent")
READERS |= {"deepseek_v4": "deepseek_v4", "longcat_flash": "longcat", "opt": "opt", "falcon": "falcon", "mpt": "mpt"}
READERS |= {"gemma3n_text": "gemma", "gemma4_text": "gemma"}
READERS |= dict.fromkeys(("qwen", "chatglm", "bailing_moe", "telechat", "telechat2", "openelm"), "remote")
READERS |= dict.fromkeys(("llama4_text", "mimo_v2_flash", "dbrx", "jetmoe", "arctic"), "mixtures")
READERS |= {
    "qwen3_next": "gated_delta", "qwen3_5_text": "gated_delta", "qwen3_5_moe_text": "gated_delta",
    "olmo_hybrid": "gated_delta", "kimi_linear": "kimi_linear", "nemotron_h": "nemotron_h", "jamba": "jamba",
    "bamba": "jamba", "granitemoehybrid": "jamba", "falcon_h1": "jamba", "zamba": "zamba", "zamba2": "zamba",
    "mamba": "mamba", "falcon_mamba": "mamba", "mamba2": "mamba", "lfm2": "lfm", "lfm2_moe": "lfm", "lfm3": "lfm",
    "recurrent_gemma": "recurrent", "rwkv": "recurrent", "xlstm": "recurrent", "minimax": "lightning",
    "zaya": "zaya", "hrm_text": "looped", "dory": "looped", "lara_mini": "gated_delta", "bailing_hybrid": "ling",
    "bailing_moe_linear": "ling", "rwkv7": "fla", "gla": "fla", "retnet": "fla",
}  # fmt: skip
_SAME_DENSE = "qwen2_vl_text qwen2_5_vl_text qwen2_5_omni_text qwen3_vl_text glm4v_text"
READERS |= dict.fromkeys(_SAME_DENSE.split(), "dense")
READERS |= {"mllama_text_model": "mllama", "modernbert": "modernbert", "nomic_bert": "modernbert"}
_ENCODERS = "bert ernie roberta xlm-roberta camembert data2vec-text electra albert distilbert deberta-v2 mpnet"
READERS |= dict.fromkeys(_ENCODERS.split(), "encoders")
READERS |= dict.fromkeys(("t5", "mt5", "umt5", "longt5", "switch_transformers"), "t5")
READERS |= {"blt": "blt"}
_SWITCHED = (
    "apertus1p5_text muse_glimmer_text gpt_neox_japanese flint kolibri1 beam glm_ocr_text paddleocr_vl_text "
    "granite_docling_text granite4_vision_text cosmos3_edge_text emu3_text_model voxtral_realtime_text molmo2_text "
    "deepseek_ocr2_text hunyuan_vl_text"
)
READERS |= dict.fromkeys(_SWITCHED.split(), "switched")
READERS |= {"laguna": "varied", "step3p5": "varied", "cohere2_moe": "varied", "muse_spark_text": "muse"}
READERS |= {"ernie4_5_vl_moe_text": "ernie_vl", "gemma4_unified_text": "gemma"}
READERS |= {"cpmant": "early", "modernbert-decoder": "early", "phi4flash": "sambay", "hunyuan_v1_moe": "hunyuan"}
_LATER_REMOTE = "deci nemotron-nas grok-1 step1 rnj1 plamo3 step3_text longcat_flash_ngram"
READERS |= dict.fromkeys(_LATER_REMOTE.split(), "later_remote")
READERS |= {"minimax_m3_vl_text": "sparse", "qwen4_exp_text": "sparse"}
READERS |= dict.fromkeys(("inkling_text", "inkling2_text", "inkling2_loop_text"), "inkling")
READERS |= dict.fromkeys(
    ("axk2", "hy_v4", "hy_v4_vl_text", "dots3_note_text", "mistral_large4_text", "glm5_next_text"), "latent_later"
)
_BART = "bart plbart mbart blenderbot blenderbot-small pegasus marian m2m_100 whisper"
READERS |= dict.fromkeys(_BART.split(), "bart")
_WRAPPERS = (
    "llava vipllava llava_next llava_next_video llava_onevision paligemma gemma3 gemma3n gemma4 mistral3 idefics3 "
    "smolvlm aria internvl internvl_chat kimi_k25 lfm2_vl aya_vision cohere2_vision glm4v glm46v glm4v_moe qwen2_vl "
    "qwen2_5_vl qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe llama4 mllama qwen2_5_omni qwen2_5_omni_thinker qwen2_audio "
    "voxtral kimi_k3 qwen3_omni_moe qwen3_omni_moe_thinker idefics2"
)
WRAPPERS: dict[str, str] = dict.fromkeys(_WRAPPERS.split(), "wrappers")
_LATER_WRAPPERS = (
    "step3p7 minimax_m3_vl mistral_large4 glm5_next muse_spark muse_glimmer inkling_mm_model inkling2 inkling2_loop "
    "qwen4_exp hy_v4_vl dots3_note exaone4_5 apertus1p5 glmga glm_ocr paddleocr_vl granite_docling granite4_vision "
    "molmo2 cosmos3_edge cosmos3_omni voxtral_realtime emu3 deepseek_vl deepseek_vl_hybrid janus got_ocr2 ovis2 "
    "hyperclovax_vision_v2 lfm3_vl lighton_ocr minicpm_ocr minicpmv4_6 minicpmv4_7 nemotron_h_omni perception_lm "
    "qianfan_ocr shieldgemma2 video_llama_3 video_llava fast_vlm audioflamingo3 musicflamingo granite_speech glmasr "
    "qwen3_asr phi4_multimodal phi4mm deepseek_ocr2 step3_vl "
    "ernie4_5_vl_moe ernie4_5_moe_vl gemma4_unified hunyuan_vl"
)
WRAPPERS |= dict.fromkeys(_LATER_WRAPPERS.split(), "wrappers")

# Other spellings of a model_type: remote code, renamed classes, nested text blocks with a name of their own.
ALIASES: dict[str, str] = {
    "phi-msft": "phi",
    "mixformer-sequential": "phi",
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "Yi": "llama",
    "deepseek_ref": "deepseek_v4",
    "hunyuan": "hunyuan_v1_moe",
    "minimax_text_01": "minimax",
    "minimax_m1": "minimax",
    "MiniMaxText01": "minimax",
    "MiniMaxM1": "minimax",
    "rwkv7_fla": "rwkv7",
}

_CLASSES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "GPT2LMHeadModel": "gpt2",
}


def type_from_class(architectures: object) -> str:
    """Old files name only their class; the few whose class has one meaning are known."""
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    return _CLASSES.get(name, "") if isinstance(name, str) else ""
