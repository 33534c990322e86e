"""The one catalogue of errors: HTTP bodies, spans, metric labels and status use the same codes."""

import enum
from typing import Final, NamedTuple


class ErrorCode(enum.StrEnum):
    """A fault as callers see it; see CATALOGUE for what each means and costs."""

    GRAMMAR_INVALID = "grammar_invalid"
    GRAMMAR_TOO_LARGE = "grammar_too_large"
    GRAMMAR_UNSUPPORTED = "grammar_unsupported"
    GRAMMAR_DEAD_END = "grammar_dead_end"
    GRAMMAR_SLOW = "grammar_slow"
    GRAMMAR_COMPILE_TIMEOUT = "grammar_compile_timeout"
    GRAMMAR_COMPILE_CRASHED = "grammar_compile_crashed"
    GRAMMAR_COMPILE_MEMORY = "grammar_compile_memory"
    GRAMMAR_LOAD_FAILED = "grammar_load_failed"
    GRAMMAR_SERVICE_EXHAUSTED = "grammar_service_exhausted"
    GRAMMAR_SERVICE_UNAVAILABLE = "grammar_service_unavailable"
    GRAMMAR_RANKS_NOT_READY = "grammar_ranks_not_ready"
    GRAMMAR_TOKENIZERS_DIFFER = "grammar_tokenizers_differ"
    GRAMMAR_STORAGE_FULL = "grammar_storage_full"
    GRAMMAR_RANK_GONE = "grammar_rank_gone"
    GRAMMAR_RANK_LATE = "grammar_rank_late"
    GRAMMAR_RANK_RESTARTED = "grammar_rank_restarted"
    GRAMMAR_UNKNOWN = "grammar_unknown"
    REQUEST_RESERVED_ARGUMENT = "request_reserved_argument"
    REQUEST_NOT_ADMITTED = "request_not_admitted"
    SEQUENCE_DEAD_END = "sequence_dead_end"
    SEQUENCE_TOKEN_REJECTED = "sequence_token_rejected"  # noqa: S105 - a code, no secret
    SEQUENCE_MATCHER_FAILED = "sequence_matcher_failed"
    SEQUENCE_PROCESSOR_FAILED = "sequence_processor_failed"
    RANKS_DESYNCHRONIZED = "ranks_desynchronized"


class ErrorEntry(NamedTuple):
    """What a code means to a client."""

    http_status: int
    retryable: bool
    summary: str


CATALOGUE: Final[dict[ErrorCode, ErrorEntry]] = {
    ErrorCode.GRAMMAR_INVALID: ErrorEntry(400, False, "the schema, regex or grammar is not valid"),
    ErrorCode.GRAMMAR_TOO_LARGE: ErrorEntry(
        400, False, "the schema, regex or grammar exceeds a size or depth limit"
    ),
    ErrorCode.GRAMMAR_UNSUPPORTED: ErrorEntry(
        400, False, "a keyword cannot be enforced by the grammar backend"
    ),
    ErrorCode.GRAMMAR_DEAD_END: ErrorEntry(400, False, "the grammar reaches a state that no token can leave"),
    ErrorCode.GRAMMAR_SLOW: ErrorEntry(400, False, "a mask of the grammar takes too long to make"),
    ErrorCode.GRAMMAR_COMPILE_TIMEOUT: ErrorEntry(
        400, False, "the grammar did not compile before its deadline"
    ),
    ErrorCode.GRAMMAR_COMPILE_CRASHED: ErrorEntry(
        400, False, "compiling the grammar crashed two grammar workers"
    ),
    ErrorCode.GRAMMAR_COMPILE_MEMORY: ErrorEntry(
        400, False, "compiling the grammar exceeded the memory limit"
    ),
    ErrorCode.GRAMMAR_LOAD_FAILED: ErrorEntry(400, False, "a rank could not load the compiled grammar"),
    ErrorCode.GRAMMAR_SERVICE_EXHAUSTED: ErrorEntry(
        503, True, "the grammar workers' restart budget is spent"
    ),
    ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE: ErrorEntry(503, True, "the grammar service does not answer"),
    ErrorCode.GRAMMAR_RANKS_NOT_READY: ErrorEntry(
        503, True, "not every rank is connected to the grammar service"
    ),
    ErrorCode.GRAMMAR_TOKENIZERS_DIFFER: ErrorEntry(
        503, True, "a rank has another tokenizer than the grammar service"
    ),
    ErrorCode.GRAMMAR_RANK_GONE: ErrorEntry(
        503, True, "a rank has lost its connection to the grammar service"
    ),
    ErrorCode.GRAMMAR_RANK_LATE: ErrorEntry(503, True, "a rank has not loaded the grammar in time"),
    ErrorCode.GRAMMAR_RANK_RESTARTED: ErrorEntry(
        503, True, "a rank came back while it loaded the grammar, and has not loaded it in time"
    ),
    ErrorCode.GRAMMAR_UNKNOWN: ErrorEntry(400, False, "guided_grammar names no grammar of this model"),
    ErrorCode.GRAMMAR_STORAGE_FULL: ErrorEntry(503, True, "there is no room for another compiled grammar"),
    ErrorCode.REQUEST_RESERVED_ARGUMENT: ErrorEntry(
        400, False, "vllm_xargs carries a key with the reserved prefix"
    ),
    ErrorCode.REQUEST_NOT_ADMITTED: ErrorEntry(
        400, False, "a guided request reached the engine on a route without admission"
    ),
    ErrorCode.SEQUENCE_DEAD_END: ErrorEntry(422, False, "no token can follow what was generated"),
    ErrorCode.SEQUENCE_TOKEN_REJECTED: ErrorEntry(422, False, "the grammar rejected a sampled token"),
    ErrorCode.SEQUENCE_MATCHER_FAILED: ErrorEntry(422, False, "the grammar matcher raised while generating"),
    ErrorCode.SEQUENCE_PROCESSOR_FAILED: ErrorEntry(422, False, "a logits processor raised while generating"),
    ErrorCode.RANKS_DESYNCHRONIZED: ErrorEntry(503, True, "the ranks disagreed about what was generated"),
}


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
        self.entry = CATALOGUE[code]
        self.message = message or self.entry.summary
        self.path = path
        self.retry_after_s = retry_after_s
        super().__init__(f"{code}: {self.message}")

    def body(self) -> dict[str, dict[str, str | None]]:
        """Return the OpenAI-style JSON error body, with our string code and the path as ``param``."""
        kind = "invalid_request_error" if self.entry.http_status < 500 else "service_unavailable"
        error: dict[str, str | None] = {
            "message": self.message,
            "type": kind,
            "param": self.path,
            "code": self.code.value,
        }
        return {"error": error}
