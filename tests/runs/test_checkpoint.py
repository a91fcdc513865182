"""Checkpoints: whatever happens to a run or to its files, what continues is exactly what would have been."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import corruption
import filelock
import numpy as np
import pytest
import safetensors.numpy
from common import ending
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from stopped import EVERY_BORDER, FACTS, IDENTITY, At, crash, experiment, send, steps

import curiax
from curiax._errors import BusyError, CheckpointError, Interrupted
from curiax._files import digest
from curiax._source import code
from curiax.envs import MountainCar
from curiax.experiments import folder, session
from curiax.experiments import store as storing
from curiax.experiments import writer as writing
from curiax.experiments.spec import resolve
from curiax.experiments.store import Checkpoints, HostMetrics, Snapshot
from curiax.experiments.training import Training
from curiax.experiments.writer import CheckpointWriter, initially_infinite
from curiax.train import devices

pytestmark = pytest.mark.usefixtures("compiled_once", "written_at_once")


def stop_and_continue(what: curiax.Experiment, out: Path, act: Callable[[], None], error: type[BaseException]) -> Any:
    """Run, be stopped at the fifth iteration, run again."""
    with pytest.raises(error) as caught:
        curiax.run(what, out, progress=At(5, act), options=EVERY_BORDER)
    assert not (out / "manifest.json").exists()
    return caught.value, curiax.run(what, out)


@pytest.mark.parametrize(
    ("task", "act", "error"),
    [
        ("mountain-car", crash, MemoryError),
        ("mountain-car", send(signal.SIGTERM), Interrupted),
        ("half-cheetah", send(signal.SIGTERM), Interrupted),
        ("gymnasium:CartPole-v1", crash, MemoryError),
    ],
)
def test_a_run_that_was_stopped_continues_to_the_same_bits(
    task: str, act: Callable[[], None], error: type[BaseException], tmp_path: Path
) -> None:
    what = experiment(task)
    curiax.run(what, tmp_path / "whole")
    _, again = stop_and_continue(what, tmp_path / "stopped", act, error)
    assert ending(tmp_path / "stopped") == ending(tmp_path / "whole")
    (continuation,) = again.manifest["continued"]
    assert 1 <= continuation["iteration"] <= 9
    assert sorted(path.name for path in (tmp_path / "stopped").iterdir()) == sorted(
        ["agents.json", "agents.safetensors", "manifest.json", "metrics.parquet"]
    )


@pytest.mark.parametrize("method", ["vime", "ride"])
def test_every_kind_of_method_continues_to_the_same_bits(method: str, tmp_path: Path) -> None:
    what = experiment(method=method)
    whole = curiax.run(what)
    _, again = stop_and_continue(what, tmp_path / "run", crash, MemoryError)
    assert again.manifest["digest"] == whole.manifest["digest"]
    assert again.metrics.equals(whole.metrics)


def test_a_damaged_step_is_named_and_set_aside_and_the_run_ends_as_it_would_have(
    crashed: Path, true_digest: str
) -> None:
    place = crashed / "checkpoints"
    newest, before = steps(place)[-1], steps(place)[-2]
    data = place / newest / "state.safetensors"
    corruption.flip(data, data, corruption.random.Random(0))
    with pytest.warns(
        UserWarning, match=rf"{newest} is damaged \(state.safetensors does not match its digest\).*{before} is used"
    ):
        again = curiax.run(experiment(), crashed, options=EVERY_BORDER)
    assert again.manifest["digest"] == true_digest


def test_one_damaged_metrics_file_has_a_copy_and_two_are_refused(
    crashed: Path, true_digest: str, tmp_path: Path
) -> None:
    what, place = experiment(), crashed / "checkpoints"
    shutil.copytree(crashed, tmp_path / "other")
    first = min(path.name for path in (place / "metrics").iterdir())
    (place / "metrics" / first).write_bytes(b"")
    with pytest.warns(UserWarning, match=rf"metrics/{first} was damaged or gone: it was written again"):
        assert curiax.run(what, crashed).manifest["digest"] == true_digest
    for copy in storing.COPIES:
        (tmp_path / "other" / "checkpoints" / copy / first).unlink()
    with pytest.raises(CheckpointError, match=rf"neither copy of {first} is there"):
        curiax.run(what, tmp_path / "other")


def test_with_no_sound_step_left_the_run_is_refused_and_nothing_touched(crashed: Path, tmp_path: Path) -> None:
    for path in (crashed / "checkpoints").glob("step-*/step.json"):
        path.write_bytes(path.read_bytes()[:100])
    before = corruption.contents(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"no checkpoint in .* is sound: step-\d+: step.json.*Nothing was touched"
    ):
        curiax.run(experiment(), crashed)
    after = corruption.contents(tmp_path)
    assert {name: data for name, data in after.items() if "holder" not in name} == {
        name: data for name, data in before.items() if "holder" not in name
    }


def test_another_run_in_the_folder_is_refused(crashed: Path) -> None:
    with pytest.raises(curiax.OutputError, match=r"another run, which is not finished .*differs in ppo.clip"):
        curiax.run(experiment(**{"ppo.clip": 0.1}), crashed)


def test_other_versions_are_refused_unless_drift_is_allowed(crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true = session.installed
    monkeypatch.setattr(session, "installed", lambda plan: {**true(plan), "optax": "9.9"})
    with pytest.raises(CheckpointError, match=r"optax \S+ → 9.9.*--allow-drift"):
        curiax.run(experiment(), crashed)
    found = curiax.run(experiment(), crashed, options=curiax.RunOptions(allow_drift=True))
    assert "9.9" in found.manifest["continued"][0]["drift"][0]


def test_another_version_of_a_game_is_a_drift(crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MountainCar, "notes", lambda self: {"version of the game": "another"})
    with pytest.raises(CheckpointError, match=r"\(version of the game None → another\).*--allow-drift"):
        curiax.run(experiment(), crashed)


def test_what_has_drifted_is_told_by_name() -> None:
    before = {**FACTS, "versions": {"jax": "1"}, "notes": {"version": "old"}, "code": code().digest}
    assert session.drifted(before, {"jax": "1"}, {"version": "old"}, 1) == []
    assert session.drifted(before, {"jax": "2"}, {"version": "new"}, 1) == ["jax 1 → 2", "version old → new"]
    assert session.drifted({**before, "team": 2}, {"jax": "1"}, {"version": "old"}, 1, 1) == [
        "devices of each seed 2 → 1"
    ]
    (drift,) = session.drifted({**before, "code": "0" * 32}, {"jax": "1"}, {"version": "old"}, 1)
    assert drift.startswith("Curiax's code 00000000 → ")


def test_devices_that_share_a_seed_are_made_and_kept_when_a_run_goes_on(tmp_path: Path) -> None:
    """However few cores there are then: on a CPU as many devices are made as the run was begun with."""
    what = curiax.Experiment(
        "atari:breakout",
        "rnd",
        1,
        6 * 32,
        preset="small",
        settings={
            "task.random_steps": 32,
            "loop.envs": 4,
            "loop.rollout": 8,
            "ppo.minibatch_size": 16,
            "learner.minibatch_size": 16,
        },
    )
    both = curiax.RunOptions(checkpoint_seconds=0.0, devices_per_seed=2)
    with pytest.raises(MemoryError):
        curiax.run(what, tmp_path / "run", progress=At(5, crash), options=both)
    store = Checkpoints(tmp_path / "run" / "checkpoints", resolve(what).identity, 3)
    assert store.layout() == 2
    # Continued without being told again.
    assert curiax.run(what, tmp_path / "run").manifest["devices"] == ["cpu:0+cpu:1"]


def test_fewer_devices_are_a_drift_and_the_layout_is_kept_where_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = experiment(method="rnd")
    with monkeypatch.context() as patch:
        patch.setattr(devices, "devices_for", lambda seeds, count=None: devices.jax.devices()[:1])
        with pytest.raises(MemoryError):
            curiax.run(what, tmp_path / "few", progress=At(5, crash), options=EVERY_BORDER)
        alone = curiax.run(what)
    # Begun on one device, continued where there are two: still on one.
    assert curiax.run(what, tmp_path / "few").manifest["digest"] == alone.manifest["digest"]
    # Begun on two, continued where there is one.
    with pytest.raises(MemoryError):
        curiax.run(what, tmp_path / "many", progress=At(5, crash), options=EVERY_BORDER)
    monkeypatch.setattr(devices, "devices_for", lambda seeds, count=None: devices.jax.devices()[:1])
    with pytest.raises(CheckpointError, match="devices 2 → 1"):
        curiax.run(what, tmp_path / "many")
    drifted = curiax.run(what, tmp_path / "many", options=curiax.RunOptions(allow_drift=True))
    np.testing.assert_allclose(
        drifted.metrics["bonus/mean"].to_numpy(), alone.metrics["bonus/mean"].to_numpy(), rtol=0.05
    )


def test_two_processes_on_one_folder(tmp_path: Path) -> None:
    what, out = experiment(method="random"), tmp_path / "run"
    with folder.claimed(out):
        with pytest.raises(BusyError, match=rf"another process works on this run \(process {os.getpid()} on .*--wait"):
            curiax.run(what, out)
        waiting = threading.Thread(
            target=curiax.run, args=(what, out), kwargs={"options": curiax.RunOptions(wait=True)}
        )
        waiting.start()
        time.sleep(0.3)
        assert waiting.is_alive()
    waiting.join(120)
    assert curiax.run(what, out).reused


def test_a_lock_whose_file_was_removed_while_one_waited_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the process that held it and finished the run: two more could hold two locks of the same name."""
    true, taken = filelock.FileLock.acquire, list[int]()

    def acquire(lock: Any, *rest: Any, **more: Any) -> Any:
        found = true(lock, *rest, **more)
        taken.append(1)
        if len(taken) == 1:
            Path(lock.lock_file).unlink()
        return found

    monkeypatch.setattr(filelock.FileLock, "acquire", acquire)
    with folder.claimed(tmp_path / "run") as checkpoints:
        assert (checkpoints / folder.LOCK).exists()
    assert len(taken) == 2


