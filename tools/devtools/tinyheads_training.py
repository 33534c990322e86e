"""How the drafters of devtools.tinyheads are shaped, trained and saved, each as vLLM reads it."""

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, Qwen2Config
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen2 import modeling_qwen2 as qwen2

from devtools import tinymodel

# They stop learning early, as the draft model does: a drafter must be wrong now and then.
STEPS: Final = 120
BATCH: Final = 24
RATE: Final = 3e-3
AHEAD: Final = 3  # drafts in a row from each position, the later ones from what the drafter itself gave
DRAFT_VOCAB: Final = 512  # an EAGLE-3 head knows some tokens alone, and maps them to the model's
_IGNORED: Final = -100  # cross_entropy leaves it out

Example = tuple[list[int], list[int]]  # prompt, document


class Batch(NamedTuple):
    """Texts, and what the target model makes of them.

    Attributes
    ----------
    ids
        [batch, width] int64.
    layers
        Of [batch, width, hidden]: the embeddings, then what each layer gave, before any norm.
    wanted
        [batch, width] int64: the target's own next token, _IGNORED outside the documents.
    """

    ids: Any
    layers: list[Any]
    wanted: Any


class Eagle3:
    """An EAGLE-3 head: three of the target's hidden states, a Llama layer, and logits of its own."""

    def __init__(self, target: Any, examples: Sequence[Example]) -> None:
        self.config = LlamaConfig(**{**target.config.to_dict(), "num_hidden_layers": 1})
        self.config._attn_implementation = "sdpa"  # noqa: SLF001 - as from_pretrained sets it
        size = self.config.hidden_size
        layer = llama.LlamaDecoderLayer(self.config, layer_idx=0)
        for name in ("q_proj", "k_proj", "v_proj"):  # they read the token's embedding, too
            width = getattr(layer.self_attn, name).out_features
            setattr(layer.self_attn, name, nn.Linear(2 * size, width, bias=False))
        layer.hidden_norm = llama.LlamaRMSNorm(size, self.config.rms_norm_eps)
        self.modules = nn.ModuleDict(
            {
                "fc": nn.Linear(3 * size, size, bias=False),
                "midlayer": layer,
                "norm": llama.LlamaRMSNorm(size, self.config.rms_norm_eps),
                "lm_head": nn.Linear(size, DRAFT_VOCAB, bias=False),
            }
        )
        counts = Counter(token for _, document in examples for token in document)
        frequent = sorted(range(self.config.vocab_size), key=lambda token: -counts[token])
        self._tokens = torch.tensor(sorted(frequent[:DRAFT_VOCAB]))  # [DRAFT_VOCAB] the model's ids
        self._drafts = torch.full((self.config.vocab_size,), _IGNORED)  # [vocab] the head's ids
        self._drafts[self._tokens] = torch.arange(DRAFT_VOCAB)

    def enter(self, layers: list[Any]) -> Any:
        """Return what the first draft is made from; the later ones are made from what `step` gave."""
        return self.modules["fc"](torch.cat(layers, dim=-1))

    def step(self, hidden: Any, embeds: Any, rotary: Any) -> tuple[Any, Any]:
        """Return what logits are made from, and what the next draft is."""
        layer = self.modules["midlayer"]
        read = torch.cat([layer.input_layernorm(embeds), layer.hidden_norm(hidden)], dim=-1)
        attended, _ = layer.self_attn(read, position_embeddings=rotary, attention_mask=None)
        hidden = hidden + attended
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return self.modules["norm"](hidden), hidden

    def loss(self, hidden: Any, wanted: Any) -> Any:
        """Return how far off the tokens are that are drafted from these hidden states."""
        return nn.functional.cross_entropy(self.modules["lm_head"](hidden), self._drafts[wanted])

    def save(self, folder: Path) -> None:
        """Write the head with its map of tokens, `d2t`."""
        known = torch.zeros(self.config.vocab_size, dtype=torch.bool)
        known[self._tokens] = True
        maps = {"d2t": self._tokens - torch.arange(DRAFT_VOCAB), "t2d": known}
        told = {
            "architectures": ["LlamaForCausalLMEagle3"],
            "draft_vocab_size": DRAFT_VOCAB,
            "eagle_aux_hidden_state_layer_ids": [0, 1, 2],  # vLLM's own choice is for more layers
        }
        _save(folder, {**self.modules.state_dict(), **maps}, self.config, told)


