"""The loops of the rule, as numba compiles them."""
