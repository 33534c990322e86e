"""The only place that touches private vLLM names: every change to vLLM is a ledger entry of a module here.

A module listed below exports ``ENTRIES``. It must import without vLLM (import it inside `apply`), because
vLLM calls general plugins in every process, also in those that need only some of the entries.
"""
