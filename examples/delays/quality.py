"""How good probabilities are, given what became of it."""

from __future__ import annotations

import numpy as np


def auc(late: np.ndarray, score: np.ndarray) -> float:
    """The chance that a late flight got a higher score than a punctual one (ties count half)."""
    _, at, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[at]
    positives = int(late.sum())
    negatives = len(late) - positives
    return float((ranks[late].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def log_loss(late: np.ndarray, probability: np.ndarray) -> float:
    """Mean of −log of the probability that was given to what happened."""
    p = np.clip(np.where(late, probability, 1 - probability), 1e-12, 1)
    return float(-np.log(p).mean())
