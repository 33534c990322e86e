"""Which installed libraries are of another version than those whose enforcement was measured.

vLLM pins xgrammar to one version and llguidance to a range. Another version may take a keyword that it does
not enforce: it is given no JSON schema that has one, unless request or resource name the library.
"""

from collections.abc import Mapping
from typing import Final

from guided_contract.backends import BACKENDS, Backend

UNKNOWN: Final = "unknown"
MEASURED: Final = {one.name: one for one in BACKENDS.values() if one.measured}


def unmeasured(versions: Mapping[str, str]) -> dict[Backend, str]:
    """Return the installed versions that are not the measured ones; one that nobody can tell is none of them.

    `versions` is empty until the workers' template has looked.
    """
    installed = {name: versions.get(one.distribution, UNKNOWN) for name, one in MEASURED.items() if versions}
    return {name: version for name, version in installed.items() if version not in MEASURED[name].measured}


def reason(backend: Backend, version: str) -> str:
    """Return why a library was not used; `version` is the installed one."""
    name, measured = MEASURED[backend].distribution, " and ".join(MEASURED[backend].measured)
    return (
        f"{name} {version} is used for JSON schemas only if guided_backend or "
        f"guidedDecoding.backend names it: its JSON Schema support was tested for {name} {measured}"
    )
