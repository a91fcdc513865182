"""The command line: run, reproduce, report, verify, watch, export, list, check, cite, doctor."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence

from .._errors import ContractError, CuriaxError, Interrupted, left, place_of, unknown
from .._text import clean_lines
from .._version import __version__
from ._arguments import Answered
from ._streams import make_usable, refusal
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

#: How a place for output refuses to take any, and what is said of it.
FULL = (errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT)
UNSAID = "the result could not be written to standard output"

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
    code = carried_out(args)
    refused, _ = refusal(sys.stdout), refusal(sys.stderr)
    if refused is None or isinstance(refused, BrokenPipeError):
        return code
    return code or complain(f"{UNSAID}: {refused.strerror}.", 1)


def carried_out(args: Sequence[str]) -> int:
    """The exit code of a command; whatever goes wrong in it is said in a sentence."""
    try:
        if not args or args[0] in ("-h", "--help"):
            print(OVERVIEW, end="")
            return 0
        if args[0] in ("-V", "--version"):
            print(f"curiax {__version__}")
            return 0
        if args[0] not in COMMANDS:
            raise unknown("command", args[0], COMMANDS)
        return COMMANDS[args[0]](list(args[1:]))
    except Answered as answered:
        return answered.code
    except CuriaxError as error:
        return complain(str(error), error.exit_code)
    except Interrupted as stopped:
        return complain(str(stopped), stopped.exit_code)
    except KeyboardInterrupt:
        return complain("interrupted; finished runs and checkpoints are kept.", INTERRUPTED)
    except SystemExit as error:
        return complain(str(left("code of yours", error)), ContractError.exit_code)
    except BrokenPipeError:
        return 0  # whoever reads has read enough
    except MemoryError as error:
        return complain(f"there is too little memory ({place_of(error)}): {error or 'ask for less at once'}.", 1)
    except (OSError, UnicodeError, RecursionError) as error:
        # Foreseen ones name their remedy; of the others this much can be said.
        if isinstance(error, OSError) and error.errno in FULL and error.filename is None:
            return complain(f"{UNSAID}: {error.strerror}.", 1)
        if isinstance(error, OSError) and error.filename is not None:
            return complain(f"{error.filename} cannot be used: {error.strerror}. See to it, or name another place.", 1)
        return complain(f"{type(error).__name__}: {error} ({place_of(error)}).", 1)
    except Exception:
        traceback.print_exc()
        return complain(
            "this is a fault, in a class of yours or in Curiax; if it is ours, please report what is above.", 1
        )


def complain(text: str, code: int) -> int:
    """Say what happened, on standard error; returns the exit code."""
    with contextlib.suppress(OSError):  # there is nobody else to tell
        print(f"curiax: {clean_lines(text)}", file=sys.stderr, flush=True)
    return code


def script() -> None:
    """The `curiax` command."""
    import warnings

    make_usable()
    from ..experiments.interrupt import heeded, leave, leave_in_time

    for number in heeded():
        signal.signal(number, leave)
    leave_in_time()
    # For people: what is the matter, not which line of ours says so.
    warnings.formatwarning = lambda message, *_, **__: f"curiax: {clean_lines(str(message))}\n"
    code = main()
    for number in heeded():
        signal.signal(number, lambda *_: os._exit(code))  # all is done but the interpreter's own end
    if code in (INTERRUPTED, TERMINATED):
        # XLA's compiler threads do not survive a regular exit in mid-work: they end in a segmentation fault.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
