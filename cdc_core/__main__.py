"""The program `cdc`, also as `python -m cdc_core`."""

import signal
import sys


def main() -> int:
    """Run the command line of the process and return the exit status.

    Ctrl-C ends the process without a traceback also while modules load, and once the command has ended.
    """
    interrupts = signal.getsignal(signal.SIGINT)
    if interrupts is not signal.SIG_IGN:  # as in the background of a script
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cdc_core.cli.main import main as command

    signal.signal(signal.SIGINT, interrupts)
    try:
        return command()
    except KeyboardInterrupt:  # another one, while the command ended for the first
        return 130
    finally:
        if interrupts is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