def test_a_claim_that_saved_nothing_leaves_nothing(tmp_path: Path) -> None:
    with folder.claimed(tmp_path / "run"):
        assert (tmp_path / "run" / "checkpoints").is_dir()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with folder.claimed(tmp_path / "mine"):
        pass
    assert list((tmp_path / "mine").iterdir()) == []


def test_only_a_few_steps_are_kept(tmp_path: Path) -> None:
    few = curiax.RunOptions(checkpoint_seconds=0.0, keep=2)
    with pytest.raises(MemoryError):
        curiax.run(experiment(method="random"), tmp_path / "run", progress=At(7, crash), options=few)
    assert len(steps(tmp_path / "run" / "checkpoints")) == 2


@given(
    st.dictionaries(
        st.text("abc./[]0é", min_size=1, max_size=6),
        st.sampled_from([np.float32, np.float64, np.int32, np.int64, np.uint8, np.uint32, np.bool_]).flatmap(
            lambda kind: arrays_of.arrays(
                kind,
                arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0),
                elements={"allow_nan": False} if np.issubdtype(kind, np.floating) else None,
            )
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=15, deadline=None)
def test_any_arrays_come_back_as_they_were(arrays: dict[str, np.ndarray]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as base:
        store = Checkpoints(Path(base), IDENTITY, 3)
        chunk = {"m": np.zeros((2, 5, 3), np.float32)}
        arrays = {**arrays, "root": np.ones(2, np.uint32)}
        store.save(Snapshot(5, arrays, FACTS), [chunk])
        fresh = Checkpoints(Path(base), IDENTITY, 3)
        found = fresh.newest(pytest.fail)
        assert found is not None
        assert found.iteration == 5
        assert found.facts == FACTS
        assert set(found.arrays) == set(arrays)
        for name, array in arrays.items():
            assert found.arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(found.arrays[name], array)
        np.testing.assert_array_equal(fresh.metrics()[0]["m"], chunk["m"])


def test_nothing_that_is_not_finite_is_ever_written(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, IDENTITY, 3)
    nan, infinite = np.array([0.0, np.nan]), np.array([np.inf, 0.0])
    begun = {"fine": np.zeros(2), "meant": infinite, "number": np.arange(3)}
    assert initially_infinite({**begun, "broken": nan, "envs.obs": infinite, "lane0.host.fleet/obs": infinite}) == {
        "meant"
    }
    writer = CheckpointWriter(store, 0.0, initially_infinite(begun))
    writer.add({"m": np.zeros((2, 1))})
    for name, value in (("fine", nan), ("fine", infinite), ("meant", nan)):
        with pytest.raises(curiax.NonFiniteError, match=f"in {name} after iteration 1: no checkpoint was written"):
            writer.save(Snapshot(1, {**begun, name: value}, {}))
    assert steps(tmp_path) == []
    writer.save(Snapshot(1, begun, {}))
    writer.wait()
    writer.close()
    assert steps(tmp_path) == ["step-000000001"]


@pytest.mark.parametrize(
    ("takes", "usual"),
    [((0.9, 0.4, 0.4, 0.7, 0.4, 0.4, 0.4), 4.0 - 2 * 0.4), ((0.01,) * 5 + (0.35,) + (0.01,) * 4, 4.0 - 0.4)],
    ids=["slow", "a disk that hesitates"],
)
def test_a_checkpoint_is_begun_early_enough_to_be_there_in_time(
    takes: tuple[float, ...], usual: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No kill costs more than the seconds that were asked for, though writing takes time, and more for the first."""
    clock = [100.0]
    monkeypatch.setattr(writing, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    left = iter(takes)
    borders: list[float] = []  # the states that are safe
    on_disk: list[float] = []

    class Slow(Checkpoints):
        def save(self, snapshot: Snapshot, parts: Sequence[HostMetrics]) -> None:
            borders.append(clock[0])
            clock[0] += next(left)
            on_disk.append(clock[0])

    writer = CheckpointWriter(Slow(tmp_path, IDENTITY, 3), 4.0)
    iteration = 0
    while len(on_disk) < len(takes):
        clock[0] += 0.05
        iteration += 1
        if writer.due:
            writer.save(Snapshot(iteration, {}, {}))
            writer.wait()
    lost = [there - before for before, there in zip([100.0, *borders], on_disk, strict=False)]
    assert max(lost) <= 4.0
    assert min(np.diff(borders)) > 2.0  # never less than half of them apart
    assert borders[-1] - borders[-2] == pytest.approx(usual, abs=0.2)  # once it is known how little it takes
    writer.close()


@pytest.mark.parametrize(("takes", "apart"), [(18.0, 18.0), (8.0, 8.0), (1.0, 13.0)])
def test_long_iterations_are_not_waited_for_twice(
    takes: float, apart: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state that is asked for comes with the next border: it is asked for one border ahead."""
    clock = [0.0]
    monkeypatch.setattr(writing, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(Checkpoints, "save", lambda *_: None)
    writer, asked, saved = CheckpointWriter(Checkpoints(tmp_path, IDENTITY, 3), 15.0), False, []
    for iteration in range(1, 60):
        clock[0] += takes
        writer.add({"m": np.zeros((2, 1))})
        if asked:
            writer.save(Snapshot(iteration, {}, {}))
            saved.append(clock[0])
        asked = writer.due
    np.testing.assert_allclose(np.diff(saved)[3:], apart, atol=1.0)
    writer.close()


def test_a_whole_step_of_another_run_is_set_aside(tmp_path: Path) -> None:
    for name, seeds, iterations in (("ours", [3, 5], 1), ("theirs", [3, 6], 2)):
        (tmp_path / name).mkdir()
        store = Checkpoints(tmp_path / name, {**IDENTITY, "seeds": seeds}, 3)
        store.save(Snapshot(iterations, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, iterations))}])
    for part in ("step-000000002", "metrics/000000000-000000002.safetensors"):
        os.replace(tmp_path / "theirs" / part, tmp_path / "ours" / part)
    messages: list[str] = []
    found = Checkpoints(tmp_path / "ours", IDENTITY, 3).newest(messages.append)
    assert found is not None
    assert found.iteration == 1
    assert "step.json belongs to another run" in messages[0]


def test_a_step_under_another_name_is_damaged(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, IDENTITY, 3)
    store.save(Snapshot(1, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, 1))}])
    os.replace(tmp_path / "step-000000001", tmp_path / "step-000000009")
    with pytest.raises(CheckpointError, match=r"step.json belongs to step-000000001"):
        store.newest(pytest.fail)


