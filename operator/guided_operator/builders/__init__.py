"""From a GuidedModel to what runs it: pure builders, the same for a cluster and a laptop."""

from guided_operator.builders.children import Children, manifest, render, url
from guided_operator.builders.configuration import config_file, pod_config
from guided_operator.builders.grammars import Sources
from guided_operator.builders.key import pod_key
from guided_operator.builders.labels import selector
from guided_operator.builders.site import PLUGIN_SOURCE, Site, cluster_site

__all__ = [
    "PLUGIN_SOURCE",
    "Children",
    "Site",
    "Sources",
    "cluster_site",
    "config_file",
    "manifest",
    "pod_config",
    "pod_key",
    "render",
    "selector",
    "url",
]
