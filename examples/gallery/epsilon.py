# SPDX-License-Identifier: Apache-2.0
"""
Epsilon as a chance of guessing right
=====================================

Somebody looks at a release and asks: was it made after a removal, or did they retrain
without the person? Before looking they thought 50:50. How often can they be right?
"""

import matplotlib.pyplot as plt
import numpy as np

from expunge import Budget
from expunge.display.plots import BLUE, ORANGE, show_shares
from expunge.promise.budget import guess_of

epsilons = np.linspace(0.0, 4.0, 81)
delta = 1e-5

# %%
# Anything that satisfies (epsilon, delta) obeys the upper line; it is the figure that
# certificates, receipts and letters state. The noise of a release is Gaussian, which
# leaves still less: that is the lower line.

certified = (1.0 + delta * np.exp(-epsilons)) / (1.0 + np.exp(-epsilons))
gaussian = [guess_of(Budget(epsilon=each, delta=delta).gdp) for each in epsilons]

figure, axes = plt.subplots(figsize=(7.6, 4.3), layout="constrained")
axes.plot(epsilons, certified, color=BLUE, label="what the certificate says, at most")
axes.plot(epsilons, gaussian, color=ORANGE, label="what Gaussian noise leaves")
axes.axhline(0.5, color="grey", linewidth=0.8)
axes.text(3.98, 0.505, "tossing a coin", ha="right", color="grey")
axes.annotate(
    "epsilon 1: 73 %",
    (1.0, certified[20]),
    (1.4, 0.66),
    arrowprops={"arrowstyle": "->", "color": "grey"},
)
axes.set(xlabel="epsilon", ylabel="how often the guess is right", xlim=(0, 4))
axes.set_ylim(0.45, 1.0)
show_shares(axes.yaxis)
axes.legend(frameon=False)
axes.grid(alpha=0.25)
