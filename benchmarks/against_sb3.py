"""How many more steps per second does Curiax train than Stable-Baselines3's PPO?

Curiax trains LBS, policy and curiosity model, for 8 seeds on all cores. Stable-Baselines3 trains PPO alone, without
any bonus, on Gymnasium's own NumPy Mountain Car, with the same networks, rollouts, epochs and minibatches and one
torch thread: its usual way of running. The two take turns. Curiax's rate is all steps of all seeds over its training
seconds; Stable-Baselines3 runs in a fresh process each time, and its rate is that of its rollouts after the first.
The ratio is of the best rates. Beside it stand the ratio with Curiax's compilation, cache off, counted in, and the
ratio per core, as if Stable-Baselines3 ran one process on every core without loss.

Stable-Baselines3 is not among Curiax's dependencies. Install it in an environment of its own, torch first (add
`--index-url https://download.pytorch.org/whl/cpu` where pip would fetch the CUDA build), and name its Python:

    python3 -m venv /tmp/sb3 && /tmp/sb3/bin/pip install torch==2.13.0
    /tmp/sb3/bin/pip install stable-baselines3 gymnasium
    python benchmarks/against_sb3.py --sb3-python /tmp/sb3/bin/python
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common import Program, Target, fresh_python, interleave, parser, positive, report, say, start_facts, write

NAME = "against_sb3"
METHOD = "lbs"
BOUND = 45.0
WORKER = Path(__file__).with_name("sb3_worker.py")
ROLLOUT = 2048


def check_python(python: str) -> None:
    """Stop with the commands to type where Stable-Baselines3 cannot be imported."""
    try:
        done = subprocess.run([python, "-c", "import stable_baselines3"], capture_output=True, text=True)
    except OSError as error:
        raise SystemExit(f"--sb3-python {python}: {error.strerror}") from None
    if done.returncode:
        commands = (__doc__ or "").partition("    python3")[1:]
        raise SystemExit(
            f"{python} cannot import stable_baselines3. Install it in an environment of its own and name that "
            f"Python:\n\n{''.join(commands).rstrip()}\n"
        )


class Baseline:
    """Stable-Baselines3 in fresh processes; keeps what each of them printed."""

    def __init__(self, python: str, rollouts: int) -> None:
        self._python, self._rollouts = python, rollouts
        self.results: list[dict[str, Any]] = []

    def train(self) -> float:
        """Seconds of the rollouts after the warm-up."""
        output = fresh_python([str(WORKER), "--rollouts", str(self._rollouts + 1)], python=self._python)
        self.results.append(json.loads(output.splitlines()[-1]))
        return sum(self.results[-1]["seconds"][1:])


def summarise(
    seconds: Mapping[str, Sequence[float]], steps: Mapping[str, int], compile_seconds: float, cores: int
) -> dict[str, float]:
    """Rates and ratios."""
    rates = {name: steps[name] / min(values) for name, values in seconds.items()}
    with_compile = steps["curiax"] / (min(seconds["curiax"]) + compile_seconds)
    pairs = [
        steps["curiax"] / ours / (steps["sb3"] / theirs)
        for ours, theirs in zip(seconds["curiax"], seconds["sb3"], strict=True)
    ]
    return {
        "curiax_steps_per_second": rates["curiax"],
        "curiax_steps_per_second_with_compile": with_compile,
        "sb3_steps_per_second": rates["sb3"],
        "ratio": rates["curiax"] / rates["sb3"],
        "ratio_with_compile": with_compile / rates["sb3"],
        "ratio_per_core": rates["curiax"] / rates["sb3"] / cores,
        "lowest_pair": min(pairs),
        "highest_pair": max(pairs),
    }


def main() -> None:
    """Measure, write, show."""
    options = parser(__doc__ or "", NAME, repeats=3)
    options.add_argument("--sb3-python", default=sys.executable, help="a Python that has Stable-Baselines3")
    options.add_argument("--seeds", type=positive, default=8, help="seeds Curiax trains at once (%(default)s)")
    options.add_argument("--steps", type=positive, help="steps of each seed (default: the task's full budget)")
    options.add_argument("--rollouts", type=positive, default=5, help="timed rollouts of SB3 (default %(default)s)")
    args = options.parse_args()
    check_python(args.sb3_python)

    facts = start_facts()
    os.environ |= {"CURIAX_CACHE": "off", "JAX_COMPILATION_CACHE_DIR": ""}  # JAX is not imported yet
    program, baseline = Program(METHOD, args.seeds, args.steps), Baseline(args.sb3_python, args.rollouts)
    say(f"compiled in {program.compile_seconds:.1f} s")
    seconds = interleave({"curiax": program.train, "sb3": baseline.train}, args.repeats)
    steps = {"curiax": args.seeds * program.plan.steps, "sb3": args.rollouts * ROLLOUT}
    summary = summarise(seconds, steps, program.compile_seconds, facts["cores"])
    targets = [Target("Curiax / SB3, steps/s", summary["ratio"], BOUND, "at least")]

    settings = {
        "curiax": {
            "task": program.plan.task_entry.name,
            "method": METHOD,
            "seeds": args.seeds,
            **program.plan.settings,
        },
        "sb3": baseline.results[0]["settings"],
        "sb3_versions": baseline.results[0]["versions"],
        "steps": steps,
    }
    repeats = {
        "train_seconds": seconds,
        "curiax_compile_seconds": program.compile_seconds,
        "sb3_rollout_seconds": [result["seconds"] for result in baseline.results],
    }
    write(args.out, (__doc__ or "").splitlines()[0], facts, settings, repeats, summary, targets)
    rows = [
        ("SB3 PPO, no bonus", f"{summary['sb3_steps_per_second']:,.0f}", 1.0),
        ("Curiax LBS", f"{summary['curiax_steps_per_second']:,.0f}", summary["ratio"]),
        (
            "  compilation included",
            f"{summary['curiax_steps_per_second_with_compile']:,.0f}",
            summary["ratio_with_compile"],
        ),
        ("  per core", f"{summary['curiax_steps_per_second'] / facts['cores']:,.0f}", summary["ratio_per_core"]),
    ]
    report(args.out, (f"{args.seeds} seeds, {facts['cores']} cores", "steps/s", "x SB3"), rows, targets)


if __name__ == "__main__":
    main()
