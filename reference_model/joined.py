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
    """The same matrices of all experts in one piece of memory: [E, O, I], of several their rows one after another."""

    def __init__(self, *parts: list[nn.Linear]) -> None:
        self.sizes = [one[0].out_features for one in parts]
        count, inputs, first = len(parts[0]), parts[0][0].in_features, parts[0][0].weight
        with torch.no_grad():
            self.weight_EOI = first.new_empty(count, sum(self.sizes), inputs)
            biased = parts[0][0].bias is not None
            self.bias_EO = first.new_empty(count, sum(self.sizes)) if biased else None
        for number, same in enumerate(parts):
            rows = slice(sum(self.sizes[:number]), sum(self.sizes[: number + 1]))
            for index, part in enumerate(same):
                self._take(part, index, rows)
        self.each = list(self.weight_EOI.unbind(0))

    def _take(self, part: nn.Linear, index: int, rows: slice) -> None:
        """Move a matrix into its place, and let it be a view of that."""
        with torch.no_grad():
            self.weight_EOI[index, rows] = part.weight
            part.weight = nn.Parameter(self.weight_EOI[index, rows], requires_grad=False)
            if self.bias_EO is not None and part.bias is not None:
                self.bias_EO[index, rows] = part.bias
                part.bias = nn.Parameter(self.bias_EO[index, rows], requires_grad=False)

    def one(self, x_NI: Tensor, index: int) -> tuple[Tensor, ...]:
        """Through one expert's: [N, I] -> each [N, O]."""
        bias_O = None if self.bias_EO is None else self.bias_EO[index]
        return functional.linear(x_NI, self.each[index], bias_O).split(self.sizes, -1)

    def __call__(self, x_NI: Tensor, expert_N: Tensor, ends_E: Tensor) -> tuple[Tensor, ...]:
        """Rows sorted by expert, the expert of each, and where each expert's end: [N, I] -> each [N, O]."""
        y_NO = functional.grouped_mm(x_NI, self.weight_EOI.mT, offs=ends_E)
        y_NO = y_NO if self.bias_EO is None else y_NO + self.bias_EO[expert_N]
        return y_NO.split(self.sizes, -1)
