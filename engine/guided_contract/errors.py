"""The one catalogue of errors: HTTP bodies, spans, metric labels and status use the same codes."""

import enum
from typing import Final, Self

import msgspec


class ErrorCode(enum.StrEnum):
    """A fault as callers see it: its code, HTTP status, and what it says where nobody says more."""

    http_status: int
    summary: str

    def __new__(cls, code: str, http_status: int = 0, summary: str = "") -> Self:
        """Make a member, whose value is `code` alone; by it alone one is found."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.http_status, member.summary = http_status, summary
        return member

    # fmt: off
    GRAMMAR_INVALID = "grammar_invalid", 400, "the schema, regex or grammar is not valid"
    GRAMMAR_TOO_LARGE = "grammar_too_large", 400, "the schema, regex or grammar exceeds a size or depth limit"
    GRAMMAR_UNSUPPORTED = "grammar_unsupported", 400, "the constraint uses a feature that the grammar backend does not enforce"
    GRAMMAR_DEAD_END = "grammar_dead_end", 400, "the grammar reaches a state in which no token is allowed"
    GRAMMAR_SLOW = "grammar_slow", 400, "computing a token mask of the grammar takes too long"
    GRAMMAR_COMPILE_TIMEOUT = "grammar_compile_timeout", 400, "the grammar did not compile within the time limit"
    GRAMMAR_COMPILE_CRASHED = "grammar_compile_crashed", 400, "the grammar library crashed twice while compiling the grammar"
    GRAMMAR_COMPILE_MEMORY = "grammar_compile_memory", 400, "the grammar needs more memory to compile than the limit allows"
    GRAMMAR_LOAD_FAILED = "grammar_load_failed", 400, "a rank failed to load the compiled grammar"
    GRAMMAR_SERVICE_EXHAUSTED = "grammar_service_exhausted", 503, "the grammar service is suspended after too many crashes of its workers; retry later"
    GRAMMAR_SERVICE_UNAVAILABLE = "grammar_service_unavailable", 503, "the grammar service does not answer"
    GRAMMAR_RANKS_NOT_READY = "grammar_ranks_not_ready", 503, "not all ranks are connected to the grammar service; retry later"
    GRAMMAR_TOKENIZERS_DIFFER = "grammar_tokenizers_differ", 503, "a rank uses a different tokenizer than the grammar service"
    GRAMMAR_STORAGE_FULL = "grammar_storage_full", 503, "there is no memory left for another compiled grammar; retry later"
    GRAMMAR_RANK_GONE = "grammar_rank_gone", 503, "a rank lost its connection to the grammar service; retry later"
    GRAMMAR_RANK_LATE = "grammar_rank_late", 503, "a rank did not load the grammar in time; retry later"
    GRAMMAR_UNKNOWN = "grammar_unknown", 400, "guided_grammar is not the name of a grammar of this model"
    REQUEST_RESERVED_ARGUMENT = "request_reserved_argument", 400, "vllm_xargs contains a key with the reserved prefix"
    REQUEST_INVALID = "request_invalid", 400, "the request is malformed or inconsistent"
    REQUEST_NOT_ADMITTED = "request_not_admitted", 400, "guided requests are not supported on this route"
    REQUEST_UNKNOWN_CONSTRAINT = "request_unknown_constraint", 400, "unknown constraint parameter"
    SEQUENCE_DEAD_END = "sequence_dead_end", 422, "generation stopped: the grammar allows no further token"
    SEQUENCE_TOKEN_REJECTED = "sequence_token_rejected", 422, "generation stopped: the grammar rejected a sampled token"
    SEQUENCE_MATCHER_FAILED = "sequence_matcher_failed", 422, "generation stopped: the grammar library failed"
    SEQUENCE_MATCHERS_LOST = "sequence_matchers_lost", 503, "generation stopped: the process that applies grammars ended too often; retry later"
    SEQUENCE_SLOW = "sequence_slow", 422, "generation stopped: computing a token mask took too long"
    SEQUENCE_PROCESSOR_FAILED = "sequence_processor_failed", 422, "generation stopped: a logits processor failed"
    SEQUENCE_PROCESSOR_NO_TOKEN = "sequence_processor_no_token", 422, "generation stopped: the logits processors left no token to continue with"
    RANKS_DESYNCHRONIZED = "ranks_desynchronized", 503, "generation stopped: the ranks disagreed about the token mask or the generated tokens"
    ENGINE_DEAD = "engine_dead", 503, "the engine has ended unexpectedly; retry later"
    # fmt: on

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.http_status == 503


class GuidedError(Exception):
    """A fault with a catalogue code; the root of every boundary's error tree.

    Parameters
    ----------
    code
        The catalogue entry.
    message
        One sentence for the person whose request it was. Never prompt or output text.
    path
        JSONPath of the keyword at fault in the schema, if known (``$.properties.a.type``).
    retry_after_s
        Seconds after which a retry may succeed, for retryable codes.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str = "",
        *,
        path: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        self.code = code
        self.message = message or code.summary
        self.path = path
        self.retry_after_s = retry_after_s
        super().__init__(f"{code}: {self.message}")

    def body(self) -> dict[str, dict[str, str | None]]:
        """Return the OpenAI-style JSON error body, with our string code and the path as ``param``."""
        kind = "invalid_request_error" if self.code.http_status < 500 else "service_unavailable"
        return {"error": {"message": self.message, "type": kind, "param": self.path, "code": self.code.value}}


# What msgspec raises for bytes that are not what is expected, whoever sent them: no value of the type, text that
# is not UTF-8, more nesting than it follows.
MALFORMED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
