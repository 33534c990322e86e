"""From a GuidedModel to what runs it: pure builders, the same for a cluster and a laptop."""

from guided_operator.builders.children import Children, config_map, render, url
from guided_operator.builders.configuration import config_file, pod_config
from guided_operator.builders.grammars import Sources
from guided_operator.builders.labels import leader_selector, selector
from guided_operator.builders.objects import manifest
from guided_operator.builders.pod_paths import PLUGIN_SOURCE, Site
from guided_operator.builders.revision_key import kept_spec, pod_key, with_kept_spec
from guided_operator.builders.workload import (
    is_grouped,
    nodes_name,
    pod_labels,
    progress_deadline_s,
    workload,
)

__all__ = [
    "PLUGIN_SOURCE",
    "Children",
    "Site",
    "Sources",
    "config_file",
    "config_map",
    "is_grouped",
    "kept_spec",
    "leader_selector",
    "manifest",
    "nodes_name",
    "pod_config",
    "pod_key",
    "pod_labels",
    "progress_deadline_s",
    "render",
    "selector",
    "url",
    "with_kept_spec",
    "workload",
]
