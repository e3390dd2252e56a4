"""Benchmarks: ratios inside one run decide, absolute figures are for a quiet machine.

Two arms are interleaved A B B A, at least five pairs, and medians are compared, so that a noisy neighbour
hits both. A run whose spread is above a quarter says so itself (`invalid`), and no test asserts a time.
Every report names its workload and its durability, so that a figure can be repeated.
"""

from waybill.bench.core.pairs import Arm, PairedRun, abba, spread

__all__ = ["Arm", "PairedRun", "abba", "spread"]
