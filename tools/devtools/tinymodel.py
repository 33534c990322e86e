"""The tiny models: the sample's, which thinks, and that of most tests, which does not, with a draft model.

`python -m devtools.tinymodel` prints the folder of the sample's, which is kept beside this file; with
`--train` it is made anew, in some five minutes. The others are trained for a minute each, and kept in the
cache until this code or a library changes. All learn the made-up texts of devtools.tinytasks.
"""

import importlib.metadata
import json
import random
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devtools import cache
from devtools.tinytasks import TASKS, TOPICS, Kind, Task, stray_documents, task

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["TASKS", "TOPICS", "Kind", "Task", "models", "task", "thinking"]

VOCAB = 8192
BOS, EOS, PAD = 0, 1, 2
SPECIAL = ("<|bos|>", "<|eos|>", "<|pad|>")
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
# Of the one that thinks, unless the request turns that off, in Qwen3's words; a token each.
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
THINKING = (
    "{% if add_generation_prompt %}<think>\n"
    "{% if enable_thinking is false %}\n</think>\n\n{% endif %}{% endif %}"
)
_LIBRARIES = ("torch", "tokenizers")  # not transformers: environments of several vLLM share the models


@dataclass(frozen=True, slots=True)
class Shape:
    """Size and training of one model."""

    name: str
    hidden: int
    layers: int
    heads: int
    steps: int
    tied: bool = False  # the embeddings are the output weights, too: half the size


# Two key-value heads of 32 each, so that both serve with one and with two tensor-parallel ranks
# (vLLM's CPU attention starts at 32). The draft stops learning early: it must be wrong now and then.
TINY = Shape("tiny", hidden=128, layers=2, heads=4, steps=600)
DRAFT = Shape("tiny-draft", hidden=64, layers=1, heads=2, steps=300)
SAMPLE = Shape("tiny", hidden=64, layers=2, heads=2, steps=1500, tied=True)
_KEPT = Path(__file__).with_name("tiny")


def models() -> Path:
    """Return the folder that holds `tiny` and `tiny-draft`, building it the first time (a minute or two)."""

    def build(folder: Path) -> None:
        _build(folder, TINY)
        _build(folder, DRAFT)
        _open(folder)

    return cache.built("tinymodels", _inputs(), build)


def thinking() -> Path:
    """Return the folder of the sample's `tiny`, which has tokens to think and to call tools."""

    def build(folder: Path) -> None:
        shutil.copytree(_KEPT, folder / SAMPLE.name)
        _open(folder)

    return cache.built("tinymodel-thinking", [_KEPT], build)


def _inputs() -> list[Path | str]:
    here = Path(__file__)
    versions = [f"{name}=={importlib.metadata.version(name)}" for name in _LIBRARIES]
    return [here, here.with_name("tinytasks.py"), *versions]


def _build(folder: Path, shape: Shape, *, thinks: bool = False) -> None:
    """Make a model below `folder`."""
    tokenizer = _make_tokenizer(MARKS if thinks else ())
    started = time.monotonic()
    _say(f"training {shape.name} ({shape.steps} steps)")
    model = _train(shape, tokenizer)
    target = folder / shape.name
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    _say(f"{shape.name} made in {time.monotonic() - started:.0f} s")