def test_a_state_that_is_none_is_damage_though_its_digest_is_right(tmp_path: Path) -> None:
    """Nor one whose size is not what was promised, which is refused before it is read."""
    Checkpoints(tmp_path, IDENTITY, 3).save(Snapshot(1, {"x": np.ones(3)}, FACTS), [{"m": np.zeros((2, 1))}])
    place, data = tmp_path / "step-000000001", b"\x08\0\0\0\0\0\0\0nonsense"
    body = json.loads((place / "step.json").read_text())["body"]
    (place / "state.safetensors").write_bytes(data)
    body["state"] |= {"bytes": len(data), "digest": digest(data)}
    (place / "step.json").write_bytes(storing.sealed(body))
    with pytest.raises(CheckpointError, match=r"state.safetensors is not what Curiax writes"):
        Checkpoints(tmp_path, IDENTITY, 3).newest(pytest.fail)
    with (place / "state.safetensors").open("ab") as file:
        file.truncate(64 << 30)  # takes no room on the disk, and would take all of the memory
    with pytest.raises(CheckpointError, match=r"state.safetensors cannot be read .*at most 16 are expected"):
        Checkpoints(tmp_path, IDENTITY, 3).newest(pytest.fail)


def test_checkpoints_of_older_versions_are_refused_with_a_sentence(tmp_path: Path) -> None:
    old = tmp_path / "run" / "checkpoints" / "step-000000001"
    (old / "arrays").mkdir(parents=True)
    (old / "step.json").write_text(json.dumps({"format": "curiax-checkpoint-2", "digest": "", "body": {}}))
    with pytest.raises(CheckpointError, match=r"of Curiax 0.4 or older, and only that version.*finish the run with it"):
        curiax.run(experiment(method="random"), tmp_path / "run")
    assert (old / "arrays").is_dir()


