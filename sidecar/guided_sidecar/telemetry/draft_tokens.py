"""How many draft tokens engine cores choose, as Prometheus' metrics."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from guided_contract.records import DraftTokens


class DraftTokensMetrics:
    """What engine cores tell of numTokens Auto.

    Attributes
    ----------
    chosen
        The number that was chosen last; None: none has been, or is any more.
    off
        Why none is chosen; empty if one is, or nobody has said.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.chosen: int | None = None
        self.off = ""
        labels = ("engine",)
        self._chosen = Gauge(
            "guidedmodel_draft_tokens",
            "Draft tokens a sequence that the engine core chose last, for the batch size at hand",
            labels,
            registry=registry,
        )
        self._changes = Counter(
            "guidedmodel_draft_tokens_changes",
            "Changes of the number of draft tokens, by another choice or another batch size",
            labels,
            registry=registry,
        )
        self._trials = Counter(
            "guidedmodel_draft_tokens_trials",
            "Times that another number of draft tokens was tried for a few steps",
            labels,
            registry=registry,
        )

    def take(self, record: DraftTokens) -> None:
        """Take in what an engine core tells."""
        engine = str(record.engine)
        self.chosen, self.off = record.chosen, record.why
        if record.chosen is None:
            self._chosen.clear()
        else:
            self._chosen.labels(engine).set(record.chosen)
        self._changes.labels(engine).inc(record.changes)
        self._trials.labels(engine).inc(record.trials)
