"""What golden values need beyond `from mfdl import ...`, and where it is now: the one page to change when modules move."""
from mfdl.learning.data import Batches as Batches
from mfdl.learning.data import Dataset as Dataset
from mfdl.learning.methods.noise_supply import Run as Run
from mfdl.learning.methods.noise_supply import noise_sources as noise_sources
from mfdl.learning.simulator import Simulation as Simulation
from mfdl.noise.covariance import COVARIANCE_METHODS as COVARIANCE_METHODS
from mfdl.noise.methods.strategies import STRATEGIES as STRATEGIES
from mfdl.protocol.methods.steps import FEATURES as FEATURES
from mfdl.protocol.methods.streams import NodeNoise as NodeNoise
from mfdl.protocol.methods.streams import deal_seeds as deal_seeds
from mfdl.tools.experiments import reproduce as reproduce
