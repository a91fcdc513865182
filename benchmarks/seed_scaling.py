"""How much longer do many seeds take than one?

LBS is compiled once for each number of seeds; then all of these programs train from scratch in turn, round after
round, on all cores. The cost of n seeds is their best round divided by the best round of one seed. One seed runs
on one core, so n seeds on c cores would take n / c times as long if nothing were gained or lost. The target is
meant for two cores. Compilation is not counted.
"""

from __future__ import annotations

from common import Program, Target, interleave, parser, positive, relative, report, say, start_facts, write

NAME = "seed_scaling"
METHOD = "lbs"
SEEDS = (1, 2, 4, 8, 16)
TARGET_SEEDS, BOUND = 8, 4.2


def main() -> None:
    """Measure, write, show."""
    options = parser(__doc__ or "", NAME, repeats=5)
    options.add_argument("--steps", type=positive, help="steps of each seed (default: the task's full budget)")
    args = options.parse_args()

    facts = start_facts()
    programs = {}
    for seeds in SEEDS:
        programs[str(seeds)] = Program(METHOD, seeds, args.steps)
        say(f"{seeds} seeds ready after {programs[str(seeds)].compile_seconds:.1f} s")
    seconds = interleave({name: program.train for name, program in programs.items()}, args.repeats)
    summary = relative(seconds, "1")
    plan = programs["1"].plan
    for name, values in summary.items():
        values["steps_per_second"] = int(name) * plan.steps / values["best_seconds"]
    measured = summary[str(TARGET_SEEDS)]["ratio_of_best"]
    targets = [Target(f"{TARGET_SEEDS} seeds / 1 seed", measured, BOUND)]

    settings = {"task": plan.task_entry.name, "method": METHOD, "steps": plan.steps}
    write(args.out, (__doc__ or "").splitlines()[0], facts, settings, {"train_seconds": seconds}, summary, targets)
    keys = ("best_seconds", "ratio_of_best", "ratio_of_medians", "lowest_pair", "highest_pair")
    rows = [(n, *(v[key] for key in keys), f"{v['steps_per_second']:,.0f}") for n, v in summary.items()]
    columns = ("seeds", "best s", "x one seed", "by median", "lowest pair", "highest pair", "steps/s")
    report(args.out, columns, rows, targets)


if __name__ == "__main__":
    main()
