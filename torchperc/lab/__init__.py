"""Studies and things to look at: the XOR lab and the demo."""
