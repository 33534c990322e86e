"""A LoRA adapter of the tiny model that changes what it says, made from a fixed seed."""

import json
from pathlib import Path
from typing import Any

from devtools import cache, tinymodel

RANK = 4
# Of the tiny model's shape: hidden size and the width of the projection.
_WIDTHS = {"q_proj": (128, 128), "v_proj": (128, 64)}
_LAYERS = 2


def adapter() -> Path:
    """Return the adapter's folder, in the format of PEFT."""
    return cache.built("lora", [Path(__file__), tinymodel.models().name], build)


def lora_request(path: str) -> Any:
    """Return what vLLM needs for each request that wants the adapter."""
    from vllm.lora.request import LoRARequest

    return LoRARequest("adapter", 1, path)


def build(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for layer in range(_LAYERS):
        for name, (size, width) in _WIDTHS.items():
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{prefix}.lora_A.weight"] = torch.randn(RANK, size, generator=generator) * 0.3
            tensors[f"{prefix}.lora_B.weight"] = torch.randn(width, RANK, generator=generator) * 0.3
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "target_modules": list(_WIDTHS),
        "bias": "none",
        "base_model_name_or_path": "tiny",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
