"""The engine's tokenizer in each grammar library's form, made by vLLM's own backend if it has one."""

import threading
from typing import Any

from vllm.tokenizers import cached_tokenizer_from_config
from vllm.v1.structured_output import backend_guidance, backend_xgrammar

from guided_contract.wire import Backend
from guided_engine.compat import minor
from guided_grammar.registry import library
from guided_grammar.xgrammar import special


class EngineVocabulary:
    """Each form is built once, by whoever needs it first."""

    def __init__(self, vllm_config: Any) -> None:
        self._config = vllm_config
        self._lock = threading.Lock()
        self._forms: dict[Backend, Any] = {}

    def native(self, name: Backend) -> Any:
        """Return a library's own form of it; see guided_grammar.registry.Vocabulary."""
        with self._lock:
            if name not in self._forms:
                self._forms[name] = self._made(name)
            return self._forms[name]

    def _made(self, name: Backend) -> Any:
        model = self._config.model_config
        tokenizer, vocab_size = cached_tokenizer_from_config(model), model.get_vocab_size()
        told = {"tokenizer": tokenizer, "vocab_size": vocab_size}
        if name == "guidance":
            return backend_guidance.GuidanceBackend(self._config, **told).ll_tokenizer
        if name == "xgrammar":
            made = backend_xgrammar.XgrammarBackend(self._config, **told)
            is_split = minor.here().has_full_vocabulary_compiler
            compiler = made.full_vocab_compiler if is_split else made.compiler
            # Only a compiled grammar gives the TokenizerInfo away that the backend has made.
            return special.marked(compiler.compile_regex("a").tokenizer_info, tokenizer)
        return library(name).read(tokenizer, vocab_size)
