"""The program `cdc`, also as `python -m cdc_core`."""

import signal
import sys
from types import FrameType


def main() -> int:
    """Run the command line of the process and return the exit status.

    Ctrl-C ends the process without a traceback also while modules load, and once the command has ended. SIGTERM and
    SIGHUP interrupt a command in the same way, unless it has its own handlers; a second SIGTERM ends it at once.
    """
    interrupts = signal.getsignal(signal.SIGINT)
    is_heeded = interrupts not in (signal.SIG_IGN, None)  # ignored as in the background of a script
    if is_heeded:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cdc_core.cli.main import main as command
    from cdc_core.cli.stop_signals import leave_terminal

    ended_by: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if number == signal.SIGHUP:  # a terminal sends it twice
            leave_terminal()
        signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else signal.SIG_DFL)
        ended_by.append(number)
        raise KeyboardInterrupt(number)

    try:
        if is_heeded:
            signal.signal(signal.SIGINT, interrupts)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, end)
        status = command()
    except KeyboardInterrupt:  # another one, while the command ended for the first
        status = 130
    finally:
        if is_heeded:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is end:
                signal.signal(number, signal.SIG_DFL)
    return 128 + ended_by[0] if status == 130 and ended_by else status


if __name__ == "__main__":
    sys.exit(main())
