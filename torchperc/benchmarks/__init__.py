"""Benchmarks: torchperc and its peers timed side by side, their results compared beside every time.

``torchperc bench`` runs them; :mod:`torchperc.benchmarks.timing` has the harness, :mod:`torchperc.benchmarks.cases` the
list of cases.
"""
