"""How fast torchperc is: ``make bench`` times it and its peers in turns, in one process, results compared."""
