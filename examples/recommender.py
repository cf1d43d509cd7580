# SPDX-License-Identifier: Apache-2.0
"""A recommender that forgets its users, and what that costs its quality.

    python examples/recommender.py

Interactions are generated: users of eight tastes take 12 of 300 films, most of them
popular, two in three of their taste. One film of each user is held out; a hit is a list
of ten that has it. Then 40 users in a hundred leave, in ten requests, and the model is
compared with one that never saw them.
"""

import numpy as np
from numpy.typing import NDArray

from expunge import EASE, Popularity, verify

N_USERS, N_FILMS, N_TASTES, TAKEN, LEAVE = 600, 300, 8, 12, 0.4


def draw(rng: np.random.Generator) -> dict[str, list[str]]:
    """Return the films of each user, in no order."""
    popular = (np.arange(N_FILMS) + 10.0) ** -0.8
    taste_of_film = rng.integers(0, N_TASTES, N_FILMS)
    taken: dict[str, list[str]] = {}
    for user in range(N_USERS):
        liked = taste_of_film == rng.integers(0, N_TASTES)
        share = popular * np.where(liked, 2.0 * (N_TASTES - 1), 1.0)
        films = rng.choice(N_FILMS, TAKEN, replace=False, p=share / share.sum())
        taken[f"user {user}"] = [f"film {film}" for film in films]
    return taken


def hit_rate(model: EASE | Popularity, taken: dict[str, list[str]]) -> float:
    """Return in how many lists of ten the film is that was held out."""
    hits = [films[0] in model.recommend(films[1:], k=10) for films in taken.values()]
    return float(np.mean(hits))


def pairs(taken: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Return users with their films, but those that are held out."""
    return [(user, film) for user, films in taken.items() for film in films[1:]]


def main() -> None:
    """Fit, score, forget, score again, and compare with a fit without the leavers."""
    rng = np.random.default_rng(7)
    taken = draw(rng)
    model = EASE(l2=50).fit(pairs(taken))
    popular = Popularity().fit(pairs(taken))
    names: NDArray[np.str_] = rng.permutation(list(taken))
    gone = names[: int(LEAVE * N_USERS)]
    left = {user: taken[user] for user in taken if user not in {*gone.tolist()}}
    print(f"{len(taken)} users, {len(model.items_)} films")
    print(f"hits in ten, EASE before:       {hit_rate(model, left):.3f}")
    print(f"hits in ten, most popular:      {hit_rate(popular, left):.3f}")
    for batch in np.array_split(gone, 10):
        model.forget(batch.tolist())
    print(f"hits in ten, EASE after:        {hit_rate(model, left):.3f}")
    fresh = EASE(l2=50).fit(pairs(left))
    print(f"hits in ten, EASE without them: {hit_rate(fresh, left):.3f}")
    same = all(
        (model.similar_items(film) == fresh.similar_items(film)).all()
        for film in fresh.items_
    )
    print(f"{len(gone)} users left; every list equals that of the other: {same}")
    assert same and hit_rate(model, left) > hit_rate(popular, left)
    assert verify(model.certificate_, model.record_).valid
    assert model.check_release().valid
    print(model.certificate_.state_promise())


if __name__ == "__main__":
    main()
