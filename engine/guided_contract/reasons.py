"""Why a pod is not ready: the reasons that a sidecar gives, and that operator and command line know."""

import enum


class NotReadyReason(enum.StrEnum):
    """As `reason` of a sidecar's status page, and then of the conditions Ready and GuidedDecoding."""

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
    def of(cls, text: str) -> "NotReadyReason":
        """Return the reason of that name, NOT_READY for any other text."""
        try:
            return cls(text)
        except ValueError:
            return cls.NOT_READY
