"""The entry point `vllm.general_plugins`: vLLM calls `register` in each of its processes, perhaps twice."""

import logging

from guided_contract import config

_log = logging.getLogger("guided_engine")


def register() -> None:
    """Apply the ledger's changes to vLLM; without effect outside our pods and on an unsupported vLLM.

    Raises
    ------
    guided_contract.config.ConfigError
        The environment names a configuration file that cannot be read: a pod of ours, but a broken one.
    """
    pod = config.load()
    if pod is None:
        return
    from guided_engine import ledger, versions  # noqa: PLC0415 - nothing of this outside our pods

    reason = versions.unsupported()
    if reason:
        _log.warning("guidedmodel: the plugin leaves vLLM untouched: %s", reason)
        return
    ledger.apply_all(ledger.all_entries(), pod)
