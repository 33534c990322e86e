"""`guidedmodel status` as text, and that every reason and code has its action."""

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pytest

from guided_contract.errors import ErrorCode
from guided_contract.status import NotReadyReason
from guided_operator.cli import advice, status

ROOT = Path(__file__).parents[2]
OPERATOR = ROOT / "operator/guided_operator"
NOW = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)
# What is written in the code that makes conditions as a reason is, and is none: parts of conditions, states,
# what the cluster says, and names in the code.
NO_REASONS = {
    *("Ready", "Available", "Compatible", "GuidedDecoding", "AuxiliaryResourcesReady"),
    *("True", "False", "Unknown", "Failed", "Stale", "Missing", "Loaded", "Async", "Off", "Scheduler"),
    *("ErrImagePull", "ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName", "CrashLoopBackOff"),
    *("Error", "OOMKilled", "ReplicaFailure", "Deployment"),
    *("Check", "Bug"),
}


def test_every_reason_of_a_condition_has_its_action() -> None:
    texts = [module.read_text() for module in (OPERATOR / "reconcile").rglob("*.py")]
    found = {word for text in texts for word in re.findall(r'"([A-Z][A-Za-z]+)"', text)}
    assert found >= {"PodsReady", "NameConflict", "CreateContainerError", "Unschedulable"}
    missing = sorted(found - advice.REASONS.keys() - NO_REASONS)
    assert not missing, f"say what to do about {missing} in operator/guided_operator/cli/advice.py"


def test_every_reason_of_a_sidecar_has_its_action() -> None:
    assert set(NotReadyReason) <= advice.REASONS.keys()


def test_every_code_of_a_failure_has_its_action() -> None:
    _, _, table = (ROOT / "docs/runbook.md").read_text().partition("| code | what to do |\n")
    codes = set(re.findall(r"^\| `(\w+)` \| \S", table, re.MULTILINE))
    assert set(ErrorCode) <= codes
    sidecar = (ROOT / "sidecar").rglob("*.py")
    told = {code for file in sidecar for code in re.findall(r'Failure\(code="(\w+)"', file.read_text())}
    assert told
    assert told <= codes


def model(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "tiny", "namespace": "models", "generation": 2},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 2, **status},
    }


def condition(name: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    since = "2026-11-21T11:57:30Z"
    return {
        "type": name,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
        "observedGeneration": 2,
    }


def test_conditions_are_a_table_and_the_rest_stands_as_it_is() -> None:
    shown = model(
        url="http://tiny.models.svc:8000",
        conditions=[
            condition("Ready", "True", "PodsReady", "1 of 1 pods are ready"),
            condition("GuidedDecoding", "False", "GrammarsPending", "card: there is no\nConfigMap \x1b[2J"),
        ],
        grammars={"ready": 3, "failed": ["card", "code"]},
    )
    assert status.text(shown, NOW) == (
        "GuidedModel models/tiny: ready\n"
        "  Ready           True   PodsReady        2m  1 of 1 pods are ready\n"
        "  GuidedDecoding  False  GrammarsPending  2m  card: there is no ConfigMap [2J\n"
        "status:\n"
        "  observedGeneration: 2\n"
        "  url: http://tiny.models.svc:8000\n"
        "  grammars:\n"
        "    ready: 3\n"
        "    failed:\n"
        "    - card\n"
        "    - code\n"
        "next:\n"
        "  wait while grammars compile; otherwise correct the ConfigMap or grammar in the message: running "
        "pods load the change"
    )


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        (
            [("Ready", "True", "PodsReady"), ("AuxiliaryResourcesReady", "False", "APIMissing")],
            [advice.REASONS["APIMissing"]],
        ),
        ([("Ready", "True", "PodsReady"), ("AuxiliaryResourcesReady", "True", "Applied")], []),
        # What is wrong with the spec first; what only says 'not yet' not at all.
        (
            [("Ready", "False", "Incompatible"), ("Compatible", "False", "Invalid")],
            [advice.REASONS["Invalid"]],
        ),
        (
            [("Ready", "False", "Creating"), ("Progressing", "True", "RollingOut")],
            ["wait: kubectl wait --for=condition=Ready gm/tiny -n models --timeout=20m"],
        ),
        # Of a release to come.
        (
            [("Ready", "False", "SomethingNew"), ("Other", "True", "AlsoNew")],
            [advice._UNKNOWN.format(reason="SomethingNew")],
        ),
    ],
)
def test_what_to_do_next(given: list[tuple[str, str, str]], steps: list[str]) -> None:
    assert advice.steps(model(conditions=[condition(*each) for each in given])) == steps


def test_what_nobody_has_looked_at_is_told_so() -> None:
    untouched = model()
    del untouched["status"]
    assert status.text(untouched, NOW).startswith("GuidedModel models/tiny: not ready\nnext:\n  no operator")
    behind = model(conditions=[condition("Ready", "True", "PodsReady")])
    assert status.is_ready(behind)
    behind["metadata"]["generation"] = 3
    assert not status.is_ready(behind)
    behind["metadata"]["generation"] = 2
    behind["status"]["observedGeneration"] = 1
    assert advice.steps(behind) == [advice._BEHIND]
