"""Step two of a pass: what there should be. Pure: the same answer for the same input."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from guided_operator.api import GuidedModel, ManifestError, Problem, parse
from guided_operator.builders import grammars
from guided_operator.builders.children import after_pods, before_pods, config_map, url
from guided_operator.builders.configuration import config_file
from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.revision_key import kept_spec, pod_key, revision_name, with_kept_spec
from guided_operator.builders.workload import workload
from guided_operator.kube import kinds
from guided_operator.kube.kinds import Kind
from guided_operator.kube.pod_view import PodView, leaders
from guided_operator.policy.installation_limits import NO_LIMITS, Limits
from guided_operator.policy.spec_checks import check
from guided_operator.reconcile.observe import Observed
from guided_operator.reconcile.rollout import revision

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """What there should be for one GuidedModel.

    `model` is as it is to run: while it is rolled back, with what the revision's pods are made from.
    `children` are whole manifests in the order in which they are written. `problems`: why the resource
    cannot be served; then nothing is written or pruned, and what runs goes on: revision and replicas are
    its. `url`: where clients reach it, once a Service of its own is there. `revision`: the key of what pods
    are to be of; `asked` is that of the spec, another one while it is rolled back. `surplus`: our objects
    that are no longer wanted. `replicas`: how many there should be. `grammar_faults`: what is wrong with a
    named grammar's text, by its name.
    """

    model: GuidedModel | None
    problems: tuple[Problem, ...] = ()
    revision: str = ""
    asked: str = ""
    url: str = ""
    replicas: int = 0
    children: tuple[Object, ...] = ()
    surplus: tuple[tuple[Kind, str], ...] = ()
    grammar_faults: Mapping[str, str] = field(default_factory=dict)

    @property
    def desired(self) -> int:
        """How many pods there should be."""
        return self.replicas * self.nodes

    @property
    def nodes(self) -> int:
        """How many pods are one replica."""
        return self.model.spec.parallelism.nodes if self.model else 1


def plan(observed: Observed, site: Site, limits: Limits = NO_LIMITS) -> Plan:
    """Decide what there should be for the GuidedModel seen, as far as the installation permits it."""
    try:
        model = parse(observed.model, unknown="ignore")
    except ManifestError as error:
        return _as_it_is(observed, site, None, tuple(error.problems))
    asked = pod_key(model)
    known = revision.stored(observed.children.get(kinds.REVISION.name, {}), observed.uid)
    key = model.spec.rollout.rollback_to or asked
    try:
        running = model if _is_own(model, key, asked, known) else _as_stored(model, key, known, limits)
    except ManifestError as error:
        return _as_it_is(observed, site, model, tuple(error.problems))
    problems = (*check(running), *limits.check(running))
    if running is not model:
        problems, model = tuple(_of_revision(key, each) for each in problems), running
    if problems:
        return _as_it_is(observed, site, model, problems)
    grammars_map = grammars.map_name(model.name)
    texts, faults = grammars.merge(model, observed.sources, _mounted(observed, grammars_map))
    chosen = revision.choose(known, key, lambda: _content(model, site))
    in_use = {key, asked, *(pod.revision for pod in observed.pods if pod.live)}
    gone = revision.expired(known, in_use)
    older = [known[each] for each in sorted(in_use & known.keys() - {key})]
    children = (
        revision.to_manifest(model, chosen),
        *before_pods(model, site),
        *_config_maps(model, [chosen, *older]),
        config_map(model, grammars_map, texts),
        workload(model, chosen.data["template"], model.spec.replicas),
        *after_pods(model),
    )
    return Plan(
        model=model,
        revision=key,
        asked=asked,
        url=url(*observed.key, site),
        replicas=model.spec.replicas,
        children=children,
        surplus=(*_surplus(model.name, gone), *_unwanted(observed, children)),
        grammar_faults=faults,
    )


def serving(live: Iterable[PodView]) -> str:
    """Return the revision that most ready pods are of, or any pod; "" without pods."""
    shares = Counter[str]()
    for pod in live:
        shares[pod.revision] += pod.ready
    return max(shares, key=lambda key: (shares[key], key), default="")


def _as_it_is(
    observed: Observed, site: Site, model: GuidedModel | None, problems: tuple[Problem, ...]
) -> Plan:
    """Return what runs, of a resource that cannot be served: of its pods' revisions the one that serves."""
    live = [pod for pod in observed.pods if pod.live]
    return Plan(
        model,
        problems,
        revision=serving(live),
        url=url(*observed.key, site),
        replicas=leaders(live),
    )


