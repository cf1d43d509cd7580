# SPDX-License-Identifier: Apache-2.0
"""
The scaler forgets too
======================

Most models scale their columns first, by means and deviations of everybody. If the
scaler stays when somebody leaves, a part of them stays with it, and a rich customer's
part is large. Given as ``preprocessing=``, it forgets with the model.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import StandardScaler

from expunge import Budget, LogisticRegression
from expunge.display.plots import BLUE, ORANGE, show_shares

rng = np.random.default_rng(0)
spent = rng.lognormal(4.0, 0.7, 400)[:, None]
bought = (spent[:, 0] + rng.normal(0.0, 30.0, 400) > 60.0).astype(int)
spent[0], bought[0] = 20_000.0, 1
people = [f"customer {i}" for i in range(400)]

# %%
# Once with a scaler outside the model, once with one inside, and the oracle: both
# fitted again without the customer.

outside = StandardScaler().fit(spent)
half = LogisticRegression(alpha=1e-2, budget=Budget())
half.fit(outside.transform(spent), bought, subjects=people).forget(["customer 0"])

whole = LogisticRegression(alpha=1e-2, preprocessing=StandardScaler(), budget=Budget())
whole.fit(spent, bought, subjects=people).forget(["customer 0"])

oracle = LogisticRegression(alpha=1e-2, preprocessing=StandardScaler(), budget=Budget())
oracle.fit(spent[1:], bought[1:], subjects=people[1:])

grid = np.linspace(0.0, 300.0, 200)[:, None]
curves = {
    "scaler outside": half.predict_proba(outside.transform(grid))[:, 1],
    "scaler inside": whole.predict_proba(grid)[:, 1],
}
wanted = oracle.predict_proba(grid)[:, 1]
figure, axes = plt.subplots(figsize=(7.6, 4.0), layout="constrained")
axes.plot(grid, wanted, color="lightgrey", linewidth=6, label="retrained")
for colour, (name, curve) in zip((ORANGE, BLUE), curves.items(), strict=True):
    axes.plot(grid, curve, color=colour, label=name)
    print(f"{name}: at most {np.abs(curve - wanted).max():.1e} from retraining")
axes.set(xlabel="spent", ylabel="chance to buy again", xlim=(0, 300))
show_shares(axes.yaxis)
axes.legend(frameon=False)
axes.grid(alpha=0.25)
