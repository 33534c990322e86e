"""Words that containers get as they stand: the kubelet takes `$(NAME)` for a variable, and `$$` for `$`."""

from kubernetes.aio import client as k8s


def escape(container: k8s.V1Container) -> k8s.V1Container:
    """Return the container with words and variables that the kubelet passes on as they are here.

    Without it a variable could hold an argument that is not allowed. The kubelet leaves preStop hooks alone.
    """
    container.command = _escaped(container.command)
    container.args = _escaped(container.args)
    for variable in container.env or ():
        if variable.value is not None:
            variable.value = variable.value.replace("$", "$$")
    return container


def passed_on(word: str) -> str:
    """Return what the kubelet makes of an escaped word."""
    return word.replace("$$", "$")


def _escaped(words: list[str] | None) -> list[str] | None:
    return [word.replace("$", "$$") for word in words] if words is not None else None
