"""`python -m harness.cli` is `plumb`."""

from harness.cli.console_script import main

if __name__ == "__main__":
    main()
