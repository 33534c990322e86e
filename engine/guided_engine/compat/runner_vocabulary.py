"""The engine's tokenizer in the form of each grammar library, made by upstream's own backends."""

import contextlib
import logging
import threading
from typing import Any

from vllm.tokenizers import cached_tokenizer_from_config
from vllm.v1.structured_output.backend_guidance import GuidanceBackend
from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend

from guided_contract import fingerprint
from guided_contract.wire import Backend

_log = logging.getLogger("guided_engine")


class EngineVocabulary:
    """Each form is built once, by whoever needs it first."""

    def __init__(self, vllm_config: Any) -> None:
        self._config = vllm_config
        self._lock = threading.Lock()
        self._tokenizer_info: Any = None
        self._guidance_tokenizer: Any = None

    def prepare(self) -> None:
        """Build both forms before there are steps: later, the thread that loads grammars has to take turns.

        What a library makes of a tokenizer that it cannot take is said again to the first grammar.
        """
        for form in (self.tokenizer_info, self.guidance_tokenizer):
            try:
                form()
            except Exception as error:  # noqa: BLE001 - whatever a library raises; the other one may do
                _log.warning("guidedmodel: no %s from this tokenizer: %s", form.__name__, error)

    def tokenizer_info(self) -> Any:
        """Return xgrammar's TokenizerInfo."""
        if self._tokenizer_info is None:
            with self._lock:
                # Only a compiled grammar gives the TokenizerInfo away that the backend has made.
                compiler = self._backend(XgrammarBackend).compiler
                self._tokenizer_info = compiler.compile_regex("a").tokenizer_info
        return self._tokenizer_info

    def guidance_tokenizer(self) -> Any:
        """Return llguidance's LLTokenizer."""
        if self._guidance_tokenizer is None:
            with self._lock:
                self._guidance_tokenizer = self._backend(GuidanceBackend).ll_tokenizer
        return self._guidance_tokenizer

    def fingerprints(self) -> dict[Backend, str]:
        """Return those of the forms that the libraries can make of this tokenizer."""
        found: dict[Backend, str] = {}
        # What a library raises was said by `prepare`; its grammars are refused one by one.
        with contextlib.suppress(Exception):
            found["xgrammar"] = fingerprint.of_xgrammar(self.tokenizer_info())
        with contextlib.suppress(Exception):
            found["guidance"] = fingerprint.of_llguidance(self.guidance_tokenizer())
        return found

    def _backend(self, kind: Any) -> Any:
        model = self._config.model_config
        tokenizer = cached_tokenizer_from_config(model)
        return kind(self._config, tokenizer=tokenizer, vocab_size=model.get_vocab_size())
