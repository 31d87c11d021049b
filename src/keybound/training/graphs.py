"""Networks as a GPU likes them: in half precision, recorded as graphs. Elsewhere as they are."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Half(nn.Module):
    """A network that computes in bfloat16 on a GPU, in float32 elsewhere."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: Tensor) -> Any:
        on = inputs[0].is_cuda
        with torch.autocast(
            inputs[0].device.type, dtype=torch.bfloat16, enabled=on, cache_enabled=False
        ):
            return self.inner(*inputs)


def graphed(module: nn.Module, *samples: Tensor) -> Callable[..., Any]:
    """Record a network as a CUDA graph, since launching kernels costs more than running them."""
    if not samples[0].is_cuda:
        return module
    made: Callable[..., Any] = torch.cuda.make_graphed_callables(
        module, samples, allow_unused_input=True
    )
    return made
