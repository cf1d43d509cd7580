# SPDX-License-Identifier: Apache-2.0
"""Extractor: a small network trained with differential privacy, then frozen.

The setting of Guo et al., "Certified Data Removal from Machine Learning Models",
ICML 2020: features from a network whose training was private, a convex head on top.
Training is DP-SGD (Abadi et al., CCS 2016) by Opacus: Poisson batches, every row's
gradient clipped, Gaussian noise.

The noise here is seeded, so that a benchmark repeats itself, and floating-point.
Opacus's ``secure_mode`` wants torchcsprng, whose last release is for torch 1.8: where
it matters, build that from source. The epsilon is the accountant's, for ideal
noise that nobody can draw again. Torch and Opacus are loaded when features are
asked for.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from expunge.exceptions import MissingExtra
from expunge.promise.group import Spent

from ..data import Dataset
from .grey import standardise, unit_rows
from .kinds import Features
from .svhn import Digits

# What Opacus and torch say about every run of this kind. The first is answered in the
# module's docstring; the second is about inputs that want no gradient; the third
# is about orders that only bound the range the accountant integrates over.
EXPECTED = (
    "Secure RNG turned off",
    "Full backward hook is firing",
    "Optimal order is the largest alpha",
)
# The accountant's own error in epsilon; it returns the upper end.
EPSILON_ERROR = 0.002


@dataclass(frozen=True, slots=True)
class Extractor:
    """A convolutional network and how it is trained on 3 vs 8.

    Convolution 1 to 8, 5 x 5, stride 2; modulus; convolution 8 to 16, 3 x 3, stride
    2; tanh; mean over 2 x 2: (16, 4, 4), so 256 features. A linear head is trained
    along with it and then thrown away.

    The sampling rate is 1 over the batches in a pass, read off the number of rows:
    that number counts as public, and a retraining on fewer rows is supposed to use
    the same rate and the same number of steps. Repeats itself on one machine: one
    thread, seeded weights, batches and noise.

    Parameters
    ----------
    epochs
        Passes over the training rows; with 0 the network never sees them.
    batch
        Expected rows in a Poisson batch.
    noise_multiplier
        Deviation of the noise in units of ``clip``. With the other defaults 14 is
        worth an epsilon just below 0.1 on 13542 rows.
    delta
        The delta at which epsilon is reported.
    seed
        Zero or positive.
    """

    requires: ClassVar[tuple[str, ...]] = ("torch", "opacus")
    clip: ClassVar[float] = 0.5
    rate: ClassVar[float] = 0.1
    momentum: ClassVar[float] = 0.9

    epochs: int = 5
    batch: int = 512
    noise_multiplier: float = 14.0
    delta: float = 1e-5
    seed: int = 0

    @classmethod
    def untrained(cls, seed: int = 0) -> "Extractor":
        """Return the same network with its first weights, which never saw the data."""
        return cls(epochs=0, seed=seed)

    def __call__(self, digits: Digits) -> Features:
        """Return the features of both parts, and what training cost a row."""
        torch = _load("torch")
        of_weights, of_batches, of_noise = self._seeds()
        with _repeatable(torch, of_weights):
            network, spent = _network(torch), None
            if self.epochs:
                loader = self._loader(torch, digits, of_batches)
                noise = torch.Generator().manual_seed(of_noise)
                spent = self._train(network, loader, noise)
            rows = [
                _features(torch, network, images)
                for images in (digits.train_images, digits.test_images)
            ]
        return Features(
            Dataset(rows[0], digits.train_labels),
            Dataset(rows[1], digits.test_labels),
            spent,
        )

    def _seeds(self) -> list[int]:
        """Return independent seeds for the weights, the batches and the noise."""
        return [int(s) for s in np.random.SeedSequence(self.seed).generate_state(3)]

    def _loader(self, torch: Any, digits: Digits, seed: int) -> Any:
        """Return the training rows in batches of the expected size."""
        images = _tensor(torch, digits.train_images)
        labels = torch.from_numpy(digits.train_labels.astype(np.float32))
        return torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(images, labels),
            batch_size=self.batch,
            generator=torch.Generator().manual_seed(seed),
        )

    def _train(self, network: Any, loader: Any, noise: Any) -> Spent:
        """Train the network where it is, and return what that cost one row."""
        torch, opacus = _load("torch"), _load("opacus")
        with warnings.catch_warnings():
            for message in EXPECTED:
                warnings.filterwarnings("ignore", message)
            # The RDP accountant has no order large enough for so small an epsilon.
            engine = opacus.PrivacyEngine(accountant="prv")
            private, optimiser, batches = engine.make_private(
                module=network,
                optimizer=torch.optim.SGD(
                    network.parameters(), lr=self.rate, momentum=self.momentum
                ),
                data_loader=loader,
                noise_multiplier=self.noise_multiplier,
                max_grad_norm=self.clip,
                noise_generator=noise,
            )
            for _ in range(self.epochs):
                for images, labels in batches:
                    optimiser.zero_grad()
                    margins = labels * private(images)[:, 0]
                    torch.nn.functional.softplus(-margins).mean().backward()
                    optimiser.step()
            epsilon = engine.accountant.get_epsilon(self.delta, eps_error=EPSILON_ERROR)
        return Spent(float(epsilon), self.delta)


def _load(name: str) -> Any:
    """Return a library, or say how to get it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"the extractor needs {name}, which is not installed; run "
            "`pip install --group deep` from a checkout, or use features that need no "
            "training"
        ) from error


@contextmanager
def _repeatable(torch: Any, seed: int) -> Iterator[None]:
    """Seed torch and keep it to one thread; leave it as it was found."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _network(torch: Any) -> Any:
    """Return the network with fresh weights, its linear head last."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 8, kernel_size=5, stride=2, padding=2),
        nn.LeakyReLU(-1.0),  # slope -1 below 0 and 1 above: the modulus
        nn.Conv2d(8, 16, kernel_size=3, stride=2, padding=1),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 1),
    )


def _tensor(torch: Any, images: NDArray[np.uint8]) -> Any:
    """Return the standardised grey images, (n, 1, height, width)."""
    return torch.from_numpy(standardise(images)[:, None])


def _features(torch: Any, network: Any, images: NDArray[np.uint8]) -> Any:
    """Return one unit row an image: what the head would be given."""
    with torch.no_grad():
        return unit_rows(network[:-1](_tensor(torch, images)).numpy())
