# SPDX-License-Identifier: MIT
"""The parts of bench/compare."""
