# SPDX-License-Identifier: Apache-2.0
"""
A word that only one sender used
================================

A model of texts remembers words. Here one sender writes about a place that nobody else
mentions. Once they have left, the place means nothing to the model.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer

from expunge import Budget, LogisticRegression
from expunge.display.plots import BLUE, ORANGE

rng = np.random.default_rng(0)
wanted = "meeting report invoice lunch holiday minutes draft train".split()
unwanted = "winner prize casino pills cheap credit bonus lottery".split()
spam = rng.random(600) < 0.4
mails = [
    " ".join(rng.choice(unwanted if rng.random() < 0.7 else wanted, 8))
    if each
    else " ".join(rng.choice(wanted if rng.random() < 0.8 else unwanted, 8))
    for each in spam
]
senders = [f"sender {i // 3}" for i in range(600)]
for i in (51, 52, 53):  # sender 17
    mails[i], spam[i] = "Gondwana Gondwana lottery bonus", True

model = LogisticRegression(
    alpha=1e-4, preprocessing=HashingVectorizer(n_features=2**12), budget=Budget()
)
model.fit(mails, spam, subjects=senders)
words = ["meeting", "invoice", "lottery", "prize", "Gondwana"]
before = model.decision_function(words) - model.intercept_[0]
model.forget(["sender 17"])
after = model.decision_function(words) - model.intercept_[0]

places = np.arange(len(words))
figure, axes = plt.subplots(figsize=(7.6, 3.6), layout="constrained")
axes.barh(places - 0.19, before, 0.36, color=ORANGE, label="before")
axes.barh(places + 0.19, after, 0.36, color=BLUE, label="after sender 17 left")
axes.axvline(0.0, color="grey", linewidth=0.8)
axes.set_yticks(places, labels=words)
axes.set(xlabel="what the word says for spam")
axes.legend(frameon=False)
axes.grid(axis="x", alpha=0.25)
