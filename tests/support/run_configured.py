"""`guidedmodel` with settings of a pod's configuration that no field of the resource has.

`python -P tests/support/run_configured.py JSON ARGUMENT...`: JSON is merged into each configuration.
"""

import json
import sys
from typing import Any

from guided_contract import config
from guided_operator import cli
from guided_operator.api import GuidedModel
from guided_operator.builders import configuration
from guided_operator.builders.pod_paths import Site

_made = configuration.pod_config


def _merged(told: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return told | {
        name: _merged(told[name], value) if isinstance(value, dict) else value for name, value in more.items()
    }


def main(more: dict[str, Any]) -> None:
    """Run the command."""

    def pod_config(gm: GuidedModel, site: Site) -> config.PodConfig:
        told = json.loads(config.encode(_made(gm, site)))
        return config.decode(json.dumps(_merged(told, more)).encode())

    configuration.pod_config = pod_config
    sys.exit(cli.main(sys.argv[1:]))


if __name__ == "__main__":
    main(json.loads(sys.argv.pop(1)))
