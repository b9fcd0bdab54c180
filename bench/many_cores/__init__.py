# SPDX-License-Identifier: MIT
"""What scripts/many-cores is made of: the pack, what runs in it elsewhere, and the page of its results."""
