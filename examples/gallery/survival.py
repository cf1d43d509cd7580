# SPDX-License-Identifier: Apache-2.0
"""
Survival, beside Kaplan and Meier
=================================

A piecewise exponential model gives smooth curves of survival by treatment and age.
Patients may leave a study, and their data with them. The patients are drawn at random.
"""

import matplotlib.pyplot as plt
import numpy as np

from expunge import Budget, PiecewiseExponential
from expunge.display.plots import BLUE, ORANGE, show_shares

rng = np.random.default_rng(0)
n, months = 1500, np.linspace(0.0, 60.0, 121)
treatment, age = rng.integers(0, 2, n).astype(float), rng.normal(size=n)
event = 30.0 * (rng.exponential(size=n) / np.exp(0.4 * age - 0.7 * treatment)) ** 0.8
study = rng.uniform(12.0, 60.0, n)
X = np.column_stack([treatment, age])
y = np.column_stack([np.minimum(event, study), event <= study])
people = [f"patient {i}" for i in range(n)]

model = PiecewiseExponential(
    breaks=(6.0, 12.0, 24.0, 36.0), alpha=1e-4, budget=Budget()
)
model.fit(X, y, subjects=people)
leavers = [f"patient {i}" for i in np.flatnonzero(treatment == 0.0)[:75]]
model.forget(leavers)
stays = ~np.isin(people, leavers)


def kaplan_meier(seen: np.ndarray) -> np.ndarray:
    """Return the share without an event until each month."""
    at, counts = np.unique(seen[seen[:, 1] == 1.0, 0], return_counts=True)
    risk = len(seen) - np.searchsorted(np.sort(seen[:, 0]), at)
    left = np.append(1.0, np.cumprod(1.0 - counts / risk))
    return np.asarray(left[np.searchsorted(at, months, side="right")])


# %%
# The curves are those of the patients who stay.

figure, axes = plt.subplots(figsize=(7.6, 4.2), layout="constrained")
for colour, (name, arm) in zip(
    (ORANGE, BLUE), (("placebo", 0.0), ("treatment", 1.0)), strict=True
):
    own = stays & (treatment == arm)
    axes.step(months, kaplan_meier(y[own]), where="post", color=colour, alpha=0.4)
    smooth = model.predict_survival(X[own], months).mean(axis=0)
    axes.plot(months, smooth, color=colour, label=name)
axes.set(xlabel="months", ylabel="no event so far", ylim=(0.0, None))
show_shares(axes.yaxis)
axes.legend(frameon=False)
axes.grid(alpha=0.25)
