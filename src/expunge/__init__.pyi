# SPDX-License-Identifier: Apache-2.0
"""The public names and where each lives; ``__init__`` imports them when asked."""

from .adopt import from_sklearn as from_sklearn
from .core.check_loss import check_loss as check_loss
from .core.losses import Curvature as Curvature
from .core.losses import Gamma as Gamma
from .core.losses import HalfSquared as HalfSquared
from .core.losses import Huber as Huber
from .core.losses import Logistic as Logistic
from .core.losses import Loss as Loss
from .core.losses import Multinomial as Multinomial
from .core.losses import NegativeBinomial as NegativeBinomial
from .core.losses import OneVsRest as OneVsRest
from .core.losses import Pinball as Pinball
from .core.losses import Poisson as Poisson
from .core.losses import SquaredHinge as SquaredHinge
from .core.losses import Tweedie as Tweedie
from .core.objective import Objective as Objective
from .core.penalties import L1 as L1
from .core.penalties import L2 as L2
from .core.penalties import ElasticNet as ElasticNet
from .core.penalties import GroupLasso as GroupLasso
from .core.penalties import NuclearNorm as NuclearNorm
from .core.rows import Rows as Rows
from .core.values import stored as stored
from .exceptions import ExpungeError as ExpungeError
from .linear_model import EmbeddingClassifier as EmbeddingClassifier
from .linear_model import GammaRegressor as GammaRegressor
from .linear_model import LinearRegression as LinearRegression
from .linear_model import LogisticRegression as LogisticRegression
from .linear_model import NegativeBinomialRegressor as NegativeBinomialRegressor
from .linear_model import PiecewiseExponential as PiecewiseExponential
from .linear_model import PoissonRegressor as PoissonRegressor
from .linear_model import QuantileRegressor as QuantileRegressor
from .linear_model import SoftmaxRegression as SoftmaxRegression
from .linear_model import TunedClassifier as TunedClassifier
from .linear_model import TunedRegressor as TunedRegressor
from .linear_model import TweedieRegressor as TweedieRegressor
from .linear_model.comparison import compare_releases as compare_releases
from .linear_model.fitting import load as load
from .linear_model.fitting import read_shipped as read_shipped
from .linear_model.fitting import ship as ship
from .plan import advise as advise
from .preprocessing.description import Automatic as Automatic
from .preprocessing.description import Bins as Bins
from .preprocessing.description import DatePart as DatePart
from .preprocessing.embedding_cache import EmbeddingCache as EmbeddingCache
from .preprocessing.encoder import Encoder as Encoder
from .preprocessing.encoder import check_encoder as check_encoder
from .preprocessing.fixed_map import FixedMap as FixedMap
from .preprocessing.pairs import Pair as Pair
from .promise.budget import Budget as Budget
from .promise.certificate import Certificate as Certificate
from .promise.verification import Record as Record
from .promise.verification import verify as verify
from .removal import Jackknife as Jackknife
from .removal import MatrixFree as MatrixFree
from .removal import Newton as Newton
from .removal import Retrain as Retrain
from .removal import State as State
from .removal import Sums as Sums
from .removal import residual as residual
from .removal.retrain import learn as learn
from .removal.state import summarise as summarise

__version__: str
__all__: list[str]
