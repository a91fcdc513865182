"""The command line: run, reproduce, report, verify, watch, export, list, check, cite, doctor."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence

from .._errors import CuriaxError, Interrupted, unknown
from .._version import __version__
from .check import command_check
from .cite import command_cite
from .doctor import command_doctor
from .export import command_export
from .listing import command_list
from .report import command_report, command_verify
from .reproduce import command_reproduce
from .run import command_run
from .watch import command_watch

OVERVIEW = f"""curiax {__version__}: curiosity-driven exploration in JAX

usage: curiax COMMAND ...

  run TASK --method M     train one method on one task, all seeds at once
  reproduce SUITE         train a suite; its results beside the paper's, as table, figures and report.html
  report DIR ...          the same from any finished runs, your own methods included
  verify DIR ...          compare digests, recompute kept tables from their curves, name version and commit
  watch RUN               a film (mp4 or gif) of a trained agent, its bonus below
  export RUN --out DIR    trained agents as two files that load and act anywhere: curiax.load(DIR).act(obs)
  list                    the methods, tasks, suites and presets
  check module:Class      hold your own method or task to the contract
  cite METHOD ...         BibTeX of the methods you used
  doctor                  versions, devices, and which extras work

curiax COMMAND --help says more. Start with: curiax run mountain-car --method lbs
"""

#: Exit codes after Ctrl-C and SIGTERM, as shells have them.
INTERRUPTED, TERMINATED = 130, 143

COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "run": command_run,
    "reproduce": command_reproduce,
    "report": command_report,
    "verify": command_verify,
    "watch": command_watch,
    "export": command_export,
    "list": command_list,
    "check": command_check,
    "cite": command_cite,
    "doctor": command_doctor,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 done, 1 failed, 2 wrong usage, 130 or 143 told to stop."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help"):
        print(OVERVIEW, end="")
        return 0
    if args[0] in ("-V", "--version"):
        print(f"curiax {__version__}")
        return 0
    try:
        if args[0] not in COMMANDS:
            raise unknown("command", args[0], COMMANDS)
        return COMMANDS[args[0]](args[1:])
    except CuriaxError as error:
        print(f"curiax: {error}", file=sys.stderr)
        return error.exit_code
    except Interrupted as stopped:
        print(f"curiax: {stopped}", file=sys.stderr)
        return stopped.exit_code
    except KeyboardInterrupt:
        print("\ncuriax: interrupted; finished runs and checkpoints are kept.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def script() -> None:
    """The `curiax` command."""
    import warnings

    from ..experiments.interrupt import heeded, leave, leave_in_time

    for number in heeded():
        signal.signal(number, leave)
    leave_in_time()
    # For people: what is the matter, not which line of ours says so.
    warnings.formatwarning = lambda message, *_, **__: f"curiax: {message}\n"
    code = main()
    for number in heeded():
        signal.signal(number, lambda *_: os._exit(code))  # all is done but the interpreter's own end
    if code in (INTERRUPTED, TERMINATED):
        # XLA's compiler threads do not survive a regular exit in mid-work: they end in a segmentation fault.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
