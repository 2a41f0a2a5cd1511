"""`headrace` and `python -m headrace`: the entry point that is imported before everything else."""

from __future__ import annotations

import gc
import os
import sys

from headrace.cli.interrupt import leave_quietly

# Not from typing: that takes 10 ms, in which nothing can be done about a Ctrl-C yet.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from headrace.engine.process.spawn import EngineProcess


def main() -> None:
    """Run the command line; Ctrl-C is quiet from the first import on."""
    leave_quietly()
    process = _engine_ahead(sys.argv[1:])
    from headrace.cli.main import main as run

    run(process)


def _engine_ahead(words: list[str]) -> EngineProcess | None:
    """An engine's process for `serve`, which imports what it needs while the command is read.

    It ends with this one, whatever that comes to.
    """
    if words[:1] != ["serve"] or "-h" in words or "--help" in words:
        return None
    # NumPy's products are of no weight here, and its threads spin while others load.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Modules and vocabularies stay: collections find nothing in them. The server turns them on.
    gc.disable()
    from headrace.cli.streams import fill_standard_streams
    from headrace.engine.process.spawn import EngineProcess

    fill_standard_streams()
    try:
        return EngineProcess.launch()
    except OSError:
        return None  # tried again where it can be told what went wrong


if __name__ == "__main__":
    main()
