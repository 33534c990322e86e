"""The CustomResourceDefinition around the schema that the operator's models make."""

from pathlib import Path
from typing import Final

import yaml

from guided_contract import names
from guided_operator.api.crd import Schema, root_schema

CRD_NAME: Final = f"{names.PLURAL}.{names.API_GROUP}"
CRD_FILE: Final = Path("manifests", "crd", f"{CRD_NAME}.yaml")

_COLUMNS: Final = (  # name, type, path, priority: 1 is shown by -o wide
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Desired", "integer", ".spec.replicas", 0),
    ("Up", "integer", ".status.readyReplicas", 0),
    ("Guided", "string", '.status.conditions[?(@.type=="GuidedDecoding")].status', 0),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 0),
    ("Model", "string", ".spec.model.uri", 1),
    ("Placement", "string", ".spec.guidedDecoding.placement", 1),
    ("TP", "integer", ".spec.parallelism.tensor", 1),
    ("Missing", "integer", ".status.ranks.missing", 1),
    ("URL", "string", ".status.url", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)


def custom_resource_definition() -> Schema:
    """Return the CRD as the API server takes it."""
    version = {
        "name": names.API_VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root_schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path} | ({"priority": priority} if priority else {})
            for name, kind, path, priority in _COLUMNS
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {
            "group": names.API_GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.KIND.lower(),
                "shortNames": ["gm"],
                "categories": ["ai"],
            },
            "versions": [version],
        },
    }


def crd_text() -> str:
    """Return the CRD's file."""
    text: str = yaml.safe_dump(custom_resource_definition(), sort_keys=False, width=120)
    return f"# Made by `python -m devtools.api_reference`; do not edit.\n{text}"
