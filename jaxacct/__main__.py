"""``python -m jaxacct`` is ``jaxacct``."""

from jaxacct.cli import main

if __name__ == "__main__":
    main()