def _is_own(model: GuidedModel, key: str, asked: str, known: Mapping[str, revision.Revision]) -> bool:
    """Return whether the spec is what the pods of the revision `key` are made from."""
    # A key is short, and a spec can be made up that has the key of another.
    kept = known[key].data.get("spec") if key in known else None
    return key == asked and kept in (None, kept_spec(model))


def _as_stored(
    model: GuidedModel, key: str, known: Mapping[str, revision.Revision], limits: Limits
) -> GuidedModel:
    """Return the model with what the pods of the revision `key` are made from: what runs is what is checked.

    Raises
    ------
    ManifestError
        There is no such revision, or nothing to check it by.
    """
    if key not in known:
        newest_first = sorted(known.values(), key=lambda each: -each.number)
        stored = ", ".join(each.key for each in newest_first) or "none"
        raise _refused(f"revision {key} is not stored; stored revisions: {stored}")
    kept = known[key].data.get("spec")
    if kept is not None:
        try:
            return parse(with_kept_spec(model, kept), unknown="ignore")
        except ManifestError as error:
            raise ManifestError([_of_revision(key, each) for each in error.problems]) from error
    if limits.concern_pods:
        raise _refused(
            f"revision {key} was stored by an earlier release, without the spec that this operator's limits "
            "are checked on: remove rollbackTo, and set the fields as they were"
        )
    return model


def _of_revision(key: str, problem: Problem) -> Problem:
    return Problem("spec.rollout.rollbackTo", f"revision {key} cannot run: {problem}")


def _refused(message: str) -> ManifestError:
    return ManifestError([Problem("spec.rollout.rollbackTo", message)])


def _content(model: GuidedModel, site: Site) -> Object:
    """Return what a revision stores: all that pods are made of."""
    return {
        "template": pod_template(model, site),
        "config": config_file(model, site),
        "spec": kept_spec(model),
    }


def _mounted(observed: Observed, name: str) -> Mapping[str, str]:
    """Return the grammars' files that pods have now."""
    return {file: text for file, text in (observed.sources.get(name) or {}).items() if text is not None}


def _config_maps(model: GuidedModel, revisions: Iterable[revision.Revision]) -> Iterator[Object]:
    """Yield the configuration of each revision that is in use: an older one's pods may be made again, too."""
    for each in revisions:
        # Named by revision: a pod of the old revision that restarts in the middle of a rollout must find the
        # configuration that belongs to its arguments.
        yield config_map(model, revision_name(model.name, each.key), each.data["config"])


def _unwanted(observed: Observed, children: tuple[Object, ...]) -> Iterator[tuple[Kind, str]]:
    """Find what stands around the pods although the spec no longer asks for it."""
    wanted = {(child["kind"], child["metadata"]["name"]) for child in children}
    for kind in kinds.CHILDREN:
        for name, child in observed.children.get(kind.name, {}).items() if kind.pruned else ():
            if (kind.name, name) not in wanted and kinds.is_owned(child, observed.uid):
                yield kind, name


def _surplus(model: str, expired: set[str]) -> tuple[tuple[Kind, str], ...]:
    """Return what goes with the revisions that go."""
    return tuple(
        (kind, revision_name(model, key))
        for key in sorted(expired)
        for kind in (kinds.CONFIG_MAP, kinds.REVISION)
    )
