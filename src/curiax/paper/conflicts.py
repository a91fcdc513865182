"""Where the paper and its released code disagree or leave things open, and the setting that decides each. Data only."""

from __future__ import annotations

from dataclasses import dataclass

from .suites import ANT_MAZE, EVOLVING, FROZEN, HALF_CHEETAH, PLAIN

CARS = (PLAIN, FROZEN, EVOLVING)
#: What decides which metric is shown first, which is no setting: it changes no number.
HEADLINE = "--headline"


@dataclass(frozen=True)
class Conflict:
    """One such point; `setting` is the dotted name that decides it, `method` the only one that has it.

    `tasks` are the only ones that it concerns, empty for all, `games` whether arcade games are among these. What no
    setting decides says itself what is done: `ours`.
    """

    topic: str
    paper: str
    code: str
    setting: str
    method: str = ""
    tasks: tuple[str, ...] = ()
    games: bool = True
    ours: str = ""


CONFLICTS: tuple[Conflict, ...] = (
    Conflict("entropy weight, control", "0.001", "0.01 in every README command", "ppo.entropy_weight", games=False),
    Conflict(
        "entropy of a Gaussian policy",
        "–",
        "averaged over action dimensions, by a typo",
        "ppo.entropy_reduction",
        games=False,
    ),
    Conflict("headline coverage", "10 × 10 bins", "ceil without a clamp: 11 × 11 cells ÷ 100", HEADLINE, tasks=CARS),
    Conflict(
        "clipping the bonus",
        "to (−3, 3)",
        "raw bonus to ±3 old deviations, before updating and dividing",
        "learner.clip_order",
    ),
    Conflict("successor at an episode's end", "–", "the reset observation of the next episode", "loop.successor"),
    Conflict("time limits in GAE", "–", "ignored: values run through resets", "ppo.episode_ends"),
    Conflict("posterior's input", "s, a, s′", "the prior's hidden vector and s′", "method.posterior", "lbs"),
    Conflict("optimiser of the model: ε", "the policy's", "1e-8 instead of the policy's 1e-5", "learner.adam_epsilon"),
    Conflict("optimiser of the model: gradient norm", "the policy's", "not clipped", "learner.max_gradient_norm"),
    Conflict("β", "0.1; 2 on stochastic tasks", "default 1, README as the paper", "method.beta", "lbs", games=False),
    Conflict("episode length", "–", "100", "task.horizon", tasks=CARS),
    Conflict("rollout", "2048", "2048", "loop.rollout", games=False),
    Conflict("action that the model sees", "a", "the unclipped sample", "loop.model_action", games=False),
    Conflict("RND's target network", "–", "unused helper: one linear layer", "method.target", "rnd"),
)

#: Those of the two MuJoCo tasks.
MUJOCO_CONFLICTS: tuple[Conflict, ...] = (
    Conflict(
        "entropy of several action dimensions",
        "–",
        "averaged, as above: a sum would weigh 6 times as much on Half-Cheetah and 8 times as much in Ant Maze",
        "ppo.entropy_reduction",
        tasks=(HALF_CHEETAH, ANT_MAZE),
    ),
    Conflict("episode length, Half-Cheetah", "–", "500", "task.horizon", tasks=(HALF_CHEETAH,)),
    Conflict("episode length, Ant Maze", "–", "300", "task.horizon", tasks=(ANT_MAZE,)),
    Conflict(
        "headline coverage, Half-Cheetah",
        "100 bins",
        "values clipped into the range, then ceil: what is at or below the lower end has an index 0 of its own, what "
        "is beyond the upper end counts in the last; up to 11 × 11 cells ÷ 100",
        HEADLINE,
        tasks=(HALF_CHEETAH,),
    ),
    Conflict(
        "coverage of Ant Maze",
        "up to seven bins",
        "two of them: the highest block of an update, and the distinct blocks of the run ÷ 7",
        "",
        tasks=(ANT_MAZE,),
        ours="distinct cells of the run ÷ 7",
    ),
    Conflict(
        "borders of Ant Maze's cells",
        "–",
        "a torso exactly on a border, or outside the maze, is an error",
        "",
        tasks=(ANT_MAZE,),
        ours="a border belongs to the cell above it; what is not corridor is not counted",
    ),
)
