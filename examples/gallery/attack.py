# SPDX-License-Identifier: Apache-2.0
"""
An attacker who guesses
=======================

Somebody knows a person's rows and a release, and judges by the loss on these rows
whether the person is still in it. Before the removal that may work. Against a model
that was retrained it must not, whatever the attacker knows.
"""

import matplotlib.pyplot as plt
import numpy as np

from expunge import L2, Budget, Jackknife, Logistic, Objective
from expunge.audit import AuditOptions, Case, attack_membership, fit_models
from expunge.display.plots import BLUE, GREEN, ORANGE
from expunge.promise.noise import make_noise

rng = np.random.default_rng(0)
X = rng.normal(size=(100, 5))
y = np.where(X[:, 0] + rng.logistic(size=100) > 0, 1.0, -1.0)
X[0], y[0] = 2.0 * X[0], -np.sign(X[0, 0])  # a row that stands out

budget = Budget(sigma=0.02, allow_seeded=True)
objective = Objective(Logistic(), L2(), alpha=0.05)
case = Case(
    objective, objective.rows(X, y), removed=np.arange(1), mechanism=Jackknife()
)
options = AuditOptions(budget, make_noise(budget, random_state=0))
models = fit_models(case, budget)
person = case.rows.take(case.removed)
findings = {
    "with the person, or retrained": attack_membership(
        models.presence, objective, person=person, options=options
    ),
    "removed, or retrained": attack_membership(
        models.worlds, objective, person=person, options=options
    ),
}

# %%
# What the certificate covers is the second line. The first is why copies of the release
# before should be withdrawn.

figure, axes = plt.subplots(figsize=(7.6, 2.8), layout="constrained")
for place, (colour, (name, found)) in enumerate(
    zip((ORANGE, BLUE), findings.items(), strict=True)
):
    spread = [[found.advantage - found.low], [found.high - found.advantage]]
    axes.errorbar(found.advantage, place, xerr=spread, fmt="o", color=colour, capsize=4)
    print(f"{name}: {found.low:.3f} to {found.high:.3f}")
axes.axvline(found.covered, color=GREEN, label="the most that the budget leaves")
axes.set_yticks(range(2), labels=list(findings))
axes.set(ylim=(1.6, -0.6), xlabel="advantage over guessing: 0 is none, 1 is knowing")
axes.legend(frameon=False, loc="upper left")
axes.grid(axis="x", alpha=0.25)
