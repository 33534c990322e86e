"""What kstatus, and so Flux and kpt, makes of an object of a kind that it does not know.

Its rules in their order (fluxcd/cli-utils, pkg/kstatus; Flux and Helm 4).
"""

from typing import Any


def kstatus(item: dict[str, Any]) -> str:
    """Return Terminating, InProgress, Failed or Current."""
    status = item.get("status", {})
    conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
    if "deletionTimestamp" in item["metadata"]:
        return "Terminating"
    if status.get("observedGeneration", item["metadata"]["generation"]) != item["metadata"]["generation"]:
        return "InProgress"
    if conditions.get("Reconciling") == "True":
        return "InProgress"
    if conditions.get("Stalled") == "True":
        return "Failed"
    return "Current" if conditions.get("Ready", "True") == "True" else "InProgress"
