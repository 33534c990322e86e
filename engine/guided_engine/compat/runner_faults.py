"""What processors spoiled of a step's rows, told to the engine core with that step's own output."""

from collections.abc import Mapping
from typing import Any

from guided_engine.compat.runner import add_ends
from guided_engine.ranks.step import ReadFaults, RowFault


def add_faults(output: Any, faults: Mapping[str, RowFault]) -> None:
    """Write on a ModelRunnerOutput, whose tokens are known, which sequences end for the rows of these."""
    tokens, places = output.sampled_token_ids, output.req_id_to_index
    if ends := {name: fault.code for name, fault in faults.items() if fault.row < len(tokens[places[name]])}:
        add_ends(output, ends)


def tell_faults(output: Any, faults: ReadFaults) -> None:
    """Write a step's faults on its own output, as soon as the host has both: the step's token is dropped."""
    original = output.get_output

    def get_output() -> Any:
        made = original()
        add_faults(made, faults())
        return made

    output.get_output = get_output
