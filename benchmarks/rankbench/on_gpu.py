"""An engine on a real GPU: what it is asked for, and the schemas of its requests."""

import json
import os
from pathlib import Path
from typing import Any, Final

from rankbench.protocol import EngineSpec

_FEWEST: Final = 2000  # records: more than any run generates


class Records:
    """Schemas of long lists of records, each sequence's with names of its own."""

    name: Final = "records"

    def schema(self, sequence: int) -> str:
        """Return the schema of a sequence."""
        fields = {
            f"id_{sequence}": {"type": "integer"},
            "kind": {"enum": ["created", "updated", "deleted"]},
            "score": {"type": "number"},
            "is_open": {"type": "boolean"},
            "title": {"type": "string"},
        }
        record = {
            "type": "object",
            "properties": fields,
            "required": list(fields),
            "additionalProperties": False,
        }
        return json.dumps({"type": "array", "items": record, "minItems": _FEWEST})


def arguments(spec: EngineSpec) -> dict[str, Any]:
    """Return what vLLM is asked for on a GPU, in place of what it is asked for elsewhere."""
    drafts = {
        "method": "ngram_gpu",
        "num_speculative_tokens": spec.drafts,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 5,
    }
    return {
        "load_format": "dummy",
        "enforce_eager": False,
        # Graphs of whole steps; torch.compile would make the forward pass shorter for all modes alike.
        "compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"},
        "num_gpu_blocks_override": None,
        "block_size": 16,
        "max_num_batched_tokens": 4096,
        "kv_cache_memory_bytes": 4 << 30,  # engines that start together cannot measure what is free
        "gpu_memory_utilization": 0.2,
        "skip_tokenizer_init": False,
        **({"speculative_config": drafts} if spec.drafts else {}),
    }


def environment() -> dict[str, str]:
    """Return what an engine program needs in its environment, beside what all need and its parent has."""
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        # The sidecar's libraries, in this program for once, ask for devices before vLLM is imported.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "PYTHONPATH": os.pathsep.join(paths),
    }