def test_types_that_safetensors_does_not_know_come_back(tmp_path: Path) -> None:
    half = np.asarray([1.5, -2.0, np.inf], "bfloat16")
    Checkpoints(tmp_path, IDENTITY, 3).save(Snapshot(1, {"x": half, "y": half[0]}, FACTS), [{"m": np.zeros((2, 1))}])
    found = Checkpoints(tmp_path, IDENTITY, 3).newest(pytest.fail)
    assert found is not None
    for name, array in (("x", half), ("y", half[0])):
        assert found.arrays[name].dtype == half.dtype
        np.testing.assert_array_equal(found.arrays[name], array)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("identity",), 3),
        (("facts", "layout"), "two"),
        (("facts", "layout"), 3),
        (("facts", "lost"), {"77": "not one of its seeds"}),
        (("facts", "seconds", "train"), -5.0),
        (("facts", "on_nonfinite"), ["<script>"]),
        (("iteration",), None),
        (("metrics", 0, "name"), "../../etc/passwd"),
        (("state", "bytes"), -1),
        (("state", "types"), {"x": "object"}),
        (("state", "digest"), "0"),
        (("facts", "seconds"), {"train": 1.0}),
        (("facts", "lost"), {"abc": "why"}),
        (("metrics",), []),
        (("metrics", 0, "first"), 1),
    ],
)
def test_a_forged_step_is_damaged_though_its_digest_is_right(
    place: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    store = Checkpoints(tmp_path, IDENTITY, 3)
    store.save(Snapshot(1, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, 1))}])
    path = tmp_path / "step-000000001" / "step.json"
    body = json.loads(path.read_text())["body"]
    part = body
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = value
    path.write_bytes(storing.sealed(body))
    with pytest.raises(CheckpointError, match=r"step.json is not what Curiax writes"):
        store.newest(pytest.fail)
    assert store.layout() is None


