"""Links between documents lead somewhere, and so do the names of files in documents and in code."""

import functools
import re
import subprocess
from pathlib import Path

import pytest

from guided_contract.status import NotReadyReason

ROOT = Path(__file__).parents[2]
DECISIONS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
RESULTS = sorted((ROOT / "benchmarks/results").glob("*.md"))


@functools.cache
def _tracked() -> tuple[Path, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    files = (ROOT / name for name in listed.stdout.split("\0") if name)
    return tuple(sorted(file for file in files if file.is_file()))


def _without_code(text: str) -> str:
    """Return Markdown without blocks and spans of code, in which brackets are no links."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "code", text)


def links(text: str) -> list[str]:
    """Return the targets of Markdown links and pictures."""
    found: list[str] = re.findall(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)", _without_code(text))
    return found


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    without_blocks = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", without_blocks, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in plain}


def broken_links(page: Path, text: str) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    broken = []
    for link in links(text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        is_known = not anchor or (target.is_file() and anchor in anchors(target.read_text()))
        if not (target.exists() and target.is_relative_to(ROOT) and is_known):
            broken.append(link)
    return broken


@pytest.mark.parametrize(
    "page",
    [file for file in _tracked() if file.suffix == ".md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_relative_links_lead_somewhere(page: Path) -> None:
    assert not broken_links(page, page.read_text())


def test_documents_that_code_names_exist() -> None:
    """A comment that sends its reader to a page which is gone is worse than none."""
    for file in _tracked():
        if file.suffix in {".py", ".toml", ".yaml", ".yml", ".tpl", ".go"} or file.name == "Makefile":
            for name in re.findall(r"\b((?:docs|benchmarks)/[\w/.-]+\.md)\b", file.read_text()):
                assert (ROOT / name).is_file(), f"{file.relative_to(ROOT)} names {name}"
            for number in re.findall(r"\bdecisions/(\d{4})\b", file.read_text()):
                assert any(page.name.startswith(number) for page in DECISIONS), f"{file} names {number}"


@pytest.mark.parametrize(
    "page",
    [file for file in _tracked() if file.suffix == ".md" and file not in RESULTS],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_files_that_documents_name_exist(page: Path) -> None:
    """Whole paths, or their ends: `api/engine.py`. Runs tell of their own day, and are left out."""
    ends = tuple(f"/{file.relative_to(ROOT)}" for file in _tracked())
    for name in re.findall(r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|md|ya?ml|json|toml))\b", page.read_text()):
        assert any(end.endswith(f"/{name}") for end in ends), f"{name} is gone"


def test_every_reason_of_a_pod_that_is_not_ready_is_explained() -> None:
    page = (ROOT / "docs/telemetry.md").read_text()
    table = page.partition("| reason | means | look at |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, flags=re.MULTILINE) == [one.value for one in NotReadyReason]
