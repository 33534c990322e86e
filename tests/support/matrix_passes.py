"""How often a draft model runs, and what it proposes, in one engine of the matrix; transformers judges."""

from typing import Any

import msgspec
from devtools import tinymodel

# Logits this close are alike: another order of the same sums.
ALIKE = 1e-3


class Proposal(msgspec.Struct, frozen=True):
    """What a step's drafting was.

    `asked_for` draft tokens of each sequence, `passes` of the draft model; `drafts` has by request how many
    tokens of prompt and output were known, the last of them, and the draft tokens.
    """

    asked_for: int
    passes: int
    drafts: dict[str, tuple[int, int, list[int]]]


def watch(worker: Any) -> None:
    """Begin to note, on a rank of Model Runner V2 with a draft model, each step's proposal."""
    speculator = getattr(worker.model_runner, "speculator", None)
    worker.proposals = made = []
    if type(speculator).__name__ != "StandaloneARSpeculator":
        return
    run, propose = speculator._run_model, speculator.propose
    passes = 0

    def run_model(*arguments: Any, **options: Any) -> Any:
        nonlocal passes
        passes += 1
        return run(*arguments, **options)

    def proposed(input_batch: Any, *arguments: Any, num_speculative_tokens: int, **options: Any) -> Any:
        nonlocal passes
        passes = 0
        tokens = propose(input_batch, *arguments, num_speculative_tokens=num_speculative_tokens, **options)
        # As BaseSpeculator.propose has them: num_sampled, num_rejected, last_sampled.
        sampled, rejected, last = (each.flatten().tolist() for each in arguments[4:7])
        slots = input_batch.idx_mapping.tolist()
        drafts = {
            name: (
                int(input_batch.seq_lens[row]) - rejected[row] + 1,
                last[slots[row]],
                tokens[row, :num_speculative_tokens].tolist(),
            )
            for row, name in enumerate(input_batch.req_ids)
            if sampled[row]
        }
        made.append(Proposal(num_speculative_tokens, passes, drafts))
        return tokens

    speculator._run_model, speculator.propose = run_model, proposed


def proposals(worker: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = msgspec.to_builtins(worker.proposals)
    return found


class DraftModel:
    """The matrix's draft model, by transformers."""

    def __init__(self) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(tinymodel.models() / "tiny")
        self._model = AutoModelForCausalLM.from_pretrained(tinymodel.models() / "tiny-draft", dtype="float32")

    def text(self, prompt: str, tokens: list[int]) -> list[int]:
        """Return the ids of a prompt and its output."""
        ids: list[int] = [*self._tokenizer.encode(prompt), *tokens]
        return ids

    def would_propose(self, text: list[int], drafts: list[int]) -> bool:
        """Return whether each draft token is the model's first choice behind the text and those before it."""
        import torch

        if not drafts:
            return True
        with torch.inference_mode():
            rows = self._model(torch.tensor([[*text, *drafts[:-1]]])).logits[0, len(text) - 1 :]
        given = rows[torch.arange(len(drafts)), torch.tensor(drafts)]
        return bool((given >= rows.max(dim=1).values - ALIKE).all())
