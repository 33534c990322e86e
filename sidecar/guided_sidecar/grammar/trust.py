"""Which installed libraries are of another version than the one whose enforcement was measured.

vLLM pins xgrammar to one version and llguidance to a range. Another version may take a keyword that it does
not enforce: it is given no JSON schema that has one, unless request or resource name the library.
"""

from collections.abc import Mapping
from typing import Final

from guided_contract.backends import BACKENDS, Backend
from guided_grammar import measured

UNKNOWN: Final = "unknown"
# What a backend's library is installed, and measured, as.
NAMES: Final[dict[Backend, str]] = {
    one.name: one.distribution for one in BACKENDS.values() if one.distribution in measured.VERSIONS
}


def unmeasured(versions: Mapping[str, str]) -> dict[Backend, str]:
    """Return the installed versions that are not the measured ones; of {}, not read yet, none."""
    return {
        backend: versions.get(name, UNKNOWN)
        for backend, name in NAMES.items()
        if versions and versions.get(name) != measured.VERSIONS[name]
    }


def reason(backend: Backend, version: str) -> str:
    """Return why a library was not used; `version` is the installed one."""
    name = NAMES[backend]
    return (
        f"{name} {version} is used for JSON schemas only if guided_backend or "
        f"guidedDecoding.backend names it: its JSON Schema support was measured for {name} "
        f"{measured.VERSIONS[name]}"
    )
