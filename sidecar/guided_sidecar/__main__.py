"""`python -m guided_sidecar`: the sidecar container's first process."""

from guided_contract import pid1

if __name__ == "__main__":
    pid1.end_on_term()
    from guided_sidecar.main import main

    main()
