"""Write layouts.json: what quantization libraries store for one matrix, as they made it on a CPU.

Run by hand where the libraries are installed (bitsandbytes, hqq, torchao, gptqmodel); a library that is missing keeps
its rows. The rows say which version wrote them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import torch  # noqa: TID253

FILE = Path(__file__).with_name("layouts.json")
SHAPES = ((192, 256), (96, 128), (320, 64))
Row = dict[str, object]


def row(library: str, settings: Row, shape: tuple[int, int], tensors: dict[str, object]) -> Row:
    kept = {k: v for k, v in tensors.items() if isinstance(v, torch.Tensor)}
    sizes = {name: [list(t.shape), t.numel() * t.element_size()] for name, t in kept.items()}
    return {"library": library, "version": version(library), "settings": settings, "shape": shape, "tensors": sizes}


def weight(shape: tuple[int, int]) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7)).to(torch.bfloat16)


def bitsandbytes() -> Iterator[Row]:
    import bitsandbytes as bnb

    for shape in SHAPES:
        for kind in ("nf4", "fp4"):
            for double in (False, True):
                module = bnb.nn.Linear4bit(shape[1], shape[0], bias=False, quant_type=kind, compress_statistics=double)
                module.weight = bnb.nn.Params4bit(
                    weight(shape) / 16, requires_grad=False, quant_type=kind, compress_statistics=double
                )
                settings = {"load_in_4bit": True, "bnb_4bit_quant_type": kind, "bnb_4bit_use_double_quant": double}
                yield row("bitsandbytes", settings, shape, module.to("cpu").state_dict())
        module = bnb.nn.Linear8bitLt(shape[1], shape[0], bias=False, has_fp16_weights=False)
        module.weight = bnb.nn.Int8Params(weight(shape).float(), requires_grad=False, has_fp16_weights=False)
        module = module.to("cpu")
        module.weight = module.weight._quantize("cpu")
        module.init_8bit_state()
        yield row("bitsandbytes", {"load_in_8bit": True}, shape, module.state_dict())


def hqq() -> Iterator[Row]:
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

    for shape in SHAPES:
        for bits in (8, 4, 3, 2, 1):
            linear = torch.nn.Linear(shape[1], shape[0], bias=False)
            params = BaseQuantizeConfig(nbits=bits, group_size=64)
            made = HQQLinear(linear, params, compute_dtype=torch.bfloat16, device="cpu", del_orig=False)
            yield row("hqq", {"nbits": bits, "group_size": 64}, shape, made.state_dict())


def torchao() -> Iterator[Row]:
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig, quantize_

    for shape in SHAPES:
        for name, config in (
            ("int8_weight_only", Int8WeightOnlyConfig()),
            ("float8_weight_only", Float8WeightOnlyConfig()),
        ):
            model = torch.nn.Sequential(torch.nn.Linear(shape[1], shape[0], bias=False)).to(torch.bfloat16)
            quantize_(model, config)
            yield row("torchao", {"quant_type": name}, shape, flatten_tensor_state_dict(model.state_dict())[0])


def gptqmodel() -> Iterator[Row]:
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear

    for shape in SHAPES:
        for bits in (2, 3, 4, 8):
            for group in (32, 64):
                for order in (False, True):
                    module = TorchLinear(
                        bits=bits, group_size=group, desc_act=order, sym=True, in_features=shape[1],
                        out_features=shape[0], bias=False, pack_dtype=torch.int32, register_buffers=True,
                    )  # fmt: skip
                    names = ("qweight", "qzeros", "scales", "g_idx")
                    kept = {k: v for k, v in module.state_dict().items() if k in names}
                    yield row("gptqmodel", {"bits": bits, "group_size": group, "desc_act": order}, shape, kept)


def awq() -> Iterator[Row]:
    from gptqmodel.nn_modules.qlinear.torch_awq import AwqTorchLinear

    for shape in SHAPES:
        for group in (32, 64):
            module = AwqTorchLinear(
                bits=4, group_size=group, desc_act=False, sym=False, in_features=shape[1], out_features=shape[0],
                bias=False, pack_dtype=torch.int32, register_buffers=True,
            )  # fmt: skip
            kept = {k: v for k, v in module.state_dict().items() if k in ("qweight", "qzeros", "scales")}
            yield row("gptqmodel", {"quant_method": "awq", "bits": 4, "group_size": group}, shape, kept)


MAKERS = {"bitsandbytes": bitsandbytes, "hqq": hqq, "torchao": torchao, "gptqmodel": gptqmodel, "awq": awq}


def main() -> None:
    rows = json.loads(FILE.read_text()) if FILE.exists() else []
    for name, maker in MAKERS.items():
        try:
            made = list(maker())
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        is_awq = name == "awq"
        library = "gptqmodel" if is_awq else name
        rows = [r for r in rows if r["library"] != library or (r["settings"].get("quant_method") == "awq") != is_awq]
        rows += made
    lines = ",\n".join(json.dumps(r) for r in rows)
    FILE.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
