"""The `simsd` command: one module for each subcommand, with `add_parser(subparsers)` and `run(args) -> exit code`."""
