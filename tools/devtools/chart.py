"""The chart: its copies of generated manifests, and helm.

`python -m devtools.chart` copies manifests there that the chart uses, too; `--check` says what differs.
"""

import sys
from pathlib import Path

from devtools import golang
from devtools.process import output

ROOT = golang.TOOLS.parent
CHART = ROOT / "charts/guidedmodel"
# Helm reads no file outside its chart.
COPIES = {
    ROOT / "manifests/crd/guidedmodels.guidedmodel.io.yaml": CHART / "files/crd.yaml",
    ROOT / "manifests/observability/alerts.yaml": CHART / "files/alerts.yaml",
    ROOT / "manifests/observability/dashboard.json": CHART / "files/dashboard.json",
    **{
        ROOT / f"manifests/observability/{name}.yaml": CHART / f"files/{name}.yaml"
        for name in ("podmonitor", "operator-podmonitor", "operator-alerts")
    },
}
HELM_TIMEOUT_S = 300


class HelmError(Exception):
    """helm ended with an error; the message is what it said."""


def copy() -> None:
    """Bring the chart's copies up to date."""
    for source, target in COPIES.items():
        target.write_bytes(source.read_bytes())


def outdated() -> list[Path]:
    """Return the copies that differ from their source."""
    return [
        target
        for source, target in COPIES.items()
        if not target.exists() or target.read_bytes() != source.read_bytes()
    ]


def helm(*args: str, kubeconfig: Path | None = None) -> str:
    """Run helm and return its output.

    Raises
    ------
    HelmError
        It ended with an error.
    """
    access = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    return output([golang.helm() / "helm", *args, *access], HELM_TIMEOUT_S, HelmError)


def template(namespace: str, *args: str) -> str:
    """Return what the chart would install."""
    image = "--set=image.repository=here/guidedmodel"
    return helm("template", "guidedmodel", str(CHART), f"--namespace={namespace}", image, *args)


def install(namespace: str, image: str, kubeconfig: Path | None = None, *extra: str) -> str:
    """Install or upgrade the chart with one image (NAME:TAG) and wait until the operator runs."""
    repository, _, tag = image.rpartition(":")
    values = [f"--set=image.repository={repository}", f"--set-string=image.tag={tag}", *extra]
    command = [
        "upgrade",
        "--install",
        "guidedmodel",
        str(CHART),
        f"--namespace={namespace}",
        "--create-namespace",
    ]
    return helm(*command, "--wait", "--timeout=120s", *values, kubeconfig=kubeconfig)


def main() -> None:
    """Copy, or check."""
    if "--check" not in sys.argv[1:]:
        copy()
    elif names := outdated():
        sys.exit(
            f"chart: {', '.join(str(name.relative_to(ROOT)) for name in names)} outdated: run `make generate`"
        )


if __name__ == "__main__":
    main()
