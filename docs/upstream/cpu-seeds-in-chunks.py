"""A seeded request whose prompt is taken in chunks: Model Runner V1 on a CPU."""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ |= {
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # else the same ends the engine core's process
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "CRITICAL",
}

from vllm import LLM, SamplingParams

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "vocab_size": 256,
    "max_position_embeddings": 128,
}


def main() -> str:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(MODEL))
        llm = LLM(
            folder,
            load_format="dummy",
            skip_tokenizer_init=True,
            dtype="float32",
            enforce_eager=True,
            enable_prefix_caching=False,
            max_model_len=128,
            max_num_batched_tokens=64,
        )
    seeded = SamplingParams(seed=1, max_tokens=8, ignore_eos=True, detokenize=False)
    prompt, other = ({"prompt_token_ids": [token] * 40} for token in (3, 4))
    (whole,) = llm.generate(prompt, seeded, use_tqdm=False)
    try:
        _, in_chunks = llm.generate([other, prompt], seeded, use_tqdm=False)  # 40 tokens + 24, then 16
    except RuntimeError as error:
        return f"a seeded prompt in chunks ended the engine: {error}"
    if whole.outputs[0].token_ids != in_chunks.outputs[0].token_ids:
        return "the same seed gave other tokens where the prompt was taken in chunks"
    return ""


if __name__ == "__main__":
    sys.exit(main() or 0)
