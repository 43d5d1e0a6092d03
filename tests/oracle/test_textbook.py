"""Small figures that a textbook treatment of decoders works out by hand, computed by the reference model."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, tensor
from torch.nn.functional import cross_entropy

from llmcalc.arch.base import FULL, Norm
from llmcalc.arch.latent import LatentAttention
from llmcalc.arch.moe import MixtureOfExperts as Experts
from llmcalc.arch.positions import Alibi, Rope
from reference_model import latent, norms
from reference_model.attention import attend
from reference_model.cache import Flow
from reference_model.ffn import ACTIVATIONS, MixtureOfExperts
from reference_model.positions import alibi_bias, frequencies, rotate, sinusoids, slopes
from reference_model.sampling import distribution, losses, perplexity, speculate
from reference_model.sight import visible


def near(found: Tensor, expected: object, places: int = 6) -> None:
    difference = (found.double() - torch.as_tensor(expected, dtype=torch.float64)).detach().abs().max()
    assert float(difference) <= 0.51 * 10**-places  # figures are printed rounded


def head(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """One causal head, [T, d] each."""
    places = torch.arange(len(k))[None]
    rows = [part[None, None].double() for part in (q, k, v)]
    return attend(*rows, visible(FULL, places[:, -len(q) :], places), scale=scale)[0, 0]


def test_softmax() -> None:
    near(tensor([0.0, 2, 1], dtype=torch.float64).exp().sum(), 11.107338)
    near(tensor([0.0, 2, 1]).softmax(-1), [0.090031, 0.665241, 0.244728])
    near(tensor([-2.0, 0, -1]).softmax(-1), [0.090031, 0.665241, 0.244728])
    near(tensor([0.0, 10]).softmax(-1), [0.000045, 0.999955])
    near(tensor([0.0, 1]).softmax(-1), [0.269, 0.731], 3)


def test_one_head_of_scalars() -> None:
    scores = tensor([[0.0], [2], [1]])
    near(head(tensor([[1.0]]), scores, tensor([[2.0], [10], [4]]), 1.0), [[7.81138]], 4)
    near(head(tensor([[1.0]]), scores, tensor([[2.0], [20], [4]]), 1.0), [[7.81138 + 6.65241]], 4)


def test_one_head_of_vectors_whole_and_row_by_row() -> None:
    q, k = tensor([[1.0, 0], [0, 1], [math.sqrt(2), 0]]), tensor([[0.0, 1], [2, 0], [1, 1]])
    v, scale = tensor([[2.0, 2], [10, 0], [0, 4]]), 2**-0.5
    whole = head(q, k, v, scale)
    near(whole, [[2, 2], [4.64191, 1.33952], [6.83247, 1.15898]], 5)
    for row in range(3):
        one = head(q[row : row + 1], k[: row + 1], v[: row + 1], scale)
        assert float((one[0] - whole[row]).abs().max()) < 1e-12


def test_another_head() -> None:
    found = head(tensor([[1.0, 0]]), tensor([[1.0, 0], [0, 1]]), tensor([[10.0, 0], [0, 20]]), 2**-0.5)
    near(found, [[6.698, 6.605]], 3)


def test_shapes_and_pairs() -> None:
    q, k = torch.zeros(2, 32, 128, 8), torch.zeros(2, 8, 128, 8)
    places = torch.arange(128).expand(2, 128)
    assert attend(q, k, k, visible(FULL, places, places), scale=1.0).shape == (2, 32, 128, 8)
    four = torch.arange(4)[None]
    assert int(visible(FULL, four, four).sum()) == 10


def test_sinusoids() -> None:
    near(sinusoids(tensor([[1, 2]]), 4)[0, 0], [0.84147, 0.54030, 0.01000, 0.99995], 5)
    near(sinusoids(tensor([[1, 2]]), 4)[0, 1], [0.90930, -0.41615, 0.02000, 0.99980], 5)


def test_rotation_depends_on_distance_alone() -> None:
    rope = Rope(10_000.0, 2)
    turn = math.pi / 6  # 30 degrees a position, by positions that are multiples of that angle
    one = tensor([[[[1.0, 0]]]], dtype=torch.float64)
    for query, key in ((1, 3), (2, 4)):
        flows = (Flow(tensor([[place * turn]]), tensor([0]), tensor([1]), 1, 0) for place in (query, key))
        q, k = (rotate(one, rope, flow) for flow in flows)
        near((q * k).sum(), 0.5)


def test_rotary_frequencies() -> None:
    turn, _ = frequencies(Rope(10_000.0, 128), 1, 128)
    near(turn[0], 1.0)
    assert round(2 * math.pi / float(turn[0])) == 6
    assert round(2 * math.pi / float(turn[-1]), -3) == 54_000
    near(turn[1:] / turn[:-1], [0.866] * 63, 3)
    halved, _ = frequencies(Rope(10_000.0, 128, (("factor", 8192 / 4096), ("rope_type", "linear"))), 1, 128)
    near(halved, turn / 2)


def test_alibi() -> None:
    bias = alibi_bias(Alibi(), 1, tensor([[[-1, -6]]])) * 0.2 / float(slopes(Alibi(), 1))
    near(2 + bias[0, 0, 0], [1.8, 0.8])


def test_activations() -> None:
    near(ACTIVATIONS["gelu"](tensor([1.0, -1])), [0.8413, -0.1587], 4)
    near(ACTIVATIONS["silu"](tensor([1.0, -1])), [0.7311, -0.2689], 4)
    near(tensor([0.5, 2]) * tensor([4.0, -3]), [2, -6])


def test_norms() -> None:
    near(norms.standard(tensor([[1.0, 3], [10, 30]]), 0.0), [[-1, 1], [-1, 1]])
    near(norms.Norm(Norm(2, "rms", eps=0.0))(tensor([1.0, 3])), [0.4472, 1.3416], 4)
    layer = tensor([-3.77, 39.92, -0.13, -13.9, 0.93, 0.81])
    near(layer.mean(), 3.98, 2)
    near(layer.std(unbiased=False), 16.9, 1)
    near(norms.standard(layer, 0.0), [-0.46, 2.13, -0.24, -1.06, -0.18, -0.19], 2)


def test_router() -> None:
    made = MixtureOfExperts(Experts(4, 4, 2, 2))
    with torch.no_grad():
        made.gate.weight.copy_(torch.diag(tensor([2.1, -0.4, 1.7, 0.2])))
    weights, chosen = made.gate(torch.ones(1, 4))
    near(weights, [[0.598688, 0.401312]])
    assert chosen.tolist() == [[0, 2]]
    near(weights @ tensor([[2.0, 0], [0, 5]]), [[1.19738, 2.00656]], 5)


def test_latent_attention_in_miniature() -> None:
    spec = LatentAttention(4, 1, None, 2, 4, 0, 2)
    made = latent.LatentAttention(replace(spec, norm_eps=0.0)).double()
    down = tensor([[1.0, 1, 0, 0], [0, 0, 1, 1]])
    up = tensor([[1.0, 0], [0, 1], [1, 1], [0, 0]])
    with torch.no_grad():
        made.kv_b_proj.weight.copy_(torch.cat([up, torch.eye(2)]))
    h, query = tensor([1.0, 2, 3, 4]), tensor([1.0, 2, 0, 0])
    c = down @ h
    near(c, [3, 7])
    near(up @ c, [3, 7, 10, 0])
    near(query @ (up @ c), 17)
    near((up.T @ query) @ c, 17)
    latents = torch.stack([c, 2 * c])[None].double()
    seen = torch.ones(1, 1, 2, dtype=torch.bool)
    arguments = (query[None, None, None].double(), torch.zeros(1, 1, 1, 0).double(), latents,
                 torch.zeros(1, 2, 0).double(), seen, 0.01)  # fmt: skip
    near(made.expanded(*arguments), made.absorbed(*arguments), 12)


def test_sampling() -> None:
    logits = tensor([[0.50, 0.30, 0.15, 0.05]]).log()
    near(distribution(logits, top_k=2), [[0.625, 0.375, 0, 0]])
    near(distribution(logits, top_p=0.90), [[0.50 / 0.95, 0.30 / 0.95, 0.15 / 0.95, 0]])


def of(*chances: float) -> tuple[Tensor, Tensor]:
    """Logits that give the targets, all of number 0, these probabilities."""
    rows = tensor([[p, 1 - p] for p in chances], dtype=torch.float64).log()[None]
    return rows, torch.zeros(1, len(chances), dtype=torch.long)


def test_loss() -> None:
    near(losses(*of(0.70, 0.01))[0], [0.357, 4.605], 3)
    three = losses(*of(0.5, 0.4, 0.25))
    near(three.sum(), 2.99573, 5)
    near(three.mean(), 0.99858, 5)


@pytest.mark.parametrize(("chances", "expected"), [((0.5, 0.25), 2.828), ((0.9, 0.1), 3.33), ((0.4, 0.4), 2.5)])
def test_perplexity(chances: tuple[float, ...], expected: float) -> None:
    assert perplexity(*of(*chances)) == pytest.approx(expected, abs=0.005)


def test_gradient_of_the_loss() -> None:
    logits = tensor([[0.2, 0.7, 0.1]]).log().requires_grad_()
    cross_entropy(logits, tensor([1])).backward()
    assert logits.grad is not None
    near(logits.grad, [[0.2, -0.3, 0.1]])


def test_one_weight() -> None:
    w = tensor(1.0, requires_grad=True)
    loss = (w * 2 - 3) ** 2 / 2
    loss.backward()
    assert w.grad is not None
    near(loss.detach(), 0.5)
    near(w.grad, -2)
    moved = w.detach() - 0.1 * w.grad
    near(moved, 1.2)
    near((moved * 2 - 3) ** 2 / 2, 0.18)


def test_speculative_sampling() -> None:
    draft, target = tensor([0.8, 0.2]), tensor([0.6, 0.4])
    accept, again = speculate(draft, target)
    near(accept, [0.75, 1])
    near(again, [0, 1])
    near(draft * accept + (draft * (1 - accept)).sum() * again, [0.6, 0.4])