class Mimo:
    """MiMo's prediction of one token more: a Qwen2 layer, which shares the model's embedding and head."""

    def __init__(self, target: Any, _examples: Sequence[Example]) -> None:
        self.config = Qwen2Config(**{**target.config.to_dict(), "model_type": "qwen2"})
        self.config._attn_implementation = "sdpa"  # noqa: SLF001 - as from_pretrained sets it
        self._target = target
        size = self.config.hidden_size
        self.modules = nn.ModuleDict(
            {
                "hidden_layernorm": qwen2.Qwen2RMSNorm(size, self.config.rms_norm_eps),
                "token_layernorm": qwen2.Qwen2RMSNorm(size, self.config.rms_norm_eps),
                "input_proj": nn.Linear(2 * size, size, bias=False),
                "block": qwen2.Qwen2DecoderLayer(self.config, layer_idx=0),
                "final_layernorm": qwen2.Qwen2RMSNorm(size, self.config.rms_norm_eps),
            }
        )

    def enter(self, layers: list[Any]) -> Any:
        """Return what the first draft is made from, as in Eagle3."""
        return layers[-1]

    def step(self, hidden: Any, embeds: Any, rotary: Any) -> tuple[Any, Any]:
        """Return what logits are made from, and what the next draft is: the same."""
        embeds = torch.cat([torch.zeros_like(embeds[:, :1]), embeds[:, 1:]], dim=1)  # none for position 0
        read = [self.modules["hidden_layernorm"](hidden), self.modules["token_layernorm"](embeds)]
        hidden = self.modules["input_proj"](torch.cat(read, dim=-1))
        hidden = self.modules["block"](hidden, position_embeddings=rotary, attention_mask=None)
        hidden = self.modules["final_layernorm"](hidden)
        return hidden, hidden

    def loss(self, hidden: Any, wanted: Any) -> Any:
        """Return how far off the tokens are that are drafted from these hidden states."""
        return nn.functional.cross_entropy(self._target.lm_head(hidden), wanted)

    def save(self, folder: Path) -> None:
        """Write the target's weights with the layer that predicts."""
        layer = {
            f"model.mtp_layers.0.{name.removeprefix('block.')}": tensor
            for name, tensor in self.modules.state_dict().items()
        }
        tensors = self._target.state_dict()
        biases = {  # Qwen2's layers have them, Llama's have not
            name.replace(".weight", ".bias"): torch.zeros(len(tensor))
            for name, tensor in tensors.items()
            if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
        }
        told = {"architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1}
        _save(folder, {**tensors, **biases, **layer}, self.config, told)


def _save(folder: Path, tensors: dict[str, Any], config: Any, told: dict[str, Any]) -> None:
    folder.mkdir()
    stored = {
        name: (tensor.bfloat16() if tensor.is_floating_point() else tensor).clone()
        for name, tensor in tensors.items()
    }
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**config.to_dict(), **told, "dtype": "bfloat16"}))


def build(folder: Path, target: Path) -> None:
    """Make the drafters below `folder`."""
    torch.set_num_threads(1)  # the sums' order, and so the drafters, depend on it
    model: Any = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    model.requires_grad_(requires_grad=False)
    examples = _examples(AutoTokenizer.from_pretrained(target))
    torch.manual_seed(0)
    Eagle3(model, examples).save(folder / "eagle3-random")
    for name, kind in (("eagle3", Eagle3), ("mimo", Mimo)):
        started = time.monotonic()
        torch.manual_seed(0)
        drafter = kind(model, examples)
        _train(name, model, drafter, examples)
        drafter.save(folder / name)
        _say(f"{name} made in {time.monotonic() - started:.0f} s")


def _say(text: str) -> None:
    sys.stderr.write(f"tinyheads: {text}\n")


def _examples(tokenizer: Any) -> list[Example]:
    """Return what tiny learned to answer, JSON in its compact form, too."""
    examples = []
    for one in tinymodel.TASKS:
        for topic in tinymodel.TOPICS:
            prompt = tokenizer.encode(one.prompt(topic), add_special_tokens=False)
            texts = [one.document(topic)]
            if one.kind in {"json", "json_object"}:
                texts.append(json.dumps(json.loads(texts[0]), separators=(",", ":")))
            examples += [
                (prompt, [*tokenizer.encode(text, add_special_tokens=False), tinymodel.EOS]) for text in texts
            ]
    return examples


def _train(name: str, model: Any, drafter: Eagle3 | Mimo, examples: list[Example]) -> None:
    rng = random.Random(0)  # noqa: S311 - data, not secrets
    optimizer = torch.optim.AdamW(drafter.modules.parameters(), lr=RATE)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 20) * (1 - step / STEPS)
        loss = _loss(model, drafter, _batch(model, rng.choices(examples, k=BATCH)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0 or step + 1 == STEPS:
            _say(f"{name}: step {step}, loss {loss.item():.3f}")


def _batch(model: Any, examples: list[Example]) -> Batch:
    width = max(len(prompt) + len(document) for prompt, document in examples)
    ids = torch.full((len(examples), width), tinymodel.PAD)
    counts = torch.zeros((len(examples), width), dtype=torch.bool)
    for row, (prompt, document) in enumerate(examples):
        text = torch.tensor([*prompt, *document])
        ids[row, : len(text)] = text
        counts[row, len(prompt) - 1 : len(text) - 1] = True
    layers = [model.model.embed_tokens(ids)]
    hooks = [
        layer.register_forward_hook(lambda _module, _given, hidden: layers.append(hidden))
        for layer in model.model.layers
    ]
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    for hook in hooks:
        hook.remove()
    return Batch(ids, layers, torch.where(counts, logits.argmax(-1), _IGNORED))


def _loss(model: Any, drafter: Eagle3 | Mimo, batch: Batch) -> Any:
    """Return the loss of all drafts: from a position and the token after it, what the target says next."""
    embeds = model.model.embed_tokens(batch.ids[:, 1:])  # [batch, width - 1, hidden]
    rotary = model.model.rotary_emb(embeds, torch.arange(embeds.shape[1])[None])
    given = drafter.enter([layer[:, :-1] for layer in batch.layers])
    counts = batch.wanted[:, 1:] != _IGNORED
    loss = 0.0
    for ahead in range(AHEAD):
        hidden, gave = drafter.step(given, embeds, rotary)
        loss += 0.8**ahead * drafter.loss(hidden[counts], batch.wanted[:, 1:][counts])
        given = torch.cat([given[:, :1], gave[:, :-1]], dim=1)
    return loss
