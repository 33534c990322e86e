"""What plain forms of the logits processors choose, to judge what the engine matrix gave with them.

The logits are those of transformers, in float32, so nothing of vLLM is in what an engine is compared with.
"""

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
from devtools import tinymodel

from support.matrix_grammars import Grammars
from support.matrix_requests import Request
from support.token_walks import Judge, Logits

# Of logits that are closer than this, another order of the sums in a matrix product may choose either.
ALIKE = 1e-3


class References:
    """The model and the processors, in their plain forms."""

    def __init__(self, grammars: Grammars) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        folder = tinymodel.models() / "tiny"
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
        self._grammars = grammars

    def unlike(self, request: Request, tokens: list[int], chosen: str) -> list[tuple[int, int, int]]:
        """Return where a token is not what the processors choose of the logits: place, token, choice.

        None is, where they leave no token.
        """
        rows = self.rows(request, tokens, chosen)
        given = rows[np.arange(len(tokens)), tokens]
        places = np.flatnonzero((given < rows.max(axis=1) - ALIKE) | np.isneginf(given))
        return [(int(place), tokens[place], int(rows[place].argmax())) for place in places]

    def rows(self, request: Request, tokens: list[int], chosen: str) -> Logits:
        """Return the logits that each token is chosen by, in V2's order: penalties first."""
        prompt = self._tokenizer.encode(request.prompt)
        judges = [_JUDGES[name] for name in filter(None, chosen.split(","))]
        rows = self.logits(request, tokens)
        for place in range(len(tokens)):
            _penalise(rows[place], prompt, tokens[:place], request.params)
            for judge in judges:
                rows[place] = judge(prompt, tokens[:place], rows[place])
        if request.kind != "none":
            content = self._grammars.content(request, tokens)
            allowed = self._grammars.allowed("xgrammar", request, content)
            rows[len(tokens) - len(content) :][~allowed] = -np.inf
        return rows

    def outside(self, request: Request, tokens: list[int], chosen: str) -> int:
        """Return how many tokens are not among the first `top_k`, or the first that make up `top_p`."""
        odds = np.exp(log_probabilities(self.rows(request, tokens, chosen)))
        count = 0
        for row, token in zip(odds, tokens, strict=True):
            higher = row[row > row[token] * (1 + ALIKE)]
            count += len(higher) >= request.params.get("top_k", len(row))
            count += higher.sum() > request.params.get("top_p", 1) + ALIKE
        return count

    def logits(self, request: Request, tokens: list[int]) -> Logits:
        """Return what the model says in the place of each token, [tokens, vocabulary]."""
        import torch

        prompt = self._tokenizer.encode(request.prompt)
        with torch.inference_mode():
            logits = self._model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        return np.array(logits, np.float32)


def _penalise(logits: Logits, prompt: list[int], output: list[int], params: dict[str, Any]) -> None:
    seen = sorted({*prompt, *output})
    factor = np.float32(params.get("repetition_penalty", 1))
    logits[seen] = np.where(logits[seen] > 0, logits[seen] / factor, logits[seen] * factor)
    for token, count in Counter(output).items():
        logits[token] -= params.get("frequency_penalty", 0) * count + params.get("presence_penalty", 0)


def log_probabilities(logits: Logits) -> Logits:
    """Return the log-softmax of each row."""
    logits = logits - logits.max(axis=-1, keepdims=True)
    found: Logits = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return found


def _no_repeat(_prompt: list[int], output: list[int], logits: Logits) -> Logits:
    after = {second for first, second in pairwise(output) if first == output[-1]} - {tinymodel.EOS}
    logits[list(after)] -= 100
    return logits


def _waves(_prompt: list[int], output: list[int], logits: Logits) -> Logits:
    columns = np.arange(len(logits), dtype=np.float32)
    return logits + 3 * np.sin(columns * np.float32(1 + len(output) % 7) + np.float32(sum(output) % 11))


_JUDGES: dict[str, Judge] = {"no-repeat": _no_repeat, "waves": _waves}
