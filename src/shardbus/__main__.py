"""The start of the `shardbus` command, and of `python -m shardbus`."""

import signal
import sys


def run() -> None:
    """Run the command line."""
    # Loading the program takes a moment: until it can say what it has done, Ctrl-C just ends it.
    is_asked = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_asked:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from shardbus.app.cli.main import main

    for stream in (sys.stdout, sys.stderr):
        # Whatever the terminal cannot show is shown as its code.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if is_asked:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main(prog_name="shardbus")


if __name__ == "__main__":
    run()
