"""Libraries of other versions than those that were measured: said, and not relied upon."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from guided_contract import backends, status
from guided_contract.config import CompileConfig, GuidedDecodingConfig
from guided_contract.status import LibraryStatus
from guided_contract.wire import Backend, Kind, Prepared
from support.engine import pod_config
from support.sidecar import Api, Rank, Sidecar, until

EMAIL = json.dumps({"type": "string", "format": "email"})  # cheaper by llguidance, enforced by both
IPV4 = json.dumps({"type": "string", "format": "ipv4"})  # by llguidance alone
ANYTHING = "{}"
LETTERS = "[a-z]+"
PATIENT = GuidedDecodingConfig(compile=CompileConfig(timeout_s=60))  # the template starts meanwhile
MEASURED = backends.entry("guidance").measured


@contextmanager
def sidecar_with(folder: Path, versions: dict[str, str]) -> Iterator[Sidecar]:
    """Run a sidecar that sees these versions; the libraries themselves are as ever."""
    for name, version in versions.items():
        about = folder / "versions" / f"{name}-{version}.dist-info" / "METADATA"
        about.parent.mkdir(parents=True)
        about.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    sidecar = Sidecar.start(
        pod_config(folder, guided_decoding=PATIENT), {"PYTHONPATH": str(folder / "versions")}
    )
    try:
        yield sidecar
    finally:
        sidecar.stop()


async def answers(
    sidecar: Sidecar, asked: Sequence[tuple[Kind, str, Backend | None]]
) -> list[tuple[str, str]]:
    """Return the backend, or else the error's code and text, of each grammar."""
    async with Rank.connected(sidecar.pod), Api.connected(sidecar.pod) as api:
        found = [await api.prepare(kind, spec, backend=backend) for kind, spec, backend in asked]
    return [(one.backend, "") if isinstance(one, Prepared) else (one.code, one.message) for one in found]


def metrics(sidecar: Sidecar) -> dict[str, str]:
    text = httpx.get(f"http://127.0.0.1:{sidecar.pod.ports.sidecar}/metrics").text
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if "library_unmeasured{" in line)


async def test_auto_takes_the_library_whose_version_was_measured(tmp_path: Path) -> None:
    with sidecar_with(tmp_path, {"llguidance": "1.7.99"}) as sidecar:
        email, ipv4, named, anything, letters = await answers(
            sidecar,
            [
                ("json", EMAIL, None),
                ("json", IPV4, None),
                ("json", IPV4, "guidance"),
                ("json", ANYTHING, None),
                ("regex", LETTERS, None),
            ],
        )
        await until(lambda: bool(page(sidecar).unmeasured))
        told, figures = page(sidecar).unmeasured, metrics(sidecar)

    assert email == ("xgrammar", "")
    assert named == ("guidance", "")
    assert anything == ("guidance", "")  # no table says what an empty schema is
    assert letters == ("guidance", "")  # no table says what a regex is
    code, words = ipv4
    assert code == "grammar_unsupported"
    assert words.startswith("$.format: xgrammar does not enforce the format; llguidance 1.7.99 is used")
    assert words.endswith(f"measured for llguidance {MEASURED}")
    assert told == [LibraryStatus(name="llguidance", version="1.7.99", measured=MEASURED)]
    assert figures == {
        'guidedmodel_grammar_library_unmeasured{library="llguidance"}': "1.0",
        'guidedmodel_grammar_library_unmeasured{library="xgrammar"}': "0.0",
    }


async def test_without_a_measured_library_no_schema_is_served_unasked(tmp_path: Path) -> None:
    with sidecar_with(tmp_path, {"llguidance": "1.7.99", "xgrammar": "0.2.99"}) as sidecar:
        email, named, anything, choice = await answers(
            sidecar,
            [
                ("json", EMAIL, None),
                ("json", EMAIL, "xgrammar"),
                ("json", ANYTHING, None),
                ("choice", '["a"]', None),
            ],
        )

    assert email[0] == "grammar_unsupported"
    assert email[1].startswith("xgrammar 0.2.99 is used for JSON schemas only if guided_backend")
    assert "; llguidance 1.7.99 is used for" in email[1]
    assert [named[0], anything[0], choice[0]] == ["xgrammar", "guidance", "guidance"]


async def test_the_installed_libraries_are_the_measured_ones(tmp_path: Path) -> None:
    with sidecar_with(tmp_path, {}) as sidecar:
        email, ipv4 = await answers(sidecar, [("json", EMAIL, None), ("json", IPV4, None)])
        figures: dict[str, Any] = metrics(sidecar)
        assert page(sidecar).unmeasured == []

    assert email == ipv4 == ("guidance", "")
    assert set(figures.values()) == {"0.0"}


def page(sidecar: Sidecar) -> status.PodStatus:
    url = f"http://127.0.0.1:{sidecar.pod.ports.sidecar}/status"
    return status.decode(httpx.get(url).content)
