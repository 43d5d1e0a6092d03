"""A mix of llama.cpp applied to a model: each tensor under llama.cpp's category, each category's type from the mix.

The rules speak of llama.cpp's own tensors: experts are one 3-D tensor a layer, ``kv_b`` is stored as two, vectors and
norms are 32-bit. Source: ``src/llama-quant.cpp``, ``convert_hf_to_gguf.py`` (what stays F32).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

from llmcalc.arch.attention import Attention
from llmcalc.arch.latent import LatentAttention
from llmcalc.arch.linear import GatedDelta
from llmcalc.arch.model import Architecture
from llmcalc.arch.moe import MixtureOfExperts
from llmcalc.arch.positions import Rope
from llmcalc.errors import UnsupportedFormatError
from llmcalc.schemes.blocks import BLOCKS, fitting
from llmcalc.schemes.layouts import Layout, Piece
from llmcalc.schemes.mixes import FALCON_DOWN, FALCON_OUTPUT, LOW, Mix, Where, choose
from llmcalc.schemes.scheme import BF16, FP32
from llmcalc.schemes.sites import TEXT, Site, sites

SOURCE: Final = "llama.cpp src/llama-quant.cpp llama_tensor_get_type_impl"
VALUES: Final = ("value", "qkv")
# Trained tables and small matrices that llama.cpp leaves as the converter wrote them (tensor_allows_quantization).
LEFT: Final = ("altup", "laurel", "per_layer_model_projection", "relative_attention_bias", "indexer.k_proj",
               "indexer.q_proj")  # fmt: skip


# Families whose files keep the multi-token-prediction layers, which then count among the layers of a mix.
NEXTN: Final = ("glm4_moe", "glm4v_moe_text", "glm_moe_dsa", "exaone_moe", "bailing_moe", "bailing_hybrid")
# Families whose fused queries, keys and values the converter takes apart.
UNFUSED: Final = ("baichuan", "internlm2", "bailing_moe", "bailing_hybrid", "bailing_moe_linear", "sarvam_moe")
NAMES: Final = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "attention_output"}


class Counter(NamedTuple):
    """Where a tensor stands among those of its kind."""

    i: int
    n: int


class Part(NamedTuple):
    """A tensor that a matrix becomes: its name, and its shape where the matrix is whole."""

    name: str
    rows: int
    cols: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class Apart(Layout):
    """A matrix of ``whole`` rows that the converter stores as several tensors; a cut matrix has its share of each."""

    name: str
    whole: int
    parts: tuple[Part, ...]
    source: str = "convert_hf_to_gguf.py"

    def pieces(self, shape: tuple[int, ...]) -> Iterator[Piece]:
        for part in self.parts:
            for piece in part.layout.pieces((part.rows * shape[0] // self.whole, part.cols)):
                yield piece._replace(name=f"{part.name} ({part.layout.name})")

    def holds(self, shape: tuple[int, ...]) -> Iterator[tuple[str, int, int]]:
        for part in self.parts:
            yield from part.layout.holds((part.rows * shape[0] // self.whole, part.cols))

    @property
    def bits(self) -> Fraction:
        return self.parts[-1].layout.bits


@dataclass
class Gguf:
    """A mix on one model; ``warnings`` tell of rows that no block of the mix's type divides."""

    architecture: Architecture
    mix: Mix
    name: str = field(init=False)
    source: str = SOURCE
    numbered: bool = False
    experts: int = field(init=False, default=0)
    groups: int = field(init=False, default=1)
    kinds: set[str] = field(init=False, default_factory=set)
    fallen: dict[tuple[str, str], set[str]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.name = self.mix.name
        self.falcon = self.architecture.decoder_type == "falcon"
        self.tied = bool(self.architecture.ties)
        self._read_model()
        self.counters = self._count()

    def _read_model(self) -> None:
        layers = self.architecture.decoder.layers
        mixers = [mixer for layer in layers for mixer in layer.mixers]
        first = next((mixer for mixer in mixers if isinstance(mixer, Attention)), None)
        if first is not None:
            self.groups = first.num_attention_heads // first.num_key_value_heads
        ffns = [ffn for layer in layers for ffn in layer.ffns]
        self.experts = max((f.num_experts for f in ffns if isinstance(f, MixtureOfExperts)), default=0)
        self.large = self._is_70b(first, len(layers))

    def _is_70b(self, mixer: Attention | None, layers: int) -> bool:
        """LLM_TYPE_70B: 80 layers of llama with shared heads or of qwen2, 68 of jais2."""
        family = self.architecture.decoder_type
        if family in ("llama", "mistral", "mixtral"):
            return layers == 80 and mixer is not None and mixer.num_key_value_heads != mixer.num_attention_heads
        return (family, layers) in (("qwen2", 80), ("jais2", 68))

    def _count(self) -> dict[tuple[str, int], Counter]:
        """For values, downs, gates and ups of each block: how many stand before it, out of how many."""
        depth = len(self.architecture.decoder.layers)
        kept = self.architecture.decoder_type in NEXTN
        extra = sum(len(stack.layers) for stack in self.architecture.mtp) if kept else 0
        met: dict[str, set[int]] = {}
        for site in sites(self.architecture):
            kind = self.category(site)
            self.kinds.add(kind)
            valued = (
                kind in VALUES or site.module.endswith("in_proj_qkvz") or (kind == "apart" and len(site.weights) > 1)
            )
            kind = "value" if valued else kind
            met.setdefault(kind, set()).update(site.blocks if site.stack == "decoder" else ())
        out: dict[tuple[str, int], Counter] = {}
        for kind, blocks in met.items():
            for index, block in enumerate(sorted(blocks)):
                layers = kind in ("down", "gate_up")
                place = block if layers and self.experts > 1 else index
                out[kind, block] = Counter(place, depth + extra if layers else len(blocks))
        return out

    # -- categories --------------------------------------------------------------------------------------------------

    def category(self, site: Site) -> str:
        """llama.cpp's kind of a tensor; empty for those that take the base type, ``keep`` for those left alone."""
        weight, leaf = site.weight, site.module.rpartition(".")[2]
        if (
            not site.matrix
            or weight.role in ("norm", "router", "conv", "scalar", "bias", "buffer")
            or 1 in weight.shape
        ):
            return "keep"
        if any(part in site.module for part in LEFT):
            return "left"
        if weight.role == "head":
            return "output"
        if weight.role == "embedding":
            return "embedding" if weight.split == "vocab" or "per_layer" in site.module else "keep"
        if site.branch in ("mlp", "experts", "shared_experts"):
            return {"down_proj": "down", "gate_proj": "gate_up", "up_proj": "gate_up"}.get(leaf, "")
        if len(site.weights) > 1 and self.architecture.decoder_type in UNFUSED:
            return "apart"
        if len(site.weights) > 1 or leaf == "in_proj_qkv":
            return "qkv"
        if leaf in ("kv_b_proj", "in_proj_qkvz"):
            return "apart"
        if site.branch in ("attention", "mixer"):
            return NAMES.get(leaf, "")
        return ""

    # -- types -------------------------------------------------------------------------------------------------------

    def layout(self, site: Site, block: int | None, expert: int = 0) -> Layout:
        """The type of a tensor in one of its blocks."""
        del expert
        if site.stack not in (*TEXT, "mtp"):
            return BF16 if site.matrix else FP32
        kind = self.category(site)
        if kind == "keep":
            return FP32
        if kind == "left":
            return BF16
        if kind == "apart":
            return self._apart(site, block)
        return self._fit(self._type(kind, site, block), site.name, site.shape[-1])

    def _type(self, kind: str, site: Site, block: int | None) -> str:
        mix = self.mix
        if kind == "output" or (kind == "embedding" and self.tied):
            aligned = site.shape[-1] % BLOCKS[mix.base].size == 0
            return mix.output if aligned and not self.falcon else "q8_0"
        if kind == "embedding":
            return mix.embedding or mix.base
        if mix.experts:
            return mix.experts if "{}" in site.name else mix.base
        if block is None:
            return mix.base
        counter = self.counters.get(("value" if kind in VALUES else kind, block), Counter(0, 1))
        where = Where(counter.i, counter.n, self.groups, self.experts)
        return self._rule(kind, where) or mix.base

    def _rule(self, kind: str, where: Where) -> str:
        mix, eight, low = self.mix, self.experts == 8, self.mix.name in LOW
        if kind in VALUES:
            found = choose(mix.value, where) or mix.base
            if self.large and not low and found in ("q3_k", "q4_k"):
                found = "q5_k"
            return "q8_0" if eight and not low else found
        if kind == "key":
            return ("q4_k" if low else "q8_0") if eight else mix.key
        if kind == "query":
            return mix.query
        if kind == "down":
            return choose(FALCON_DOWN.get(mix.name, mix.down) if self.falcon else mix.down, where)
        if kind == "gate_up":
            return choose(mix.gate_up, where)
        if kind == "attention_output":
            if self.falcon and not low:
                return FALCON_OUTPUT.get(mix.name, "")
            return ("q5_k" if mix.eight_output or low else "") if eight else mix.attention_output
        return ""

    def _apart(self, site: Site, block: int | None) -> Layout:
        """MLA's ``kv_b`` as keys [heads, rank, nope] and values [heads, width, rank]; Qwen3-Next's qkvz as two."""
        spec, whole = site.spec, site.shape[0]
        if len(site.weights) > 1:
            kinds = [NAMES[w.name.removesuffix(".weight").rpartition(".")[2]] for w in site.weights]
            fits = [self._fit(self._type(kind, site, block), site.name, site.shape[1]) for kind in kinds]
            parts = [Part(k, w.shape[0], w.shape[1], f) for k, w, f in zip(kinds, site.weights, fits, strict=True)]
        elif isinstance(spec, LatentAttention):
            base = self.mix.experts or self.mix.base
            nope, width, rank = spec.qk_nope_head_dim, spec.v_head_dim, spec.kv_lora_rank
            sizes = (
                ("attn_k_b", whole // (nope + width) * rank, nope),
                ("attn_v_b", whole // (nope + width) * width, rank),
            )
            parts = [Part(name, rows, cols, self._fit(base, name, cols)) for name, rows, cols in sizes]
        elif isinstance(spec, GatedDelta):
            z, cols = spec.num_value_heads * spec.value_head_dim, site.shape[1]
            types = (("attn_qkv", whole - z, self._type("qkv", site, block)), ("attn_gate", z, self.mix.base))
            parts = [Part(name, rows, cols, self._fit(kind, name, cols)) for name, rows, kind in types]
        else:
            raise UnsupportedFormatError(f"{self.name}: {site.name} is not of a layer whose parts are known")
        return Apart(parts[-1].layout.name, whole, tuple(parts))

    def _fit(self, name: str, tensor: str, cols: int) -> Layout:
        found = fitting(name, cols)
        if found is None:
            raise UnsupportedFormatError(
                f"{self.name}: blocks of {BLOCKS[name].size} ({name}) do not divide the rows of {cols:,} of {tensor}",
                "llama.cpp refuses it too; choose q8_0 or f16",
            )
        if found != name:
            self.fallen.setdefault((name, found), set()).add(f"{tensor} ({cols:,})")
        return BLOCKS[found]

    # -- what is said about it ---------------------------------------------------------------------------------------

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed."""
        notes = ["tensor data alone, as llama.cpp stores it: norms, routers, vectors and convolutions in 32 bits"]
        if self.mix.imatrix:
            notes.append(f"{self.name} is made with an importance matrix")
        elif self.mix.name in ("q4_0", "q5_0", "iq4_nl", "iq4_xs", "iq3_m", "iq3_s"):
            notes.append("made without an importance matrix")
        if self.architecture.mtp and self.architecture.decoder_type not in NEXTN:
            notes.append("multi-token-prediction layers do not count among the layers of the mix: converters skip them")
        fused = any(kind == "qkv" for kind in self.kinds)
        if fused and self.mix.name in ("q3_k_m", "q3_k_l", "iq3_m", "q4_k_m", "q5_k_m"):
            notes.append("fused qkv follows the rule of attn_v; older llama.cpp gave it one type in every layer")
        if self.architecture.towers:
            notes.append("towers are a file of their own there (mmproj), counted here in 16 bits")
        return tuple(notes)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Fall-backs that happened."""
        return tuple(
            f"rows that {name} does not divide are stored as {found}: {', '.join(sorted(tensors)[:4])}"
            + (f" and {len(tensors) - 4} more kinds" if len(tensors) > 4 else "")
            for (name, found), tensors in self.fallen.items()
        )

    def beside(self) -> list[tuple[str, int]]:
        """Tensors the converter adds: rotary factors, in 32 bits, by name and count of numbers."""
        for layer in self.architecture.decoder.layers:
            for mixer in layer.mixers:
                rope = getattr(mixer, "positions", None)
                if isinstance(rope, Rope):
                    kind = dict(rope.scaling).get("rope_type", dict(rope.scaling).get("type"))
                    if kind == "llama3":
                        return [("rope_freqs", rope.width // 2)]
                    if kind in ("longrope", "su"):
                        return [("rope_factors_long", rope.width // 2), ("rope_factors_short", rope.width // 2)]
        return []

    def unmatched(self, names: object) -> list[str]:
        """Nothing is named in a list."""
        del names
        return []
