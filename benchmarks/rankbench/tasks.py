"""What real models are asked on a CPU: the tasks that the tiny model and its draft model were trained on."""

from typing import Final

from devtools.tinytasks import TASKS, TOPICS

_ASKED: Final = [(task, topic) for topic in TOPICS for task in TASKS if task.kind == "json"]


class Tasks:
    """JSON tasks, each with a topic of its own until there are no more; answers end by themselves."""

    name: Final = "tasks"

    def schema(self, sequence: int) -> str:
        """Return the schema of a sequence."""
        return _ASKED[sequence % len(_ASKED)][0].spec

    def prompt(self, sequence: int) -> str:
        """Return what a sequence is asked."""
        task, topic = _ASKED[sequence % len(_ASKED)]
        return task.prompt(topic)
