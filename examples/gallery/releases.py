# SPDX-License-Identifier: Apache-2.0
"""
One promise, or one for all releases
====================================

``Budget()`` promises (epsilon, delta) for each release on its own.
``Budget(releases=12)`` promises it for twelve together: each then has room for less,
and the thirteenth is refused. Here is what is spent as releases are made.
"""

import matplotlib.pyplot as plt

from expunge import Budget
from expunge.display.plots import BLUE, ORANGE
from expunge.promise.accountant import Accountant, Fitted, Removed, release_event

budget = Budget(epsilon=1.0, delta=1e-5, sigma=0.1, releases=12)
release = release_event(budget, "secure")
account = Accountant(budget).compose(Fitted(n_parameters=30))
spent = []
for _ in range(12):
    account = account.compose(release)
    spent.append(account.spent(delta=1e-5))
    account = account.compose(Removed(n_subjects=1))

# %%
# The squares of what each release costs add up, so that the first ones look dear.

figure, axes = plt.subplots(figsize=(7.6, 4.0), layout="constrained")
axes.step(range(1, 13), spent, where="post", color=BLUE, label="spent together")
axes.axhline(1.0, color=ORANGE, label="what was promised")
axes.set(xlabel="releases", ylabel="epsilon at delta 1e-5", ylim=(0.0, 1.1))
axes.legend(frameon=False)
axes.grid(alpha=0.25)

for count in (None, 12, 100):
    room = Budget(sigma=0.1, releases=count).radius_budget(30)
    print(f"releases={count}: an answer may be {room:.4f} from retraining")
