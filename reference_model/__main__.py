"""``python -m reference_model CONFIG_OR_FOLDER``: generate tokens, with a folder's weights or with random ones."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

from llmcalc.arch.families import read_config
from llmcalc.errors import LlmcalcError
from reference_model.decoder import Decoder
from reference_model.load import load
from reference_model.sampling import generate


def arguments() -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser(prog="python -m reference_model", description=__doc__)
    parser.add_argument("path", type=Path, help="a config.json, or a folder with one (and safetensors beside it)")
    parser.add_argument("--prompt", type=int, nargs="+", default=[1, 2, 3], help="token numbers")
    parser.add_argument("--tokens", type=int, default=16, help="how many to generate")
    parser.add_argument("--chunk", type=int, default=0, help="prefill in pieces of so many tokens")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="of the random weights and of the sampling")
    return parser.parse_args()


def main() -> int:
    """Build, load if there are weights, generate, print the tokens and the bytes of the cache."""
    args = arguments()
    config = args.path / "config.json" if args.path.is_dir() else args.path
    torch.manual_seed(args.seed)
    try:
        model = Decoder(read_config(json.loads(config.read_text("utf-8")), where=str(config))).eval()
        if any(config.parent.glob("*.safetensors")) and args.path.is_dir():
            load(model, args.path)
        out = generate(
            model, [args.prompt], args.tokens, chunk=args.chunk, temperature=args.temperature, top_k=args.top_k,
            top_p=args.top_p, seed=args.seed,
        )  # fmt: skip
    except (LlmcalcError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    cache = model.allocate(1, len(args.prompt) + args.tokens)
    sys.stdout.write(" ".join(map(str, out[0])) + f"\n{cache.bytes:,} bytes of cache\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
