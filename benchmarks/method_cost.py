"""How much longer does training take with each method than with RND?

One program per method is compiled and kept in memory; then all of them train from scratch in turn, round after
round, on all cores. A method's cost is its best round divided by RND's best round. Compilation is not counted.
"""

from __future__ import annotations

from common import Program, Target, interleave, parser, positive, relative, report, say, start_facts, write

NAME = "method_cost"
BASE = "rnd"
BOUNDS = {"icm": 1.15, "lbs": 1.25, "vime": 1.25, "disagreement": 1.65}
EPISODIC = ("ride", "ngu")


def main() -> None:
    """Measure, write, show."""
    options = parser(__doc__ or "", NAME, repeats=5)
    options.add_argument("--seeds", type=positive, default=8, help="seeds trained at once (default %(default)s)")
    options.add_argument("--steps", type=positive, help="steps of each seed (default: the task's full budget)")
    options.add_argument("--all", action="store_true", help="RIDE and NGU too, which keep an episodic memory")
    args = options.parse_args()

    facts = start_facts()
    programs = {}
    for method in (BASE, *BOUNDS, *(EPISODIC if args.all else ())):
        programs[method] = Program(method, args.seeds, args.steps)
        say(f"{method} ready after {programs[method].compile_seconds:.1f} s")
    seconds = interleave({method: program.train for method, program in programs.items()}, args.repeats)
    summary = relative(seconds, BASE)
    targets = [Target(f"{m} / {BASE}", summary[m]["ratio_of_best"], bound) for m, bound in BOUNDS.items()]

    plan = programs[BASE].plan
    settings = {"task": plan.task_entry.name, "seeds": args.seeds, "steps": plan.steps, "base": BASE}
    write(args.out, (__doc__ or "").splitlines()[0], facts, settings, {"train_seconds": seconds}, summary, targets)
    keys = ("best_seconds", "ratio_of_best", "ratio_of_medians", "lowest_pair", "highest_pair")
    rows = [(method, *(values[key] for key in keys)) for method, values in summary.items()]
    report(args.out, ("method", "best s", f"x {BASE}", "by median", "lowest pair", "highest pair"), rows, targets)


if __name__ == "__main__":
    main()
