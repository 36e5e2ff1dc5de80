"""Starts `fewone serve` again and again without paying for the imports: everything is loaded once, then forked.

Reads one JSON list of options per line; answers with the process id of the service. Run as a program.
"""

from __future__ import annotations

import json
import os
import signal
import sys


def main() -> None:
    import fewone.detector.loading
    import fewone.service.app
    import fewone.service.server  # noqa: F401
    from fewone.cli import main as run

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the killed are buried at once
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child:
            print(child, flush=True)
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        out, *options = json.loads(line)
        log = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os._exit(run(["serve", *options]))


if __name__ == "__main__":
    main()
