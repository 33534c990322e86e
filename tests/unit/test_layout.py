"""Guards of the layout: a wrong file here breaks Python itself, or hides what a module is for."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "operator/guided_operator",
    "engine/guided_engine",
    "engine/guided_contract",
    "engine/guided_grammar",
    "sidecar/guided_sidecar",
)
# Modules of over 300 lines, and why they are not split. The product has none.
LONG = {
    "tests/cluster/test_crd.py": "two tables of manifests, accepted and refused, one entry for each rule",
    "tests/cluster/test_rights.py": "tables of what the operator's policy refuses",
    "tests/cluster/test_operator.py": "one operator on one API server, through a resource's life",
    "tests/contract/test_counted_masks.py": "counted bounds of each library, by one walk",
    "tests/unit/test_engine_middleware.py": "every way in which a response can begin and end",
    "tests/unit/test_sidecar_normal_form.py": "tables of schemas and their normal form",
    "tests/contract/test_grammar_proof.py": "the proof, with one compiler and vocabulary",
    "tests/contract/test_counted_tags.py": "drawn tags of each model, by one walk",
    "tests/contract/test_tools_as_response_format.py": "each parser's calls by each judge, with one server",
    "tests/contract/test_admission.py": "one API server with a real engine, started once",
    "tests/contract/test_operator_arguments.py": "what the operator writes and takes, by vLLM's own parser",
    "tests/contract/test_core_detached.py": "one vLLM scheduler, through every end of a sequence",
    "tests/contract/test_grammar_service.py": "one sidecar, through everything that can happen to a compile",
    "tests/contract/test_launcher.py": "one launcher, through each start, stall and end of an engine",
    "tests/contract/test_rank_guide.py": "one rank without an engine, through a request's life",
    "tests/contract/test_refusals.py": "every way into vLLM past admission",
    "tests/contract/test_rank_reasoning.py": "one rank, through each end of its reasoning",
    "tests/contract/test_rank_runner.py": "the wrapper around a runner, with each fault and kind of step",
    "tests/contract/test_telemetry_collectors.py": "the same promises against an HTTP and a gRPC collector",
    "tests/e2e/test_chaos.py": "one running pod, every kind of fault, and what each may cost",
    "tests/engine/test_matrix.py": "the engines of the matrix, started once",
    "tests/support/sidecar.py": "a real sidecar, its processes, and a client of each role",
    "tests/unit/test_sidecar_health_probe.py": "the guided probe against an engine that answers in every way",
    "tests/cluster/test_rollout.py": "rollouts on a real API server",
    "tests/contract/test_metrics.py": "one sidecar's pages, by each reader of metrics",
    "tests/contract/test_alerts.py": "every alert's outage, and what must raise none",
    "tests/unit/test_operator_builders.py": "one pod template, field by field",
    "tests/support/compositions/schemas.py": "one way to draw, of each keyword",
}


@pytest.mark.parametrize("folder", ["operator", "engine", "sidecar", "tests", "tests/unit", "tools", "."])
def test_folder_is_no_package(folder: str) -> None:
    """operator/__init__.py would shadow the standard library's operator and kill Python from the root."""
    assert not (ROOT / folder / "__init__.py").exists()


def test_python_starts_from_the_root() -> None:
    subprocess.run(
        [sys.executable, "-c", "import operator; operator.itemgetter"], cwd=ROOT, check=True, timeout=60
    )


def _modules() -> list[Path]:
    return sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))


def test_long_modules_have_a_reason() -> None:
    folders = (*PACKAGES, "tests", "tools")
    for module in sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py")):
        if len(module.read_text().splitlines()) > 300:
            name = str(module.relative_to(ROOT))
            assert name in LONG, f"{name} has over 300 lines and no reason"


def test_every_package_folder_says_what_it_owns() -> None:
    """docs/architecture.md names every folder of the product."""
    listed = (ROOT / "docs/architecture.md").read_text()
    for folder in sorted({module.parent for module in _modules()}):
        assert f"`{folder.relative_to(ROOT)}/`" in listed, f"{folder} is not described"


def test_nothing_of_a_machine_or_registry_is_committed() -> None:
    """Lock files carry hashes, never addresses."""
    found = subprocess.run(
        [
            "git",
            "grep",
            "-nIE",
            r"pythonhosted|https?://[a-z.]*pypi|proxy\.golang|/work/(main|shared)|/tmp/w/",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    ).stdout.splitlines()
    assert not [line for line in found if not line.startswith("tests/unit/test_layout.py:")]


def test_ignores_carry_their_reason() -> None:
    """A bare `noqa` or `type: ignore` hides faults that nobody chose to hide."""
    for module in _modules():
        for number, line in enumerate(module.read_text().splitlines(), 1):
            if re.search(r"#\s*(noqa|type: ignore)\b", line):
                assert re.search(r"(noqa: [A-Z0-9, ]+|type: ignore\[[a-z-, ]+\]) .*[-#] ?\w", line), (
                    f"{module}:{number}"
                )
