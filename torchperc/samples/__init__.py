"""How samples lie in memory: dense, sparse or in pieces on disk; the loops that read them are compiled."""
