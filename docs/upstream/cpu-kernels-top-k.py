"""top_k of a speculating step in which no request has a draft, on a CPU without Triton."""

import sys

import torch
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p


def main() -> str:
    try:
        apply_top_k_top_p(torch.zeros(0, 8), torch.zeros(0, dtype=torch.int32), None)
    except RuntimeError as error:
        return f"top_k of no rows failed: {error}"
    return ""


if __name__ == "__main__":
    sys.exit(main() or 0)
