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
    GRAMMAR_UNKNOWN = "grammar_unknown"
    REQUEST_RESERVED_ARGUMENT = "request_reserved_argument"
    REQUEST_INVALID = "request_invalid"
    REQUEST_NOT_ADMITTED = "request_not_admitted"
    REQUEST_UNKNOWN_CONSTRAINT = "request_unknown_constraint"
    SEQUENCE_DEAD_END = "sequence_dead_end"
    SEQUENCE_TOKEN_REJECTED = "sequence_token_rejected"  # noqa: S105 - a code, no secret
    SEQUENCE_MATCHER_FAILED = "sequence_matcher_failed"
    SEQUENCE_SLOW = "sequence_slow"
    SEQUENCE_PROCESSOR_FAILED = "sequence_processor_failed"
    SEQUENCE_PROCESSOR_NO_TOKEN = "sequence_processor_no_token"  # noqa: S105 - a code
    SEQUENCE_PROCESSOR_SLOW = "sequence_processor_slow"
    RANKS_DESYNCHRONIZED = "ranks_desynchronized"
    ENGINE_DEAD = "engine_dead"


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
        400, False, "the schema uses a keyword that the grammar backend does not enforce"
    ),
    ErrorCode.GRAMMAR_DEAD_END: ErrorEntry(
        400, False, "the grammar reaches a state in which no token is allowed"
    ),
    ErrorCode.GRAMMAR_SLOW: ErrorEntry(400, False, "the grammar takes too long to compute a token mask"),
    ErrorCode.GRAMMAR_COMPILE_TIMEOUT: ErrorEntry(
        400, False, "the grammar did not compile within the time limit"
    ),
    ErrorCode.GRAMMAR_COMPILE_CRASHED: ErrorEntry(
        400, False, "the grammar library crashed twice while compiling the grammar"
    ),
    ErrorCode.GRAMMAR_COMPILE_MEMORY: ErrorEntry(
        400, False, "the grammar needs more memory to compile than the limit allows"
    ),
    ErrorCode.GRAMMAR_LOAD_FAILED: ErrorEntry(400, False, "a rank failed to load the compiled grammar"),
    ErrorCode.GRAMMAR_SERVICE_EXHAUSTED: ErrorEntry(
        503, True, "the grammar service is suspended after too many crashes of its workers; retry later"
    ),
    ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE: ErrorEntry(503, True, "the grammar service does not answer"),
    ErrorCode.GRAMMAR_RANKS_NOT_READY: ErrorEntry(
        503, True, "not all ranks are connected to the grammar service; retry later"
    ),
    ErrorCode.GRAMMAR_TOKENIZERS_DIFFER: ErrorEntry(
        503, True, "a rank uses a different tokenizer than the grammar service"
    ),
    ErrorCode.GRAMMAR_RANK_GONE: ErrorEntry(
        503, True, "a rank lost its connection to the grammar service; retry later"
    ),
    ErrorCode.GRAMMAR_RANK_LATE: ErrorEntry(
        503, True, "a rank did not load the grammar in time; retry later"
    ),
    ErrorCode.GRAMMAR_UNKNOWN: ErrorEntry(
        400, False, "guided_grammar is not the name of a grammar of this model"
    ),
    ErrorCode.GRAMMAR_STORAGE_FULL: ErrorEntry(
        503, True, "there is no memory left for another compiled grammar; retry later"
    ),
    ErrorCode.REQUEST_RESERVED_ARGUMENT: ErrorEntry(
        400, False, "vllm_xargs contains a key with the reserved prefix"
    ),
    ErrorCode.REQUEST_INVALID: ErrorEntry(400, False, "the request cannot be read, or contradicts itself"),
    ErrorCode.REQUEST_NOT_ADMITTED: ErrorEntry(400, False, "guided requests are not supported on this route"),
    ErrorCode.REQUEST_UNKNOWN_CONSTRAINT: ErrorEntry(400, False, "unknown constraint parameter"),
    ErrorCode.SEQUENCE_DEAD_END: ErrorEntry(
        422, False, "generation stopped: the grammar allows no further token"
    ),
    ErrorCode.SEQUENCE_TOKEN_REJECTED: ErrorEntry(
        422, False, "generation stopped: the grammar rejected a sampled token"
    ),
    ErrorCode.SEQUENCE_MATCHER_FAILED: ErrorEntry(
        422, False, "generation stopped: the grammar library failed"
    ),
    ErrorCode.SEQUENCE_SLOW: ErrorEntry(
        422, False, "generation stopped: the grammar took too long to compute"
    ),
    ErrorCode.SEQUENCE_PROCESSOR_FAILED: ErrorEntry(
        422, False, "generation stopped: a logits processor failed"
    ),
    ErrorCode.SEQUENCE_PROCESSOR_NO_TOKEN: ErrorEntry(
        422, False, "generation stopped: the logits processors left no token to continue with"
    ),
    ErrorCode.SEQUENCE_PROCESSOR_SLOW: ErrorEntry(
        422, False, "generation stopped: a logits processor took too long to compute"
    ),
    ErrorCode.RANKS_DESYNCHRONIZED: ErrorEntry(
        503, True, "generation stopped: the ranks disagreed about the token mask or the generated tokens"
    ),
    ErrorCode.ENGINE_DEAD: ErrorEntry(503, True, "the engine has ended unexpectedly; retry later"),
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