@pytest.mark.parametrize(
    ("forged", "why"),
    [
        ({"m": np.zeros((2, 1))}, "m is not of 2 seeds and 2 iterations"),
        ({"m": np.zeros((1, 2))}, "m is not of 2 seeds and 2 iterations"),
        ({"m": np.zeros(2)}, "m is not of 2 seeds and 2 iterations"),
        ({}, "is empty"),
        ({"other": np.zeros((2, 2))}, "has other metrics than those before it"),
        ({"m": np.zeros((2, 2, 3))}, "has other metrics than those before it"),
        ({"m": np.zeros((2, 2), np.float32)}, "has other metrics than those before it"),
        ({"m": np.zeros((3, 2))}, "m is not of 2 seeds and 2 iterations"),
        (None, "cannot be read"),
    ],
    ids=str,
)
def test_forged_metrics_are_damage_though_their_digest_is_right(forged: Any, why: str, tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, IDENTITY, 3)
    store.save(Snapshot(1, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, 1))}])
    store.save(Snapshot(3, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, 2))}])
    data = b"\x08\0\0\0\0\0\0\0nonsense" if forged is None else safetensors.numpy.save(forged)
    path = tmp_path / "step-000000003" / "step.json"
    body = json.loads(path.read_text())["body"]
    body["metrics"][1]["digest"] = digest(data)
    path.write_bytes(storing.sealed(body))
    for copy in storing.COPIES:
        (tmp_path / copy / body["metrics"][1]["name"]).write_bytes(data)
    messages: list[str] = []
    found = Checkpoints(tmp_path, IDENTITY, 3).newest(messages.append)
    assert found is not None
    assert found.iteration == 1
    assert why in messages[0]


