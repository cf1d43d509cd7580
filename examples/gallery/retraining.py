# SPDX-License-Identifier: Apache-2.0
"""
What retraining means
=====================

"As if retrained" is only clear once it is said what stays fixed. Under "mean" the
penalty alpha stays; under "sum" its weight against all rows together does, as with
scikit-learn's ``C``. The two targets part as more people leave, and each removal
arrives at its own.
"""

from typing import Literal

import matplotlib.pyplot as plt
import numpy as np

from expunge import L2, Logistic, Newton, Objective, learn
from expunge.display.plots import BLUE, ORANGE

rng = np.random.default_rng(0)
X = rng.normal(size=(500, 5))
y = np.where(X[:, 0] + rng.logistic(size=500) > 0, 1.0, -1.0)
counts = np.arange(0, 301, 20)

figure, axes = plt.subplots(figsize=(7.6, 4.0), layout="constrained")
kinds: list[tuple[str, Literal["mean", "sum"]]] = [(BLUE, "mean"), (ORANGE, "sum")]
for colour, scaling in kinds:
    objective = Objective(Logistic(), L2(), alpha=0.1, scaling=scaling)
    rows = objective.rows(X, y)
    fitted = Newton().init(learn(objective, rows))
    removed, retrained = [], []
    for count in counts:
        state = fitted
        if count:
            state = Newton().update(state, rows.take(np.arange(count)))
        removed.append(Newton().step(state)[1].theta[0])
        rest = learn(objective.after(1.0 - count / 500), rows.without(np.arange(count)))
        retrained.append(rest.anchor[0])
    axes.plot(counts, retrained, color=colour, label=f'"{scaling}", retrained')
    axes.plot(counts, removed, "x", color=colour, label=f'"{scaling}", removed')
axes.set(xlabel="people who left, of 500", ylabel="first coefficient")
axes.legend(frameon=False)
axes.grid(alpha=0.25)
