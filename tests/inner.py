"""What golden values need beyond `from mfdl import ...`, and where it is now: the one page to change when modules move."""
from mfdl.language.steps import FEATURES as FEATURES
from mfdl.language.streams import NodeNoise as NodeNoise
from mfdl.language.streams import deal_seeds as deal_seeds
from mfdl.learning.data import Batches as Batches
from mfdl.learning.data import Dataset as Dataset
from mfdl.learning.noise_sources import Run as Run
from mfdl.learning.noise_sources import noise_sources as noise_sources
from mfdl.learning.simulator import Simulation as Simulation
from mfdl.noise.covariance import COVARIANCE_METHODS as COVARIANCE_METHODS
from mfdl.noise.strategies import STRATEGIES as STRATEGIES
from mfdl.workshop.experiments import reproduce as reproduce
