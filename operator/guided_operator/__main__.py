"""`guidedmodel-operator`, the operator container's first process; also `python -m guided_operator`."""

from guided_contract import processes


def main() -> None:
    """Run the operator until TERM; see `guided_operator.main`."""
    processes.end_on_term()
    processes.raise_file_limit()
    from guided_operator.main import main as run  # noqa: PLC0415 - its imports take seconds

    run()


if __name__ == "__main__":
    main()
