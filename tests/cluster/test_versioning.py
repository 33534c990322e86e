"""docs/versioning.md on a real API server: v1beta1 with the same schema is a rename, and needs no webhook."""

import json
from copy import deepcopy
from typing import Any

import pytest
from devtools.crd import custom_resource_definition

from guided_contract import names
from support.cluster import Cluster, KubectlError
from support.manifests import minimal
from support.waiting import eventually

pytestmark = pytest.mark.cluster

# A group of its own, with the very schema: other tests go on with theirs.
GROUP = f"versioning.{names.API_GROUP}"
CRD = f"{names.PLURAL}.{GROUP}"


def definition(stored: str, *served: str) -> dict[str, Any]:
    """Return the CRD with these versions, each with the one schema that there is."""
    made = custom_resource_definition()
    made["metadata"]["name"] = CRD
    made["spec"]["group"] = GROUP
    made["spec"]["names"] |= {"shortNames": [], "categories": []}
    [only] = made["spec"]["versions"]
    made["spec"]["versions"] = [deepcopy(only) | {"name": name, "storage": name == stored} for name in served]
    return made


def test_a_rename_keeps_every_object_and_needs_no_webhook(api_server: Cluster) -> None:
    def read(version: str) -> dict[str, Any]:
        try:
            return api_server.get(f"{names.PLURAL}.{version}.{GROUP}", "tiny", "-n", namespace)
        except KubectlError:
            return {}

    def is_kept() -> bool:
        """Say whether nothing is lost, no generation either, so that no operator rolls out."""
        now = read("v1beta1")
        parts = ("uid", "generation")
        metadata = [[each["metadata"][part] for part in parts] for each in (before, now)]
        return now["spec"] == before["spec"] and metadata[0] == metadata[1]

    api_server.apply(definition("v1alpha1", "v1alpha1"))
    with api_server.namespace("versioning") as namespace:
        eventually(lambda: api_server.serves(CRD), what="the CRD is served")
        wanted = minimal() | {"apiVersion": f"{GROUP}/v1alpha1"}
        api_server.apply(wanted | {"metadata": {"name": "tiny", "namespace": namespace}})
        before = read("v1alpha1")

        # 1. Both are served; objects are the same under either name.
        api_server.apply(definition("v1beta1", "v1alpha1", "v1beta1"))
        eventually(lambda: read("v1beta1"), what="v1beta1 is served")
        assert is_kept()
        with pytest.raises(KubectlError, match="storedVersions"):
            api_server.apply(definition("v1beta1", "v1beta1"))

        # 2. Stored objects are rewritten, and the old version is taken out of what is stored.
        api_server.kubectl("replace", "-f", "-", stdin=json.dumps(read("v1beta1")))
        stored = json.dumps({"status": {"storedVersions": ["v1beta1"]}})
        api_server.kubectl("patch", f"crd/{CRD}", "--subresource=status", "--type=merge", "-p", stored)

        # 3. The old version goes.
        api_server.apply(definition("v1beta1", "v1beta1"))
        eventually(lambda: not read("v1alpha1"), what="v1alpha1 is gone")
        assert is_kept()
    api_server.kubectl("delete", f"crd/{CRD}")
