"""How fast torchperc is: ``torchperc bench`` times it and its peers in turns, in one process, results compared."""
