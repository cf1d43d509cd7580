# SPDX-License-Identifier: Apache-2.0
"""What every test may ask for: chance that repeats."""

import zlib

import hypothesis
import numpy as np
import pytest

# Same examples on every run, and no deadline: two workers share two cores.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Return a generator seeded by the test's name, parameters included."""
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))
