"""GGUF files for the tests: real ones through the gguf package, and bytes put together by hand for the wrong ones."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "head_dim": 16,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "dtype": "float16", "attention_bias": False, "mlp_bias": False,
}  # fmt: skip


def tensors_of_llama() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (128, 64), "output.weight": (128, 64), "output_norm.weight": (64,),
    }  # fmt: skip
    for index in range(3):
        block = {
            "attn_norm": (64,), "ffn_norm": (64,), "attn_q": (64, 64), "attn_k": (32, 64), "attn_v": (32, 64),
            "attn_output": (64, 64), "ffn_gate": (96, 64), "ffn_up": (96, 64), "ffn_down": (64, 96),
        }  # fmt: skip
        shapes |= {f"blk.{index}.{name}.weight": shape for name, shape in block.items()}
    return shapes


def write_llama(path: Path, quantized: str = "", tokens: int = 128, **options: Any) -> Path:
    """The model of LLAMA as llama.cpp's converter writes it. Args: quantized: a block type for the matrices."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama", **options)
    writer.add_name("Small")
    writer.add_block_count(3)
    writer.add_context_length(256)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(16)
    writer.add_value_length(16)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(16)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(128)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token {index} ü" for index in range(tokens)])
    writer.add_token_scores([0.5] * tokens)
    writer.add_chat_template("x" * 9000)
    add_tensors(writer, tensors_of_llama(), quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_tensors(writer: Any, shapes: dict[str, tuple[int, ...]], quantized: str = "") -> None:
    import gguf

    for name, shape in shapes.items():
        values = np.ones(shape, dtype=np.float32)
        if quantized and len(shape) > 1:
            kind = gguf.GGMLQuantizationType[quantized]
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values.astype(np.float16) if len(shape) > 1 else values)


# -- by hand -----------------------------------------------------------------------------------------------------------


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def info(name: bytes, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def gguf_bytes(
    pairs: tuple[bytes, ...] = (), infos: tuple[bytes, ...] = (), data: int = 0, version: int = 3,
    counts: tuple[int, int] | None = None,
) -> bytes:  # fmt: skip
    """A whole file. Args: counts: what to claim instead of the true numbers of tensors and pairs."""
    head = b"GGUF" + struct.pack("<IQQ", version, *(counts or (len(infos), len(pairs)))) + b"".join((*pairs, *infos))
    return head + bytes(-len(head) % 32) + bytes(data)
