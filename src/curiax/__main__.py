"""`python -m curiax` is the `curiax` command."""

from .cli import script

if __name__ == "__main__":
    script()
