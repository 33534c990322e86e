"""Fresh matchers for what the engine matrix asks, to judge what its engines gave."""

from typing import Any

import numpy as np
import numpy.typing as npt
from devtools import tinymodel

from guided_contract.config import PodConfig
from guided_contract.wire import Backend
from support import matrix_requests


class Grammars:
    """Fresh matchers for the corpus, made outside any engine."""

    def __init__(self) -> None:
        from transformers import AutoTokenizer

        from guided_grammar.registry import Backends
        from guided_sidecar.grammar.compile import vocabulary
        from support.reasoning_parser import CommaReasoningParser

        model = str(tinymodel.models() / "tiny")
        pod = PodConfig(name="t", model=model, tokenizer=model, served_name="t", run_dir="/nowhere")
        self._compilers = Backends(vocabulary.load(pod))
        self._compiled: dict[tuple[str, str], Any] = {}
        self._tokenizer = AutoTokenizer.from_pretrained(model)
        self._parser = CommaReasoningParser(self._tokenizer)

    def content(self, request: matrix_requests.Request, tokens: list[int]) -> list[int]:
        """Return what the grammar constrains: all of it, or what comes after the reasoning."""
        prompt = self._tokenizer.encode(request.prompt)
        return tokens if self._parser.is_reasoning_end(prompt) else self._parser.extract_content_ids(tokens)

    def accept(self, backend: Backend, request: matrix_requests.Request, tokens: list[int]) -> int:
        """Return how many tokens a new matcher accepts."""
        matcher = self._matcher(backend, request)
        accepted = 0
        for token in tokens:
            if matcher.is_terminated() or not matcher.accept((token,)):
                break
            accepted += 1
        return accepted

    def allowed(
        self, backend: Backend, request: matrix_requests.Request, tokens: list[int]
    ) -> npt.NDArray[np.bool_]:
        """Return what a new matcher allows in the place of each token, [tokens, vocabulary]."""
        matcher = self._matcher(backend, request, [tinymodel.EOS])
        masks = np.full((len(tokens), tinymodel.VOCAB // 32), -1, np.int32)
        for row, token in enumerate(tokens):
            matcher.fill(masks, row)
            matcher.accept([token])
        return np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little").astype(np.bool_)

    def _matcher(self, backend: Backend, request: matrix_requests.Request, *ends: list[int]) -> Any:
        key = (backend, request.key)
        if key not in self._compiled:
            compiler = self._compilers[backend]
            self._compiled[key] = compiler.compile(request.kind, request.spec)  # type: ignore[arg-type]
        return self._compiled[key].matcher(*ends)
