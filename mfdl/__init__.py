"""Differentially private decentralized learning as matrix factorization."""

__version__ = "0.1.0"

from mfdl.accounting import account
from mfdl.training import train

__all__ = ["account", "train"]
