"""Temperatures and top_k of each draft token on a CPU without Triton."""

import sys

import torch
from vllm.platforms import current_platform
from vllm.utils.cpu_triton_utils import _expand_kernel_impl


def main() -> str:
    current_platform.import_kernels()
    totals = torch.tensor([2, 2, 3], dtype=torch.int32)
    for values in (torch.tensor([0.5, 9.5, -1.0]), torch.tensor([5, 9, -1], dtype=torch.int32)):
        found, (first, *_) = values.new_zeros(3), values.tolist()
        _expand_kernel_impl(found, values, totals, -1, 1)
        if (expanded := found.tolist()) != [first, first, 1]:
            return f"{values.dtype}: expanded to {expanded}, not {[first, first, 1]}"
    return ""


if __name__ == "__main__":
    sys.exit(main() or 0)
