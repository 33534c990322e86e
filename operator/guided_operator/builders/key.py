"""The revision of a pod: the same key means the same pods, whatever release of the operator renders them."""

import hashlib
import json

from guided_operator.api import GuidedModel


def pod_key(gm: GuidedModel) -> str:
    """Return a hash of what the user set and pods are made from: all of the spec but `replicas` and grammars.

    Fields at their default do not count, so that neither writing a default out, nor the server filling it in,
    nor a later release's new field restarts a pod. A default never changes within an API version.
    """
    # Running pods follow their named grammars.
    guided = gm.spec.guided_decoding.model_copy(update={"grammars": []})
    spec = gm.spec.model_copy(update={"guided_decoding": guided})
    fields = spec.model_dump(by_alias=True, exclude_defaults=True, exclude={"replicas"}, mode="json")
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]
