"""What became of a case, and the counts of many."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from schemasuite.cases import Case, texts
from schemasuite.subjects import RefusedError, Subject

Verdict = Literal["enforced", "refused", "produced"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One subject's answer to one case.

    Attributes
    ----------
    refusal
        Why the schema is not taken; "" where it is.
    produced
        Invalid instances that may be generated.
    missing
        Valid instances that may not.
    """

    case: Case
    refusal: str = ""
    produced: list[Any] = field(default_factory=list)
    missing: list[Any] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """The case in one word; `produced`: though invalid."""
        if self.refusal:
            return "refused"
        return "produced" if self.produced else "enforced"


def judge(subject: Subject, case: Case) -> Outcome:
    """Ask a subject to take a case's schema, and which of its instances it may then generate."""
    try:
        accepts = subject.take(case.schema)
    except RefusedError as refusal:
        return Outcome(case, refusal=str(refusal))
    found = [(one, any(map(accepts, texts(one.value)))) for one in case.instances]
    return Outcome(
        case,
        produced=[one.value for one, is_accepted in found if is_accepted and not one.is_valid],
        missing=[one.value for one, is_accepted in found if one.is_valid and not is_accepted],
    )


@dataclass(slots=True)
class Counts:
    """Cases by verdict, and their invalid instances; `barren`: enforced, but nothing valid is possible."""

    cases: Counter[Verdict] = field(default_factory=Counter)
    invalid: Counter[Verdict] = field(default_factory=Counter)
    barren: int = 0

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> Self:
        """Count outcomes."""
        counts = cls()
        for outcome in outcomes:
            counts._add(outcome)
        return counts

    def _add(self, outcome: Outcome) -> None:
        valid = sum(one.is_valid for one in outcome.case.instances)
        invalid = len(outcome.case.instances) - valid
        self.cases[outcome.verdict] += 1
        self.barren += outcome.verdict == "enforced" and valid > 0 and len(outcome.missing) == valid
        if outcome.refusal:
            self.invalid["refused"] += invalid
        else:
            self.invalid["produced"] += len(outcome.produced)
            self.invalid["enforced"] += invalid - len(outcome.produced)
