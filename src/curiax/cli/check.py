"""`curiax check`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Annotated

from .._errors import CuriaxError, UsageError
from .._text import clean
from ._arguments import parse


def command_check(args: list[str]) -> int:
    """Hold a method or task to the contract."""
    import tyro

    from ..curiosity import AbstractCuriosity
    from ..envs import AbstractAnyTask
    from ..experiments.registry import ATARI, GYMNASIUM, METHODS, TASKS, find_method, load_class
    from ..experiments.spec import Experiment, resolve
    from ..testing import checks_of_task, method_checks

    def of_task(name: str) -> Iterator[tuple[str, Callable[[], None]]]:
        return checks_of_task(resolve(Experiment(name, "random")).setup.task)

    field = (
        "name",
        Annotated[
            tyro.conf.Positional[str], tyro.conf.arg(help="module:Class, or a name of `curiax list`", metavar="NAME")
        ],
    )
    kind = dataclasses.make_dataclass("Check", [field], frozen=True)
    options = parse(kind, args, "check", "Run the contract suite on a method or a task.")
    if options.name in METHODS:
        entry = METHODS[options.name]
        checks = method_checks(entry.method, **{key.removeprefix("method."): v for key, v in entry.settings.items()})
    elif options.name in TASKS or options.name.startswith((GYMNASIUM, ATARI)):
        checks = of_task(options.name)
    else:
        cls = load_class(options.name, "method or task", {**METHODS, **TASKS})
        if isinstance(cls, type) and issubclass(cls, AbstractCuriosity):
            checks = method_checks(find_method(cls).method)
        elif isinstance(cls, type) and issubclass(cls, AbstractAnyTask):
            checks = of_task(options.name)
        else:
            raise UsageError(
                f"{options.name!r} is neither a curiax.AbstractCuriosity nor a curiax.AbstractTask or AbstractHostTask."
            )
    passed = 0
    try:
        for sentence, check in checks:
            check()
            passed += 1
            print(f"  ok    {clean(sentence, None)}", flush=True)
    except CuriaxError as error:
        print(f"  FAIL  {clean(str(error), None)}\n{clean(options.name)}: {passed} checks passed, then one failed")
        return 1
    print(f"{clean(options.name)}: all {passed} checks passed")
    return 0
