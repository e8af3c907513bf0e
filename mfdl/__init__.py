"""Differentially private decentralized learning as matrix factorization."""

__version__ = "0.1.0"

from mfdl.accounting import account

__all__ = ["account"]
