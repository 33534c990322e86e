"""Links between documents lead somewhere, and every reason of a pod that is not ready is explained."""

import re
from pathlib import Path

import pytest

from guided_contract.status import NotReadyReason

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *(page for folder in ("docs", "benchmarks") for page in ROOT.glob(f"{folder}/**/*.md")),
]


def links(page: Path) -> list[str]:
    """Return the relative targets of a page's links and pictures; in code, brackets are none."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)", re.sub(r"`[^`\n]*`", "code", text))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_reason_of_a_pod_that_is_not_ready_is_explained() -> None:
    page = (ROOT / "docs/telemetry.md").read_text()
    table = page.partition("| reason | means |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, flags=re.MULTILINE) == [one.value for one in NotReadyReason]
