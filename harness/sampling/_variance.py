"""How far sampled sums over neighbours are from the whole ones, in closed form.

All concern one layer with fixed inputs: Z = P Y for some target rows, and an estimate of it whose mean is Z. The
variance is E |Z~ - Z|^2 (Frobenius norm) over the draws. Rows of P are targets, columns are nodes.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp


def neighbour_variance(p: sp.csr_matrix, y: np.ndarray, fanout: int) -> float:
    """Variance where each target draws `fanout` of its d entries uniformly without replacement, weighted d / fanout.

    That of GraphSAGE's samples; of VR-GCN's where y are the rows minus their history. Sum over targets of
    (1 / k) (d - k) / (d - 1) sigma^2, with sigma^2 the variance over a target's entries of d P_vu y_u.
    """
    degree = np.diff(p.indptr).astype(np.float64)
    drawn = np.minimum(degree, fanout)
    spread = degree * (p.multiply(p) @ _squares(y)) - _squares(p @ y)
    share = (degree - drawn) / (np.maximum(drawn, 1) * np.maximum(degree - 1, 1))
    return float((share * spread).sum())


def replacement_variance(p: sp.csr_matrix, y: np.ndarray, q: np.ndarray, count: int) -> float:
    """Variance of `count` independent draws of columns by q, each weighted 1 / (count q): FastGCN, LADIES.

    Args:
        q: float64 [columns], sums to 1, positive wherever a column has entries; columns without entries may have some.
    """
    energy = _energy(p, y)
    return float((np.divide(energy, q, out=np.zeros_like(energy), where=energy > 0).sum() - _total(p, y)) / count)


def poisson_variance(p: sp.csr_matrix, y: np.ndarray, chance: np.ndarray) -> float:
    """Variance where every column is kept alone with its probability and weighted by the inverse: BNS-GCN's draws of
    boundary nodes, with one probability for all, and draws by importance."""
    energy = _energy(p, y)
    return float(np.divide(energy * (1 - chance), chance, out=np.zeros_like(energy), where=energy > 0).sum())


def fixed_variance(p: sp.csr_matrix, y: np.ndarray, owner: np.ndarray, share: float) -> float:
    """Variance where int(share n) of the n columns of every owner are kept uniformly, weighted n / m.

    Columns of owners of which none is kept are missing: the square of their sum, a bias, is added.
    """
    energy, total, missing = _energy(p, y), 0.0, np.zeros(len(y), np.bool_)
    for one in np.unique(owner):
        mine = np.flatnonzero(owner == one)
        n, m = len(mine), int(share * len(mine))
        if m == 0:
            missing[mine] = True
        elif m < n:
            total += n * (n - m) / (m * (n - 1)) * (energy[mine].sum() - _total(p[:, mine], y[mine]) / n)
    return float(total + _total(p[:, missing], y[missing]))


def column_squares(p: sp.csr_matrix) -> np.ndarray:
    """|P_u|^2 of every column u."""
    return np.bincount(p.indices, weights=p.data**2, minlength=p.shape[1])


def _energy(p: sp.csr_matrix, y: np.ndarray) -> np.ndarray:
    """|P_u|^2 |y_u|^2 of every column."""
    found: np.ndarray = column_squares(p) * _squares(y)
    return found


def _squares(rows: np.ndarray) -> np.ndarray:
    """Squared norm of every row."""
    found: np.ndarray = np.einsum("ij,ij->i", rows, rows)
    return found


def _total(p: sp.csr_matrix, y: np.ndarray) -> float:
    """|P Y|^2."""
    return float(_squares(p @ y).sum())
