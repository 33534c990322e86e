"""Libraries of other versions than those that were measured: said, and not relied upon."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from guided_contract import backends, status
from guided_contract.config import CompileConfig, GuidedDecodingConfig
from guided_contract.status import LibraryStatus
from guided_contract.wire import Prepared
from support.engine import pod_config
from support.sidecar import Api, Rank, Sidecar, until

EMAIL = json.dumps({"type": "string", "format": "email"})  # cheaper by llguidance, enforced by both
IPV4 = json.dumps({"type": "string", "format": "ipv4"})  # by llguidance alone
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


async def test_a_library_of_another_version_is_not_relied_upon_and_said(tmp_path: Path) -> None:
    with sidecar_with(tmp_path, {"llguidance": "1.7.99"}) as sidecar:
        async with Rank.connected(sidecar.pod), Api.connected(sidecar.pod) as api:
            email, ipv4 = [await api.prepare("json", spec) for spec in (EMAIL, IPV4)]
        await until(lambda: bool(page(sidecar).unmeasured))
        told = page(sidecar).unmeasured

    assert isinstance(email, Prepared)
    assert email.backend == "xgrammar"
    assert ipv4.code == "grammar_unsupported"
    assert told == [LibraryStatus(name="llguidance", version="1.7.99", measured=MEASURED)]


def page(sidecar: Sidecar) -> status.PodStatus:
    url = f"http://127.0.0.1:{sidecar.pod.ports.sidecar}/status"
    return status.decode(httpx.get(url).content)
