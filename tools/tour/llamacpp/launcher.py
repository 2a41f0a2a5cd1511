"""What llama.cpp's tests start in place of llama-server: `headrace serve` and the translation.

It ends with `headrace serve`, and takes it along on SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

from tools.tour.llamacpp.arguments import Settings, Unavailable, read
from tools.tour.llamacpp.proxy import Proxy

# The environment variable that names the model's file.
MODEL = "TOUR_MODEL"
# sysexits.h's name for a service that is not to be had.
EX_UNAVAILABLE = 69
# Seconds that the server behind has to end; their tests kill this process after five.
END_SECONDS = 3.0


def main() -> int:
    """Serve until a signal, or until the server behind ends."""
    try:
        settings = read(sys.argv[1:])
    except Unavailable as reason:
        sys.stderr.write(f"unavailable: {reason}\n")
        return EX_UNAVAILABLE
    with tempfile.TemporaryDirectory(prefix="tour-") as folder:
        return asyncio.run(_serve(settings, Path(folder)))


async def _serve(settings: Settings, folder: Path) -> int:
    socket = str(folder / "serve.sock")
    command = [sys.executable, "-m", "headrace", "serve", os.environ[MODEL], "--uds", socket]
    command += [*settings.serve, "--threads", "1", "--offline"]
    if settings.template is not None:
        template = folder / "template.jinja"
        template.write_text(settings.template, encoding="utf-8")
        command += ["--chat-template", str(template)]
    names = settings.serve
    served = frozenset(
        names[at + 1] for at, name in enumerate(names) if name == "--served-model-name"
    )
    proxy = Proxy(settings, socket, served)
    child = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    listener = await asyncio.start_server(proxy.connection, list(settings.hosts), settings.port)
    ended = asyncio.ensure_future(child.wait())
    stopping = asyncio.ensure_future(stopped.wait())
    await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
    listener.close()
    stopping.cancel()
    if not ended.done():
        child.terminate()
        try:
            await asyncio.wait_for(asyncio.shield(ended), END_SECONDS)
        except TimeoutError:
            child.kill()
    return await ended


if __name__ == "__main__":
    sys.exit(main())
