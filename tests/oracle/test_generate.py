"""The decoder as a program: it generates, and however the prompt is cut, it generates the same."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from llmcalc.arch.families import read_config
from llmcalc.errors import MalformedConfigError, NotFoundError
from reference_model.decoder import Decoder
from reference_model.load import load, load_tensors
from reference_model.sampling import generate
from tests.conftest import ROOT
from tests.oracle.cases import CASES, CONFIGS
from tests.oracle.parity import independent, tokens

MODELS = ("gemma3", "gpt_oss", "deepseek_v3", "llama4", "qwen3_next", "granitemoehybrid", "lfm2")
PROMPTS = [[1, 2, 3], list(range(5, 25)), [7] * 11]


@pytest.mark.parametrize("name", MODELS)
def test_chunks_and_neighbours_change_nothing(name: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Decoder(read_config(CONFIGS[name])).double().eval()
    together = generate(model, PROMPTS, 6)
    assert together == generate(model, PROMPTS, 6, chunk=4)
    assert generate(model, PROMPTS, 6, temperature=0.8, top_k=9, top_p=0.9, seed=3) == generate(
        model, PROMPTS, 6, temperature=0.8, top_k=9, top_p=0.9, seed=3
    )


def test_greedy_tokens_of_transformers(tmp_path: Path) -> None:
    model, config = independent(CASES["qwen3"], tmp_path)
    ours = load(Decoder(read_config(config)).eval(), tmp_path)
    prompt = tokens(config, replace(CASES["qwen3"], length=12), 1)
    expected = model.generate(prompt, max_new_tokens=10, do_sample=False, eos_token_id=None, pad_token_id=0)[0, 12:]
    assert generate(ours, prompt.tolist(), 10)[0] == expected.tolist()


def test_command(tmp_path: Path) -> None:
    independent(CASES["llama"], tmp_path)
    command = [sys.executable, "-m", "reference_model", str(tmp_path), "--prompt", "5", "6", "--tokens", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()[0].split()) == 4


def test_missing_weights_are_named(tmp_path: Path) -> None:
    model = Decoder(read_config(CONFIGS["llama"]))
    with pytest.raises(NotFoundError, match="no safetensors"):
        load(model, tmp_path)
    with pytest.raises(MalformedConfigError, match="nothing in the file for"):
        load_tensors(model, {})
