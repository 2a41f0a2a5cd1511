"""`headrace` and `python -m headrace`: the entry point that is imported before everything else."""

from __future__ import annotations

from headrace.cli.interrupt import leave_quietly


def main() -> None:
    """Run the command line; Ctrl-C is quiet from the first import on."""
    leave_quietly()
    from headrace.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