def test_metrics_of_before_must_be_those_of_now(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, IDENTITY, 3)
    store.save(Snapshot(1, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, 1))}])
    store = Checkpoints(tmp_path, IDENTITY, 3)
    store.newest(pytest.fail)
    writer = CheckpointWriter(store, 0.0)
    writer.add({"m": np.zeros((2, 1))})
    with pytest.raises(CheckpointError, match=r"has other metrics than this run \(m\)"):
        writer.add({"m": np.zeros((2, 1, 3))})
    with pytest.raises(CheckpointError, match=r"has other metrics than this run \(m, n\)"):
        writer.add({"n": np.zeros((2, 1))})
    writer.close()


def test_simulators_that_do_not_fit_are_refused() -> None:
    training = Training(resolve(experiment("half-cheetah", "random")))
    try:
        whole = training.snapshot()
        facts = {**whole.facts, "lost": {}}
        for part in ("moments/mean", "moments/spread", "fleet/obs", "fleet/simulation", "fleet/record", "host.obs"):
            name = next(name for name in whole.arrays if name.endswith(part))
            array = whole.arrays[name]
            # NumPy would spread a single number over all, and convert any.
            for forged in (None, np.zeros(99), array[:1, :1], np.asarray(array.flat[0]), array.astype(np.float16)):
                arrays = {other: kept for other, kept in whole.arrays.items() if other != name}
                arrays |= {} if forged is None else {name: forged}
                with pytest.raises(CheckpointError, match="state of the simulators in the checkpoint does not fit"):
                    training.resume(Snapshot(1, arrays, facts))
        training.resume(Snapshot(1, whole.arrays, facts))
    finally:
        training.close()


def test_arrays_that_do_not_fit_are_refused() -> None:
    training = Training(resolve(experiment(method="random")))
    whole = training.snapshot()
    facts, name = {**whole.facts, "lost": {}}, next(iter(whole.arrays))
    array = whole.arrays[name]
    for forged in (array[0].ravel()[0], array[:1], np.concatenate([array, array]), array.astype(np.float16)):
        with pytest.raises(CheckpointError, match=name):
            training.resume(Snapshot(1, {**whole.arrays, name: np.asarray(forged)}, facts))
    with pytest.raises(CheckpointError, match="stranger"):
        training.resume(Snapshot(1, {**whole.arrays, "stranger": array}, facts))
    training.resume(Snapshot(1, whole.arrays, facts))


@pytest.mark.parametrize("package", ["jax", "jaxlib", "equinox", "optax", "numpy"])
def test_what_decides_the_bits_is_known(package: str) -> None:
    assert package not in session.HARMLESS
    assert session.installed(resolve(experiment()))[package]


def test_a_run_can_be_continued_with_another_choice_about_unsound_values(tmp_path: Path) -> None:
    """As the message about one advises: `drop` after `stop`; and back again."""
    what = experiment(method="random")
    for name, first, second in (("a", "stop", "drop"), ("b", "drop", "stop")):
        options = curiax.RunOptions(checkpoint_seconds=0.0, on_nonfinite=first)
        with pytest.raises(MemoryError):
            curiax.run(what, tmp_path / name, progress=At(5, crash), options=options)
        again = curiax.run(what, tmp_path / name, options=curiax.RunOptions(on_nonfinite=second))
        assert again.manifest["on_nonfinite"] == [first, second]
        with pytest.warns(UserWarning, match="was trained with --on-nonfinite .*drop"):
            assert curiax.run(what, tmp_path / name).reused


def test_a_step_whose_text_was_changed_by_hand_is_damaged(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, IDENTITY, 3)
    store.save(Snapshot(1, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, 1))}])
    path = tmp_path / "step-000000001" / "step.json"
    path.write_text(path.read_text().replace('"layout": 1', '"layout": 2'))
    with pytest.raises(CheckpointError, match=r"step.json does not match its digest"):
        store.newest(pytest.fail)


@pytest.mark.parametrize(
    ("option", "value"),
    [("checkpoint_seconds", -1.0), ("checkpoint_seconds", float("nan")), ("keep", 0)],
)
def test_options_that_make_no_sense_are_refused(option: str, value: Any) -> None:
    with pytest.raises(curiax.UsageError, match=f"{option} = "):
        curiax.RunOptions(**{option: value})
