# SPDX-License-Identifier: Apache-2.0
"""What stands apart may be missing: everything else works without it."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from expunge import LogisticRegression, read_shipped
from expunge.registry import Registry
from tests.house import APART


def use_the_rest(folder: Path) -> None:
    """Fit, forget, ship and restore where nothing that stands apart can be imported."""
    for name in APART:
        assert name not in sys.modules, "it was imported though nobody asked"
        sys.modules[name] = None  # type: ignore[assignment]
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    people = [f"person {i}" for i in range(60)]
    model = LogisticRegression()
    at = folder / "registry"
    with Registry.create(at) as registry:
        registry.fit("churn", model, X, y, subjects=people)
    shutil.copytree(at, folder / "backup")
    with Registry.open(at) as registry:
        registry.forget(people[:2])
    with Registry.restore(at, folder / "backup") as registry:
        registry.models.refit("churn", model, X[5:], y[5:], subjects=people[5:])
        registry.models.ship("churn", folder / "churn.safetensors")
        with pytest.raises(ImportError, match="onnx"):
            registry.models.ship("churn", folder / "churn.onnx")
        with pytest.raises(ImportError, match="lake"):
            registry.lake.status("churn")
    assert read_shipped(folder / "churn.safetensors").n_features_in_ == 3
    assert [sys.modules[name] for name in APART] == [None] * len(APART)


def test_the_rest_works_without(tmp_path: Path) -> None:
    story = (
        "import sys; from tests.test_apart import *; use_the_rest(Path(sys.argv[1]))"
    )
    command = (sys.executable, "-c", story, str(tmp_path))
    subprocess.run(command, cwd=Path(__file__).parents[1], check=True)
