# SPDX-License-Identifier: Apache-2.0
"""
A class leaves with its last person
===================================

A label that only one person had tells that the person was there. By default classes are
learnt from the rows, so that the class goes when its last row goes.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler

from expunge import Budget, SoftmaxRegression

X, kinds = load_iris(return_X_y=True)
X = X[:, 2:]
owners = [f"garden {kind}" for kind in kinds]
model = SoftmaxRegression(alpha=1e-3, preprocessing=StandardScaler(), budget=Budget())
model.fit(X, kinds, subjects=owners)

across, up = np.meshgrid(np.linspace(0.5, 7.5, 200), np.linspace(-0.2, 2.8, 200))
points = np.column_stack([across.ravel(), up.ravel()])
figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.8), layout="constrained")
for axes, title in zip(panels, ("three gardens", "one has left"), strict=True):
    regions = model.predict(points).reshape(across.shape)
    axes.contourf(across, up, regions, levels=[-0.5, 0.5, 1.5, 2.5], alpha=0.25)
    stays = np.isin(kinds, model.classes_)
    axes.scatter(*X[stays].T, c=kinds[stays], s=9, vmin=0, vmax=2)
    axes.set(title=title, xlabel="length of petals", ylabel="width of petals")
    print(f"{title}: classes {model.classes_.tolist()}")
    if title == "three gardens":
        model.forget(["garden 0"])
