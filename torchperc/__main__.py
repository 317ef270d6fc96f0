"""``python -m torchperc``, and so ``torchrun -m torchperc``: the command line."""

from torchperc.cli import main

if __name__ == "__main__":
    main()
