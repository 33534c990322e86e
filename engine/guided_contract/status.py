"""What the sidecar's /status serves, and the operator reads as untrusted input."""

import enum
import re
from typing import Annotated, Final, Literal

import msgspec

from guided_contract.errors import MALFORMED
from guided_contract.wire import Patch

Count = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]  # whose sums are no endless numbers

# In a text of JSON: an escaped backslash, which stays; control characters but for the line feed; and what
# turns the direction of a terminal's text.
_CONTROLS: Final = re.compile(
    r"(\\\\)|\\u00[01][0-9a-f]|\\[bfrt]|[\x7f-\x9f\u202a-\u202e\u2066-\u2069]", re.IGNORECASE
)


class NotReadyReason(enum.StrEnum):
    """Why a pod is not ready: `reason` of the page, and then of the conditions Ready and GuidedDecoding."""

    DRAINING = "Draining"
    PLUGIN_INACTIVE = "PluginInactive"
    TOKENIZERS_DIFFER = "TokenizersDiffer"
    RANKS_MISSING = "RanksMissing"
    ENGINE_STALLED = "EngineStalled"
    GRAMMARS_PENDING = "GrammarsPending"
    PROBE_PENDING = "ProbePending"
    PROBE_FAILED = "ProbeFailed"
    SERVICE_EXHAUSTED = "ServiceExhausted"  # of GuidedDecoding alone: the pod serves all but new grammars
    # What the operator says where a page names none of these: it is untrusted, or of a newer release.
    NOT_READY = "NotReady"

    @classmethod
    def _missing_(cls, value: object) -> "NotReadyReason":  # noqa: ARG003 - enum's
        return cls.NOT_READY


class Struct(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the status' parts."""


class RankStatus(Struct, frozen=True, kw_only=True):
    """One rank, as the sidecar sees it.

    `desyncs` are digests in which it differed from the other ranks, `restarts` processes of its matchers that
    ended, since the grammar service started.
    """

    rank: Count
    state: Literal["Connected", "Missing"]
    desyncs: Count = 0
    restarts: Count = 0


class GrammarStatus(Struct, frozen=True, kw_only=True):
    """A named grammar; `reason` says why it is not Ready.

    Stale: an older text is in service than the one asked for. Failed: refused, and there is no older one.
    """

    name: str
    state: Literal["Pending", "Ready", "Stale", "Failed"]
    reason: str = ""


class WorkersStatus(Struct, frozen=True, kw_only=True):
    """The grammar workers: how many are ready, and restarts since the grammar service started."""

    ready: Count
    restarts: Count


class Failure(Struct, frozen=True, kw_only=True):
    """The last failure of a grammar worker or a probe. `time` is RFC 3339."""

    code: str
    message: str
    time: str


class ProcessorStatus(Struct, frozen=True, kw_only=True):
    """A logits processor: whether each rank has its factory, and how many sequences have ended for it."""

    name: str
    state: Literal["Pending", "Loaded"]
    failures: Count = 0


class DraftsStatus(Struct, frozen=True, kw_only=True):
    """With numTokens Auto, how many draft tokens a sequence gets.

    `chosen` is the number that the engine core chose last; None: not known, or it is fixed. `off` is why it
    chooses no more, or never did; empty if it does.
    """

    chosen: Count | None = None
    off: str = ""


class SpeculationStatus(Struct, frozen=True, kw_only=True):
    """How the engine speculates: vLLM's name of its method, "" for none or where no rank has said so.

    `num_tokens` is the least and the most draft tokens of a sequence that the engines' last steps asked for;
    None before the first step.
    """

    method: str = ""
    num_tokens: tuple[Count, Count] | None = None


class LibraryStatus(Struct, frozen=True, kw_only=True):
    """A grammar library whose version is not the one of which it was measured what it enforces."""

    name: str
    version: str
    measured: str


class PodStatus(Struct, frozen=True, kw_only=True):
    """The whole page."""

    ready: bool
    reason: str = ""  # a NotReadyReason, or one of a newer release; empty when ready
    message: str = ""
    versions: dict[str, str] = {}
    unmeasured: list[LibraryStatus] = []  # those that Auto gives JSON schemas to no more
    unsupported: str = ""
    patches: list[Patch] = []
    ranks: list[RankStatus] = []
    # What there is to know of ranks that disagreed lately, or whose disagreement still has consequences
    desync: str = ""
    exhausted: str = ""  # why grammars that the pod has not compiled before are refused for a while
    grammars: list[GrammarStatus] = []
    logits_processors: list[ProcessorStatus] = []
    grammar_workers: WorkersStatus = WorkersStatus(ready=0, restarts=0)
    last_failure: Failure | None = None
    drafts: DraftsStatus = DraftsStatus()
    scheduling: Literal["", "Async", "Sync"] = ""  # how the engine schedules; "" until a rank has said so
    speculation: SpeculationStatus = SpeculationStatus()


def encode(status: PodStatus) -> bytes:
    """Return the page as JSON."""
    return msgspec.json.encode(status)


def decode(data: bytes) -> PodStatus:
    """Parse a page, without its control characters.

    Raises
    ------
    ValueError
        Not JSON, or a field has the wrong type, or a number that no counter has.
    """
    try:
        page = msgspec.json.decode(data, type=PodStatus)
        return decode_own(_CONTROLS.sub(r"\1", encode(page).decode()).encode())
    except MALFORMED as error:
        raise ValueError(str(error)) from error


def decode_own(data: bytes) -> PodStatus:
    """Parse a page as `encode` wrote it, of one that `decode` returned."""
    return msgspec.json.decode(data, type=PodStatus)
