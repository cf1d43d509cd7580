# SPDX-License-Identifier: Apache-2.0
r"""Scattering: moduli of wavelets, smoothed and sampled; first order.

    S_{j,l}(x) = (|x * psi_{j,l}| * phi)(2^J u),    less its mean over u,

psi_{j,l} a Morlet wavelet of scale 2^j, j < J, and direction pi l / L, phi a Gaussian,
u the cells of the image (Bruna and Mallat, "Invariant Scattering Convolution Networks",
IEEE TPAMI, 2013). It never saw the data.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from ..data import Dataset
from .grey import standardise, unit_rows
from .kinds import Features
from .svhn import Digits

# Bruna and Mallat's Morlet: deviation, frequency and aspect of the finest wavelet.
DEVIATION = 0.8
FREQUENCY = 0.75 * np.pi
ASPECT = 0.5
# Pixels mirrored at each edge; a wavelet of scale 2 reaches no further in earnest.
MARGIN = 8
# Images transformed at once, which bounds the memory.
BATCH = 1024


@dataclass(frozen=True, slots=True)
class Scattering:
    """First-order scattering of grey images, each channel centred in its image.

    The moduli are positive and have much in common from image to image. Their mean
    over the image's own cells is taken off, or else that common part fills the unit
    row and a strongly regularised model sees little beside it.

    Parameters
    ----------
    scales
        Octaves of wavelets; the low-pass has the scale 2^scales.
    directions
        Directions of the half circle.
    """

    requires: ClassVar[tuple[str, ...]] = ("numpy", "scipy")

    scales: int = 2
    directions: int = 8

    def __call__(self, digits: Digits) -> Features:
        """Return the features of both parts: 1024 columns by default."""
        return Features(
            Dataset(self.rows(digits.train_images), digits.train_labels),
            Dataset(self.rows(digits.test_images), digits.test_labels),
        )

    def rows(self, images: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return one unit row an image: scales, directions, cells."""
        batches = range(0, len(images), BATCH)
        return np.concatenate(
            [self._rows(standardise(images[i : i + BATCH])) for i in batches]
        )

    def _rows(self, grey: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the rows of one batch."""
        side = grey.shape[1]
        edges = ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN))
        spectrum = fft.fft2(np.pad(grey, edges, mode="reflect"))
        smooth = low_pass(side, self.scales)
        channels = []
        for wavelet in self.wavelets(side + 2 * MARGIN):
            modulus = np.abs(fft.ifft2(spectrum * wavelet, overwrite_x=True))
            channel = smooth @ modulus @ smooth.T
            channels.append(channel - channel.mean(axis=(1, 2), keepdims=True))
        return unit_rows(np.stack(channels, axis=1))

    def wavelets(self, side: int) -> NDArray[np.complex64]:
        """Return the spectra of all wavelets, (scales x directions, side, side)."""
        angles = np.pi * np.arange(self.directions) / self.directions
        return np.stack(
            [
                morlet(side, scale, angle)
                for scale in 2.0 ** np.arange(self.scales)
                for angle in angles
            ]
        )


def morlet(side: int, scale: float, angle: float) -> NDArray[np.complex64]:
    """Return the spectrum of one Morlet wavelet on a periodic square.

    A plane wave under a Gaussian, less the multiple of that Gaussian that makes its
    sum 0, so that a flat image gives 0.
    """
    offsets = fft.fftfreq(side, 1.0 / side)
    y, x = np.meshgrid(offsets, offsets, indexing="ij")
    along = np.cos(angle) * x + np.sin(angle) * y
    beside = np.cos(angle) * y - np.sin(angle) * x
    deviation = DEVIATION * scale
    bell = np.exp(-(along**2 + (ASPECT * beside) ** 2) / (2.0 * deviation**2))
    wave = bell * np.exp(1j * FREQUENCY / scale * along)
    wave -= bell * (wave.sum() / bell.sum())
    area = 2.0 * np.pi * deviation**2 / ASPECT
    spectrum: NDArray[np.complex64] = (fft.fft2(wave) / area).astype(np.complex64)
    return spectrum


def low_pass(side: int, scales: int) -> NDArray[np.float32]:
    """Return the matrix that smooths a padded line and samples it at its cells.

    (cells, side + 2 margins); each row is a Gaussian of sum 1 about a cell's centre.
    """
    cell = 2**scales
    centres = MARGIN + np.arange(0.5 * cell - 0.5, side, cell)
    offsets = np.arange(side + 2 * MARGIN) - centres[:, None]
    bells = np.exp(-(offsets**2) / (2.0 * (DEVIATION * cell) ** 2))
    weights: NDArray[np.float32] = (bells / bells.sum(axis=1, keepdims=True)).astype(
        np.float32
    )
    return weights
