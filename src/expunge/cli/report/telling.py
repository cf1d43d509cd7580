# SPDX-License-Identifier: Apache-2.0
"""Telling: the acts in their order, with a line for each as it happens."""

import platform
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import TypeAlias

from ...registry import Registry
from . import words
from .acts import (
    ALPHA,
    Scene,
    fitted,
    foreseen,
    lived,
    opened,
    papers,
    proved,
    shipped,
    standing,
)
from .people import People, patients
from .values import Machine, Setting, Stage, Step, Story

LIBRARIES = ("expunge", "numpy", "scipy", "scikit-learn")

Watch: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Script:
    """Which seed decides who asks, how many of them alone, how many together."""

    seed: int = 0
    n_alone: int = 100
    n_batch: int = 50


@dataclass(frozen=True, slots=True)
class Voice:
    """How to say something under a heading, and how to show progress."""

    say: Callable[[str, str], None]
    progress: Callable[[str], AbstractContextManager[Watch]]


def told(folder: Path, script: Script, voice: Voice) -> Story:
    """Play the demonstration in a folder, and return what was measured.

    Parameters
    ----------
    folder
        An empty one; registry, release, papers and forgeries are left in it.
    script, voice
        What to play, and how to speak of it.
    """
    clock = perf_counter()
    people = patients()
    asking = people.asking(script.seed, script.n_alone + script.n_batch)
    with Registry.create(folder / "registry") as registry:
        scene = fitted(registry, people)
        setting = _set(people, script)
        voice.say("People", words.people(setting))
        (model,) = registry.status().models
        voice.say("Contract", words.promise(model.certificate))
        outlook = foreseen(registry)
        voice.say("Plan", words.plan(outlook))
        with voice.progress("forgetting") as watch:
            one_by_one = _alone(scene, asking, script.n_alone, watch)
            scene, answer = one_by_one.scene.after(*asking[script.n_alone :])
            watch(len(asking), len(asking))
        given = papers(registry, answer)
        given.written(folder)
        (model,) = registry.status().models
        story = Story(
            setting=setting,
            outlook=outlook,
            certificate=model.certificate,
            steps=one_by_one.steps,
            batch=scene.measured(),
            n_batch=script.n_batch,
            life=one_by_one.life,
            shipped=shipped(registry, folder),
            opened=opened(given),
            forgeries=given.forgeries(),
            tree=proved(registry, given),
            n_entries=registry.status().ledger_size,
            n_receipts=standing(registry, (*one_by_one.requests, *answer.requests)),
            machine=machine(),
            seconds=perf_counter() - clock,
        )
    for heading, line in words.outcome(story):
        voice.say(heading, line)
    return story


@dataclass(frozen=True, slots=True)
class _Alone:
    """What came of the requests that were answered one by one."""

    scene: Scene
    steps: tuple[Step, ...]
    requests: tuple[str, ...]
    life: tuple[Stage, ...]


def _alone(scene: Scene, asking: list[int], n_alone: int, watch: Watch) -> _Alone:
    """Forget people one by one; follow the last of them from asking to the receipt."""
    steps = [scene.measured()]
    requests: list[str] = []
    life: tuple[Stage, ...] = ()
    for done, place in enumerate(asking[:n_alone], start=1):
        scene, answer = scene.after(place)
        if done == n_alone:
            life = lived(scene.registry, answer)
        steps.append(scene.measured())
        requests += answer.requests
        watch(done, len(asking))
    return _Alone(scene, tuple(steps), tuple(requests), life)


def _set(people: People, script: Script) -> Setting:
    """Return the setting in figures."""
    n_people, n_features = people.X.shape
    return Setting(n_people, len(people.others), n_features, ALPHA, script.seed)


def machine() -> Machine:
    """Return where this runs."""
    versions = [(name, version(name)) for name in LIBRARIES]
    python = ("Python", platform.python_version())
    return Machine(_processor(), platform.system(), (python, *versions))


def _processor() -> str:
    """Return the processor's name, from the kernel where it tells."""
    told_by = Path("/proc/cpuinfo")
    if told_by.is_file():
        for line in told_by.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
