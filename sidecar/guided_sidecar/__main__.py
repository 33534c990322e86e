"""`python -m guided_sidecar`: the sidecar container's first process."""

from guided_contract import first_process

if __name__ == "__main__":
    first_process.end_on_term()
    from guided_sidecar.main import main

    main()
