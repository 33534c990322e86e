"""What the user says of pods in a pod's own words, put into their template as it is written.

Each part is taken by its name, so nothing else of `spec.pod` can reach a pod. The API server judges what it
holds; typed objects would leave out what they do not know, and nobody would hear of a misspelt field.
"""

from typing import Any, Final

from guided_contract import names
from guided_operator.api import GuidedModel
from guided_operator.api.pod import SOURCES
from guided_operator.builders.labels import selector

Object = dict[str, Any]

OWN: Final = "own-"  # before the names of the user's volumes
_AS_WRITTEN: Final = ("nodeSelector", "tolerations", "affinity", "priorityClassName", "schedulerName")


def with_own_parts(gm: GuidedModel, template: Object) -> Object:
    """Return a pod template with the user's parts."""
    own = gm.spec.pod.model_dump(by_alias=True, exclude_defaults=True)
    parts: Object = {name: own[name] for name in _AS_WRITTEN if name in own}
    spread = [_of_this_model(gm, each) for each in gm.spec.pod.topology_spread_constraints]
    claims = [*gm.spec.engine.accelerator.claims, *gm.spec.pod.resource_claims]
    parts |= {"topologySpreadConstraints": spread} if spread else {}
    parts |= {"resourceClaims": claims} if claims else {}
    volumes = [*template["spec"]["volumes"], *map(_volume, gm.spec.pod.volumes)]
    return {**template, "spec": {**template["spec"], **parts, "volumes": volumes}}


def _of_this_model(gm: GuidedModel, spread: Object) -> Object:
    """Return a constraint with what it counts: this model's pods, and none of the revision that goes."""
    if "labelSelector" in spread:
        return spread
    ours = {"labelSelector": {"matchLabels": selector(gm)}, "matchLabelKeys": [names.LABEL_REVISION]}
    return {**ours, **spread}


def _volume(volume: Object) -> Object:
    sources: Object = {source: volume[source] for source in SOURCES if source in volume}
    return {"name": f"{OWN}{volume['name']}", **sources}
