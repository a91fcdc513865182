"""Tables of what is kept in `results/` but was not trained by `curiax reproduce`: writes `results/others.md`.

Those are the examples with an agent of one's own (`scripts/bonus_examples.py`), the runs with Stable-Baselines3, and
the variance of digits (`scripts/mnist_variance.py`). The documents show the sections, by their headings.
"""

from __future__ import annotations

import json
from pathlib import Path

from curiax._text import markdown_table

RESULTS = Path(__file__).parent.parent / "results"
EXAMPLES = ("bonus_gymnasium_loop", "bonus_cleanrl_style", "bonus_sb3_own_method")


def sb3(results: Path) -> str:
    """Who reached the flag of the sparse Mountain Car in Stable-Baselines3, and when."""
    found = json.loads((results / "sb3-mountain-car.json").read_text())
    names, seeds = list(found["results"]), [row["seed"] for row in found["results"]["ppo"]]
    lines = []
    for k, seed in enumerate(seeds):
        rows = [found["results"][name][k] for name in names]
        firsts = ["never" if row["first_reached"] is None else f"{row['first_reached']:,}" for row in rows]
        late = [f"{row['share_of_last_episodes']:.0%}".replace("%", " %") for row in rows]
        lines.append([str(seed), *(f"{first}; {share}" for first, share in zip(firsts, late, strict=True))])
    versions = ", ".join(f"{name} {found['versions'][name]}" for name in ("stable-baselines3", "torch", "jax"))
    chosen = json.loads((results / "sb3-mountain-car-chosen.json").read_text())
    with_, without = (
        sum(row["first_reached"] is not None for row in chosen["results"][name]) for name in ("ppo with lbs", "ppo")
    )
    count, usual = len(chosen["results"]["ppo"]), chosen["tried"][0]["reached"]
    return (
        f"{markdown_table(['seed', *names], lines)}\n\n"
        f"The step at which the flag was first reached, of {found['steps']:,}, and "
        "the share of episodes in the last tenth of training that reached it. Made once, on seeds that nothing was "
        f"chosen on, by `{found['command']}` with {versions}.\n\nDo not take the middle column for a law. The settings "
        "were chosen on the seeds 0 to 9 so that PPO alone learns nothing where nothing is paid, and LBS still gets "
        f"there; {len(chosen['tried'])} others were tried, some on a few seeds only. With those that were chosen "
        f"{with_} of these {count} seeds reached the flag with LBS, and {without} without. With advantages normalised "
        f"(as is usual), an entropy bonus and PPO's usual Adam it was {usual['ppo with lbs']} with LBS, and "
        f"{usual['ppo']} without. All are in `results/sb3-mountain-car-chosen.json`."
    )


def example(name: str, results: Path) -> str:
    """How far an example's agent came with and without bonus, on each of its seeds."""
    kept_runs = json.loads((results / "bonus-examples.json").read_text())
    found, notes, machine = kept_runs["examples"][name], kept_runs["notes"][name], kept_runs["machine"]
    rows, titles = found["results"], list(found["results"][0]["agents"])
    lines = []
    for row in rows:
        agents = [row["agents"][title] for title in titles]
        lines.append([str(row["seed"]), *(f"{one['bins']}; {one['flags']} of {one['episodes']}" for one in agents)])
    others = [
        f"with `XLA_FLAGS='{row['XLA_FLAGS']}'` seed {row['seed']} saw {one['bins']} bins {titles[1]}, and reached the "
        f"flag in {one['flags']} of {one['episodes']} episodes"
        for row in found.get("compiled_otherwise", [])
        for one in [row["agents"][titles[1]]]
    ]
    compiled = f" Compiled otherwise, which changes last bits only: {'; '.join(others)}." if others else ""
    earlier = notes["earlier"]
    now = {title: {key: [row["agents"][title][key] for row in rows] for key in earlier[title]} for title in titles}
    same = earlier["seeds"] == [row["seed"] for row in rows] and all(now[title] == earlier[title] for title in titles)
    seen = "the same" if same else f"{', '.join(map(str, earlier[titles[1]]['bins']))} bins {titles[1]}"
    return (
        f"{markdown_table(['seed', *titles], lines)}\n\n"
        f"Of {rows[0]['agents'][titles[0]]['bins_in_all']} bins of position and "
        f"velocity those visited, and the episodes that reached the flag. The settings were {notes['settings']}; "
        f"nothing was chosen on the seeds from 200 on. `{found['command']}`, with {machine['cores']} cores to use; "
        f"both trainings together took {max(row['cpu_seconds'] for row in rows):.0f} s of CPU at most.{compiled}\n\n"
        f"Made by `{machine['command']}` at commit {machine['commit'][:7]}, kept in `results/bonus-examples.json`. "
        f"An earlier run of these seeds, pinned to one core and before the last changes to `Bonus`, saw {seen} "
        "(`earlier` in the notes of that file, which are written by hand)."
    )


def mnist_variance(results: Path) -> str:
    """What LBS would encode of each kind of transition on Noisy MNIST at its best, for some β."""
    data = json.loads((results / "mnist-variance.json").read_text())
    lines = []
    for pixels, features in zip(data["pixels"]["nats"], data["features"]["nats"], strict=True):
        cells = [f"{pixels['beta']:g}"]
        for row in (pixels, features):
            first, second = row["1 → 2…9"], row["0 → 1"]
            ratio = f"{first / second:.2f}" if second > 0.01 else "nothing is encoded"
            cells += [f"{first:.2f}", f"{second:.2f}", ratio]
        lines.append(cells)
    head = ["β", *(f"{name}: {what}" for name in ("pixels", "features") for what in ("1 → 2…9", "0 → 1", "ratio"))]
    largest = {name: max(data[name]["largest_variance"].values()) for name in ("pixels", "features")}
    return (
        markdown_table(head, lines) + "\n\nIn nats, from the pictures alone. The largest variance of a direction is "
        f"{largest['pixels']:.1f} for pixels and {largest['features']:.1f} for standardised features (mean of "
        f"{data['features']['networks']} random networks). `{data['command']}`"
    )


def page(results: Path) -> str:
    """All of them."""
    parts = ["# Other measurements", "Written by `scripts/other_tables.py` from the files beside it."]
    parts += ["## Stable-Baselines3", sb3(results), "## Variance of digits", mnist_variance(results)]
    for name in EXAMPLES:
        parts += [f"## {name}", example(name, results)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    (RESULTS / "others.md").write_text(page(RESULTS))
