"""`guidedmodel status` as text, and that every reason and code has its action."""

import ast
import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guided_contract.errors import ErrorCode
from guided_contract.status import NotReadyReason
from guided_operator.cli import advice, status
from support import readme

ROOT = Path(__file__).parents[2]
OPERATOR = ROOT / "operator/guided_operator"
NOW = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)
REASON = re.compile(r"[A-Z][A-Za-z]+")
# What makes a condition's reason, and which of its arguments that is.
MAKERS = {"Finding": 1, "Fault": 0}
STATES = {"True", "False", "Unknown"}
CONTAINERS = {"Error", "OOMKilled"}  # what the kubelet says of a container, which is looked for


def reasons_in(module: Path) -> Iterator[str]:
    """Yield every reason that a module can give, but for what it passes on from elsewhere (`found.reason`).

    Where a function computes one, every word that looks like a reason counts, in it and in the tables that
    it looks at.
    """
    tree = ast.parse(module.read_text())
    tables = {
        target.id: node.value
        for node in tree.body
        for target in (node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)])
        if isinstance(target, ast.Name) and node.value is not None
    }

    def computed(function: ast.AST) -> Iterator[str]:
        seen = [each.id for each in ast.walk(function) if isinstance(each, ast.Name)]
        yield from words(*function.body, *(tables[name] for name in seen if name in tables))

    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    functions = {each.name: each for each in ast.walk(tree) if isinstance(each, kinds)}
    for function in functions.values():
        for call in ast.walk(function):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
                continue
            if call.func.id not in MAKERS:
                continue
            match call.args[MAKERS[call.func.id]]:
                case ast.Constant() as reason:
                    yield from words(reason)
                case ast.Attribute(attr="reason") | ast.Attribute(value=ast.Name(id="NotReadyReason")):
                    pass
                case ast.Call(func=ast.Name(id=name)):
                    yield from computed(functions[name])
                case _:
                    yield from computed(function)


def words(*nodes: ast.AST) -> Iterator[str]:
    for each in (part for node in nodes for part in ast.walk(node)):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and REASON.fullmatch(each.value):
            yield each.value


def test_every_reason_of_a_condition_has_its_action() -> None:
    found = {
        reason
        for folder in ("reconcile", "kube")
        for module in (OPERATOR / folder).rglob("*.py")
        for reason in reasons_in(module)
        if reason not in STATES | CONTAINERS
    }
    assert found >= {"PodsReady", "NameConflict", "CreateContainerError", "Unschedulable"}
    missing = sorted(found - advice.REASONS.keys())
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
        "  correct the ConfigMap or grammar in the message; running pods pick up the change"
    )


def test_the_readme_shows_what_is_printed() -> None:
    now = dt.datetime(2026, 11, 21, 15, 55, 37, tzinfo=dt.UTC)

    def since(age_s: int, name: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
        then = (now - dt.timedelta(seconds=age_s)).isoformat()
        return condition(name, status, reason, message) | {"lastTransitionTime": then}

    ready = "3 of 3 pods are ready"
    flow = model(
        url="http://flow.drain.svc:8000",
        revision="55b5ec407b",
        readyReplicas=3,
        conditions=[
            since(5, "Ready", "True", "PodsReady", ready),
            since(25, "Available", "True", "SomePodsReady", "at least one pod serves requests"),
            since(5, "Progressing", "False", "Complete", ready),
            since(130, "Compatible", "True", "Supported"),
            since(19, "GuidedDecoding", "True", "Active", "3 pods report guided decoding active"),
            since(130, "AuxiliaryResourcesReady", "True", "Applied", "PodDisruptionBudget"),
        ],
        replicas=3,
        resolved={"image": "localhost/vllm-cpu:0.32.0", "modelRunner": "V1"},
        ranks={"total": 3, "missing": 0, "desynced": 0},
    )
    flow |= {"metadata": {"name": "flow", "namespace": "drain", "generation": 2}, "spec": {"replicas": 3}}
    assert status.text(flow, now) == readme.shown("kubectl gm status flow -n drain")


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ([("Ready", "True", "PodsReady"), ("Compatible", "True", "Supported")], []),
        (
            [("Ready", "True", "PodsReady"), ("AuxiliaryResourcesReady", "False", "APIMissing")],
            [advice.REASONS["APIMissing"]],
        ),
        ([("Ready", "True", "PodsReady"), ("AuxiliaryResourcesReady", "True", "Applied")], []),
        # What is wrong with the spec first; what only says 'not yet' not at all.
        (
            [("Ready", "False", "PodsNotReady"), ("Compatible", "False", "Invalid")],
            [advice.REASONS["Invalid"]],
        ),
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


def test_a_status_of_another_release_is_shown_as_far_as_it_is_known() -> None:
    odd = model(conditions=[{"type": "Ready"}], pods={"worst": [{"more": 1}]}, grammars={"worst": [{}]})
    assert "not ready" in status.text(odd, NOW)
