"""The contract that every method and task keeps, as checks anyone can run on their own.

    from curiax.testing import check_curiosity, check_host_task, check_task
    check_curiosity(MyBonus)        # raises ContractError at the first broken promise
    check_task(MyTask)              # in JAX
    check_host_task(MySimulator)    # on the host

`curiax check module:Class` runs the same checks and prints them one by one. The module also holds small
probe tasks with known answers.
"""

from collections.abc import Callable, Iterator

from ..envs import AbstractAnyTask, AbstractHostTask, AbstractTask
from .fleets import FLEET_CHECKS, check_host_task, fleet_checks
from .methods import METHOD_CHECKS, SPECS, check_curiosity, method_checks, random_steps
from .probes import NoisyArm, ProbeTask
from .tasks import TASK_CHECKS, check_task, task_checks

__all__ = [
    "FLEET_CHECKS",
    "METHOD_CHECKS",
    "SPECS",
    "TASK_CHECKS",
    "NoisyArm",
    "ProbeTask",
    "check_curiosity",
    "check_host_task",
    "check_task",
    "checks_of_task",
    "fleet_checks",
    "method_checks",
    "random_steps",
    "task_checks",
]


def checks_of_task(task: AbstractAnyTask) -> Iterator[tuple[str, Callable[[], None]]]:
    """The contract of a task of either family, a sentence and a check for each promise."""
    if isinstance(task, AbstractHostTask):
        return fleet_checks(lambda: task)
    assert isinstance(task, AbstractTask)
    return task_checks(lambda: task)