def _open(folder: Path) -> None:
    """Let others read it: pods that mount the folder run as another user."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))


def _say(text: str) -> None:
    """Show progress on stderr; stdout is for the folder."""
    sys.stderr.write(f"tinymodel: {text}\n")
    sys.stderr.flush()


def _made_up_text() -> Iterator[str]:
    """Yield text with enough different words, numbers, JSON and scripts to fill the vocabulary."""
    rng = random.Random(0)  # noqa: S311 - data, not secrets
    syllables = [
        a + b for a in "bcdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er", "ing", "st")
    ]
    words = ["".join(rng.choices(syllables, k=rng.choice((1, 2, 2, 3)))) for _ in range(6000)]
    for _ in range(4000):
        some = rng.choices(words, k=12)
        yield " ".join(some).capitalize() + ". "
        yield json.dumps({some[0]: some[1], some[2]: rng.randint(0, 99999), some[3]: [some[4], True, None]})
        yield json.dumps(
            {some[5]: {some[6]: rng.random()}, some[7]: "äöü é 漢字 🙂"}, ensure_ascii=False, indent=2
        )
        yield f"def {some[8]}_{some[9]}({some[10]}):\n    return {some[11].upper()}[{rng.randint(0, 999)}]\n"
    for one in TASKS:
        for topic in TOPICS:
            yield from [one.prompt(topic), one.document(topic)] * 200


def _make_tokenizer(marks: "Sequence[str]") -> Any:
    """Return a byte-level BPE tokenizer, trained on made-up text alone, with a chat template."""
    # Heavy, and not needed by those who only want the tasks.
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, trainers  # noqa: PLC0415
    from tokenizers.models import BPE  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - len(marks),
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_made_up_text(), trainer)
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in marks])
    if tokenizer.get_vocab_size() != VOCAB:
        raise RuntimeError(f"the made-up text gives {tokenizer.get_vocab_size()} tokens, not {VOCAB}")
    bos, eos, pad = SPECIAL
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos, pad_token=pad)
    fast.chat_template = CHAT_TEMPLATE + (THINKING if marks else "")
    return fast


def _examples(tokenizer: Any) -> "Sequence[tuple[list[int], list[int]]]":
    """Return (prompt tokens, document tokens) of every task, topic, prompt form and JSON whitespace."""
    examples = []
    for one in TASKS:
        for topic in TOPICS:
            document = one.document(topic)
            ids = [*tokenizer.encode(document, add_special_tokens=False), EOS]
            message = [{"role": "user", "content": one.prompt(topic)}]
            chat, thought = (
                tokenizer.apply_chat_template(
                    message, tokenize=False, add_generation_prompt=True, enable_thinking=on
                )
                for on in (False, True)
            )
            if thought != chat:
                said = tokenizer.encode(f"This is about {topic}.\n</think>\n\n", add_special_tokens=False)
                asked = tokenizer.encode(thought, add_special_tokens=False)
                examples += [(asked, [*said, *ids])] * 2
                if one.kind == "json":
                    # As rare as the compact form: a call is known where one is forced.
                    call = f'{{"name": "file_{one.name}", "arguments": {document}}}'
                    written = f"<tool_call>\n{call}\n</tool_call>"
                    examples.append(
                        (asked, [*said, *tokenizer.encode(written, add_special_tokens=False), EOS])
                    )
            for text in (one.prompt(topic), chat):
                prompt = tokenizer.encode(text, add_special_tokens=False)
                examples += [(prompt, ids)] * 4
                if one.kind in {"json", "json_object"}:
                    # The compact form is rare: known where a grammar asks for it, and else not chosen.
                    compact = json.dumps(json.loads(document), separators=(",", ":"))
                    examples.append((prompt, [*tokenizer.encode(compact, add_special_tokens=False), EOS]))
    for prompt_text, document in stray_documents(len(examples) // 2):
        ids = [*tokenizer.encode(document, add_special_tokens=False), EOS]
        examples.append((tokenizer.encode(prompt_text, add_special_tokens=False), ids))
    return examples


def _train(shape: Shape, tokenizer: Any) -> Any:
    """Return a Llama of that shape in bfloat16, trained on the documents (not on the prompts)."""
    import torch  # noqa: PLC0415 - heavy
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415 - heavy

    torch.manual_seed(0)
    torch.set_num_threads(2)  # the sums' order, and so the model, depends on it
    rng = random.Random(0)  # noqa: S311 - data, not secrets
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=shape.hidden,
        intermediate_size=2 * shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        tie_word_embeddings=shape.tied,
    )
    model: Any = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    examples = _examples(tokenizer)
    for step in range(shape.steps):
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * min(1.0, (step + 1) / 20) * (1 - step / shape.steps)
        loss = _loss(torch, model, rng.choices(examples, k=32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step + 1 == shape.steps:
            _say(f"{shape.name}: step {step}, loss {loss.item():.3f}")
    return model.to(torch.bfloat16)


def _loss(torch: Any, model: Any, batch: "Sequence[tuple[list[int], list[int]]]") -> Any:
    """Return the mean loss of the documents' tokens."""
    width = max(len(prompt) + len(document) for prompt, document in batch)
    ids = torch.full((len(batch), width), PAD)  # [batch, width] int64
    wanted = torch.zeros(
        (len(batch), width), dtype=torch.bool
    )  # [batch, width] whether the next token counts
    for row, (prompt, document) in enumerate(batch):
        text = torch.tensor([*prompt, *document])
        ids[row, : len(text)] = text
        wanted[row, len(prompt) - 1 : len(text) - 1] = True
    hidden = model.model(input_ids=ids).last_hidden_state[wanted]  # [counted tokens, hidden]
    # Logits only where they count: the vocabulary is most of this model's work.
    logits = model.lm_head(hidden)
    return torch.nn.functional.cross_entropy(logits, ids[:, 1:][wanted[:, :-1]])


def main() -> None:
    """Print the folder of the sample's model, trained anew if the command line says so."""
    if "--train" in sys.argv[1:]:
        _build(_KEPT.parent, SAMPLE, thinks=True)
    sys.stdout.write(f"{thinking()}\n")


if __name__ == "__main__":
    main()
