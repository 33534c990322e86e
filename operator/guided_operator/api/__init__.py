"""The GuidedModel API, v1alpha1: what users write, what the operator reports, and the rules between."""

from guided_operator.api.manifest import ManifestError, parse
from guided_operator.api.rule import Problem
from guided_operator.api.spec import API_VERSION, GuidedModel, GuidedModelSpec

__all__ = [
    "API_VERSION",
    "GuidedModel",
    "GuidedModelSpec",
    "ManifestError",
    "Problem",
    "parse",
]
