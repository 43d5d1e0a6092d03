"""Matrices that read the same input as one product: fewer and larger kernels, the same parameters.

The parts become views of the whole, so that nothing is stored twice. For inference: gradients do not reach the parts.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Joined:
    """Linear layers with their rows one after another: [..., D] -> each [..., rows]."""

    def __init__(self, *parts: nn.Linear) -> None:
        self.sizes = [part.out_features for part in parts]
        with torch.no_grad():
            self.weight = torch.cat([part.weight for part in parts])
            biased = [part.bias is not None for part in parts]
            self.bias = None
            if any(biased):
                absent = [self.weight.new_zeros(size) for size in self.sizes]
                self.bias = torch.cat([absent[i] if p.bias is None else p.bias for i, p in enumerate(parts)])
        for index, part in enumerate(parts):
            rows = slice(sum(self.sizes[:index]), sum(self.sizes[: index + 1]))
            part.weight = nn.Parameter(self.weight[rows], requires_grad=False)
            if self.bias is not None and part.bias is not None:
                part.bias = nn.Parameter(self.bias[rows], requires_grad=False)

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """Every part's product."""
        return functional.linear(x, self.weight, self.bias).split(self.sizes, -1)


class Stacked:
    """The same matrix of all experts, so that tokens sorted by expert pass them in one product: [E, O, I]."""

    def __init__(self, parts: list[nn.Linear]) -> None:
        with torch.no_grad():
            self.weight_EOI = torch.stack([part.weight for part in parts])
            self.bias_EO = None if parts[0].bias is None else torch.stack([part.bias for part in parts])
        for index, part in enumerate(parts):
            part.weight = nn.Parameter(self.weight_EOI[index], requires_grad=False)
            if self.bias_EO is not None:
                part.bias = nn.Parameter(self.bias_EO[index], requires_grad=False)

    def __call__(self, x_NI: Tensor, expert_N: Tensor, ends_E: Tensor) -> Tensor:
        """Rows sorted by expert, the expert of each, and where each expert's end: [N, I] -> [N, O]."""
        y_NO = functional.grouped_mm(x_NI, self.weight_EOI.mT, offs=ends_E)
        return y_NO if self.bias_EO is None else y_NO + self.bias_EO[expert_N]
